"""The seeds of otherwise equal runs as one cell: medians, ends, and names that tell cells apart."""

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median_low
from typing import Any

from probstep.bench.methods import METHODS, Method
from probstep.bench.report.numbers.histories import History, clean, number, spell_settings

HIGHER_IS_BETTER = frozenset({"train_accuracy", "test_accuracy"})
BUDGET = ("epochs", "subset", "batch_size", "evaluation")


@dataclass(frozen=True)
class Cell:
    """Runs that differ in their seed only.

    Args:
        problem: The problem's name; with the budget, if the problem was given several.
        label: The method's name; with the settings that differ, if it was given several.
    """

    problem: str
    label: str
    method: str
    rate: float | None
    settings: str
    histories: tuple[History, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The settings as they were recorded."""
        return self.histories[0].run.settings

    @property
    def row(self) -> Method | None:
        """The method's row of the table; None for a method from elsewhere."""
        return METHODS.get(self.method)

    @property
    def base(self) -> str:
        """The optimizer whose direction the method follows; a stranger's method is its own."""
        return self.row.base if self.row else self.method

    @property
    def column(self) -> str:
        """Its place beside the others in the paper's figure, or its family."""
        if self.row is None:
            return "other"
        is_l4 = (self.row.family, self.row.rate) == ("polyak", "factor")
        return "L4" if is_l4 else self.row.family

    @property
    def is_default(self) -> bool:
        """Whether the method has the settings of its row in the table."""
        return self.row is not None and self.settings == spell_settings(self.row.defaults)

    def curve(self, metric: str) -> tuple[list[int], list[float | None]]:
        """The median over the seeds after each epoch; a seed that diverged counts as the worst."""
        values: dict[int, list[float | None]] = defaultdict(list)
        for history in self.histories:
            for epoch, value in zip(history.epochs, history.scores[metric], strict=True):
                values[epoch].append(value)
        epochs = sorted(values)
        return epochs, [middle(values[e] + self._lost_before(e), metric) for e in epochs]

    def _lost_before(self, epoch: int) -> list[float | None]:
        gone = (h for h in self.histories if h.status == "diverged" and h.epochs[-1] < epoch)
        return [None for _ in gone]

    @property
    def has_ended(self) -> bool:
        """Whether a run of it was trained to its end, be it a bad one."""
        return any(history.status in ("done", "diverged") for history in self.histories)

    def final(self, metric: str) -> float | None:
        """The median of the last values; None if the median run diverged, or there is none."""
        ends = [h for h in self.histories if h.status in ("done", "diverged")]
        return middle([_last(history, metric) for history in ends], metric)

    def best_seed(self, metric: str) -> float | None:
        """The best of the last values, which is what the paper's heatmap shows."""
        ends = [_last(h, metric) for h in self.histories if h.status == "done"]
        return best(ends, metric)


def make_cells(histories: Iterable[History]) -> list[Cell]:
    """The cells of all runs, in the order of problems, methods and rates."""
    groups: dict[str, list[History]] = defaultdict(list)
    for history in histories:
        groups[replace(history.run, seed=0).key].append(history)
    members = [tuple(group) for group in groups.values()]
    problems = _tell_apart([(m[0].run.problem, _budget(m[0])) for m in members])
    labels = _tell_apart([(m[0].run.method, m[0].run.settings) for m in members])
    cells = [
        Cell(
            problem=problem,
            label=label,
            method=clean(m[0].run.method),
            rate=number(m[0].run.rate),
            settings=spell_settings(m[0].run.settings),
            histories=m,
        )
        for m, problem, label in zip(members, problems, labels, strict=True)
    ]
    return sorted(cells, key=_order)


def middle(values: Sequence[float | None], metric: str) -> float | None:
    """The median where None is the worst; of two in the middle the worse.

    >>> middle([1.0, None, 2.0], "train_loss"), middle([None, 0.9], "test_accuracy")
    (2.0, None)
    """
    if not values:
        return None
    sign = 1.0 if metric in HIGHER_IS_BETTER else -1.0
    merits = [-math.inf if value is None else sign * value for value in values]
    merit = median_low(merits)
    return None if merit == -math.inf else sign * merit


def best(values: Iterable[float | None], metric: str) -> float | None:
    """The best of the values that there are.

    >>> best([0.1, None, 0.3], "train_loss"), best([0.1, 0.3], "test_accuracy"), best([], "test_loss")
    (0.1, 0.3, None)
    """
    known = [value for value in values if value is not None]
    choose = max if metric in HIGHER_IS_BETTER else min
    return choose(known) if known else None


def group_by(cells: Iterable[Cell], *names: str) -> dict[tuple[Any, ...], list[Cell]]:
    """The cells by some of their attributes, in the order in which these come."""
    groups: dict[tuple[Hashable, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[tuple(getattr(cell, name) for name in names)].append(cell)
    return dict(groups)


def _last(history: History, metric: str) -> float | None:
    values = history.scores[metric]
    return values[-1] if values and history.status == "done" else None


def _budget(history: History) -> dict[str, Any]:
    values = asdict(history.run)
    return {name: values[name] for name in BUDGET}


def _tell_apart(named: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """The names, with those of their settings that are not the same wherever the name occurs."""
    seen: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, settings in named:
        seen[name][""].append("")  # how often the name occurs
        for key, value in settings.items():
            seen[name][key].append(json.dumps(value))

    def differs(name: str, key: str) -> bool:
        return len(seen[name][key]) < len(seen[name][""]) or len(set(seen[name][key])) > 1

    kept = ({k: v for k, v in s.items() if differs(name, k)} for name, s in named)
    return [
        clean(f"{name} {spell_settings(settings)}".strip())
        for (name, _), settings in zip(named, kept, strict=True)
    ]


def _order(cell: Cell) -> tuple[Any, ...]:
    known = list(METHODS)
    place = known.index(cell.method) if cell.method in METHODS else len(known)
    return cell.problem, place, cell.method, cell.label, -1.0 if cell.rate is None else cell.rate
