"""The seeds of otherwise equal runs as one cell: their mean, their end, names that tell cells apart.

The one place that says what these are:

- The value of a cell is the mean over its seeds: geometric for losses and rates, arithmetic for
  accuracies.
- A run that diverged has no value, and neither has its cell from then on: the mean would be infinite.
- A run that failed (a file was missing, say) says nothing about its method and does not count.
- Where losses are compared they have a floor, 1 % of the untrained model's loss: what lies below it is
  as good, so that a problem whose loss goes to zero cannot decide a table.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probstep.bench.means import geometric_mean, mean
from probstep.bench.methods import METHODS, Method
from probstep.bench.records import Run
from probstep.bench.report.numbers.histories import History, clean, number, spell_settings

ACCURACIES = frozenset({"train_accuracy", "valid_accuracy", "test_accuracy"})
LOSSES = frozenset({"train_loss", "valid_loss", "test_loss"})
FLOOR = 0.01  # of the untrained model's loss
BUDGET = ("epochs", "subset", "batch_size", "evaluation")
COLUMNS = ("default rule", "paper's rule", "fixed", "hypergradient", "L4")
OURS = ("default rule", "paper's rule")

Curve = tuple[Sequence[int], list[float | None]]


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
    _curves: dict[str, Curve] = field(default_factory=dict, compare=False, repr=False)

    @property
    def run(self) -> Run:
        """What its runs share, with the seed of the first."""
        return self.histories[0].run

    @property
    def options(self) -> dict[str, Any]:
        """The settings as they were recorded."""
        return self.run.settings

    @property
    def row(self) -> Method | None:
        """The method's row of the table; None for a method from elsewhere."""
        return METHODS.get(self.method)

    @property
    def base(self) -> str:
        """The optimizer whose direction the method follows; a stranger's method is its own."""
        return self.row.base if self.row else self.method

    @property
    def schedule(self) -> str:
        """How its rate changes with time."""
        return str(self.options.get("schedule", self.row.schedule if self.row else "constant"))

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

    @property
    def has_ended(self) -> bool:
        """Whether a run of it was trained to its end, be it a bad one."""
        return any(history.has_ended for history in self.histories)

    @property
    def has_diverged(self) -> bool:
        """Whether a run of it diverged."""
        return any(history.has_diverged for history in self.histories)

    @property
    def steps(self) -> float:
        """Training steps of a run to its end."""
        return max(history.steps for history in self.histories)

    def curve(self, metric: str) -> Curve:
        """The epochs and the mean over the seeds after each; None from a divergence on."""
        if metric not in self._curves:
            self._curves[metric] = _mean_curve(self.histories, metric)
        return self._curves[metric]

    def final(self, metric: str) -> float | None:
        """The mean of the last values of the runs that have ended; None if one diverged."""
        return seed_mean([h.last(metric) for h in self.histories if h.has_ended], metric)

    def latest(self, metric: str) -> float | None:
        """The mean of the last values of all runs, unfinished ones too; None if one diverged."""
        return seed_mean([h.last(metric) for h in self.histories if h.epochs], metric)

    def judged(self, metric: str) -> float | None:
        """The final value for a comparison: losses have their floor."""
        ended = [history for history in self.histories if history.has_ended]
        return seed_mean([floored(history, metric) for history in ended], metric)

    def best_seed(self, metric: str) -> float | None:
        """The best of the last values, which is what the paper's heatmap shows."""
        return best([h.last(metric) for h in self.histories if h.has_ended], metric)


def make_cells(histories: Iterable[History]) -> list[Cell]:
    """The cells of all runs, in the order of problems, methods and rates."""
    groups: dict[Hashable, list[History]] = defaultdict(list)
    for history in histories:
        groups[_without_seed(history.run)].append(history)
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


def seed_mean(values: Sequence[float | None], metric: str) -> float | None:
    """The mean over seeds; None if there is no value, or if one of them is None.

    Losses that are not positive have no geometric mean, and so the arithmetic one.

    >>> seed_mean([1.0, 4.0], "train_loss"), seed_mean([0.5, 1.0], "test_accuracy")
    (2.0, 0.75)
    >>> seed_mean([1.0, None], "train_loss"), seed_mean([-1.0, 3.0], "train_loss")
    (None, 1.0)
    """
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    is_geometric = metric not in ACCURACIES and min(known) > 0
    return geometric_mean(known) if is_geometric else mean(known)


def floored(history: History, metric: str) -> float | None:
    """The last value of a run; of a loss at least 1 % of its first."""
    value, first = history.last(metric), history.first(metric)
    if value is None or first is None or first <= 0 or metric not in LOSSES:
        return value
    return max(value, FLOOR * first)


def best(values: Iterable[float | None], metric: str) -> float | None:
    """The best of the values that there are.

    >>> best([0.1, None, 0.3], "train_loss"), best([0.1, 0.3], "test_accuracy"), best([], "test_loss")
    (0.1, 0.3, None)
    """
    known = [value for value in values if value is not None]
    choose = max if metric in ACCURACIES else min
    return choose(known) if known else None


def group_by(cells: Iterable[Cell], *names: str) -> dict[tuple[Any, ...], list[Cell]]:
    """The cells by some of their attributes, in the order in which these come."""
    groups: dict[tuple[Hashable, ...], list[Cell]] = defaultdict(list)
    for cell in cells:
        groups[tuple(getattr(cell, name) for name in names)].append(cell)
    return dict(groups)


def _mean_curve(histories: Sequence[History], metric: str) -> Curve:
    """As `seed_mean`, epoch by epoch: a run that diverged counts as None after its last epoch."""
    longest = max(histories, key=lambda history: len(history.epochs))
    if len(histories) == 1:
        return longest.epochs, [number(value) for value in longest.scores[metric]]
    values = np.full((len(histories), len(longest.epochs)), np.nan)
    counts = np.zeros(values.shape, dtype=bool)
    for row, history in enumerate(histories):
        size = len(history.epochs)
        values[row, :size] = history.scores[metric]
        counts[row, : None if history.has_diverged else size] = True
    if metric not in ACCURACIES:
        positive = np.where(counts, values > 0, True).all(axis=0)
    else:
        positive = np.zeros(len(longest.epochs), dtype=bool)
    with np.errstate(all="ignore"):
        shares = np.where(counts, values, 0.0) / counts.sum(axis=0)
        logs = np.where(counts, np.log(values), 0.0).sum(axis=0) / counts.sum(axis=0)
        means = np.where(positive, np.exp(logs), shares.sum(axis=0))
    return longest.epochs, [number(value) for value in means.tolist()]


def _without_seed(run: Run) -> Hashable:
    budget = (getattr(run, name) for name in BUDGET)
    # Most runs have no settings, and spelling them takes a tenth of the time of `show`.
    settings = json.dumps(run.settings, sort_keys=True) if run.settings else "{}"
    return run.problem, run.method, run.rate, *budget, settings


def _budget(history: History) -> dict[str, Any]:
    return {name: getattr(history.run, name) for name in BUDGET}


def _tell_apart(named: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """The names, with those of their settings that are not the same wherever the name occurs."""
    seen: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for name, settings in named:
        for key, value in settings.items():
            seen[name, key][json.dumps(value)] += 1
    total = Counter(name for name, _ in named)
    shared = {place for place, counts in seen.items() if list(counts.values()) == [total[place[0]]]}
    kept = ({k: v for k, v in s.items() if (name, k) not in shared} for name, s in named)
    return [
        clean(f"{name} {spell_settings(settings)}".strip())
        for (name, _), settings in zip(named, kept, strict=True)
    ]


def _order(cell: Cell) -> tuple[Any, ...]:
    """By problem, our rules before others, then as in the table of methods."""
    known = list(METHODS)
    place = known.index(cell.method) if cell.method in METHODS else len(known)
    ours = OURS.index(cell.column) if cell.column in OURS else len(OURS)
    rate = -1.0 if cell.rate is None else cell.rate
    return cell.problem, ours, place, cell.method, cell.label, rate
