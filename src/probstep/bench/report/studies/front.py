"""The first page's picture and table: a part of README.md and docs/index.md, from the plan `front`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from probstep.bench.means import geometric_mean
from probstep.bench.report.drawing.chart import Figure
from probstep.bench.report.figures.sensitivity import draw_sensitivity
from probstep.bench.report.numbers.cells import Cell, make_cells
from probstep.bench.report.numbers.comparisons import Best, compare_with, find_best_fixed
from probstep.bench.report.numbers.histories import History
from probstep.bench.report.numbers.summaries import read_summaries
from probstep.bench.report.page.markdown import write_paragraph, write_table

RECORDS = ("front.jsonl",)
SWEPT = "digits_mlp"  # the problem of the picture
START = 1e-3  # the initial rate that stands for all
ROWS = {  # by method; each at one rate
    "robust_adam": "`ProbStep(Adam)`",
    "prodigy": "Prodigy",
    "schedulefree_adamw": "Schedule-Free AdamW",
    "adam": f"Adam at {START:g}",
}
PICTURE = """<picture>
  <source media="(prefers-color-scheme: dark)" srcset="figures/front-dark.svg">
  <img alt="The final training loss against the initial rate" src="figures/front-light.svg">
</picture>
"""
PANEL = (240.0, 170.0)  # small enough for a phone to show its numbers
LEGEND = {"fixed": "fixed rate", "default rule": "ProbStep, from the same rate"}


@dataclass(frozen=True)
class Study:
    """The records of the plan, and what follows from them."""

    histories: Sequence[History]

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells."""
        return make_cells(self.histories)

    @cached_property
    def tuned(self) -> dict[str, Best]:
        """Adam at its best fixed rate, by problem."""
        found = find_best_fixed(self.cells).items()
        return {place[0]: best for place, best in found if place[1] == "adam"}


def read_study(records: Path) -> Study:
    """The study in a folder of records."""
    return Study(read_summaries(records / RECORDS[0]))


def draw_study(study: Study) -> Figure:
    """The picture: where a training ends, from eleven initial rates."""
    figure = draw_sensitivity([c for c in study.cells if c.problem == SWEPT], "train_loss")
    if figure is None:
        raise ValueError("The records have no initial rates to draw.")
    legend = [replace(line, name=LEGEND[line.name]) for line in figure.legend]
    return replace(figure, legend=legend, row_names=(), size=PANEL)


def write_study(study: Study) -> str:
    """The part of a page."""
    return "\n".join(_part(study)).rstrip() + "\n"


def _part(study: Study) -> Iterator[str]:
    swept = [c for c in study.cells if c.problem == SWEPT and c.rate]
    rates = {c.rate for c in swept if c.column == "default rule"}
    run = swept[0].run
    seeds = len(swept[0].histories)
    steps = [int(cell.steps) for cell in study.cells]
    lost = " A cross is a training that diverged." * any(cell.has_diverged for cell in swept)
    yield PICTURE
    yield from write_paragraph(
        f"*A small net on scikit-learn's digits, {run.epochs} epochs from each of {len(rates)} initial "
        f"rates: the final training loss, the mean over {seeds} seeds.{lost}*"
    )
    yield from _table(study)
    yield from write_paragraph(
        f"*Short trainings, of {_spell_range(steps)} steps and {seeds} seeds: the final training loss "
        "over that of Adam at its best fixed rate; below 1 is better. The other methods have one "
        "rate, their default. Most probes come in the first hundred steps: a long training has at "
        "most about 1.04 forward passes per step. `make front` makes these "
        f"{len(study.histories)} runs, the table and the picture again in a few minutes. There are "
        "[longer comparisons](robust-benchmark.md), and a page on [what each method is better "
        "at](comparisons.md).*"
    )


def _table(study: Study) -> Iterator[str]:
    problems = list(study.tuned)
    tried = [len([c for c in study.cells if _is_fixed_adam(c, p)]) for p in problems]
    best = [f"1 ({study.tuned[p].cell.final('train_loss'):.3g})" for p in problems]
    rows = [["Adam, tuned", _spell_range(tried), *best, "1", "1"]]
    for method, name in ROWS.items():
        cells = {c.problem: c for c in study.cells if c.method == method and _is_usual(c)}
        ratios = {p: compare_with(cells[p], study.tuned[p]).ratio for p in problems}
        said = [f"{ratios[p]:.2f}" for p in problems]
        mean = f"{geometric_mean([*ratios.values()]):.2f}"
        rows.append([name, "1", *said, mean, f"{_passes(cells):.2f}"])
    tuned, *others = rows
    others.sort(key=lambda row: float(row[-2]))
    head = ["", "rates tried", *(p.replace("_", " ") for p in problems), "geometric mean"]
    yield from write_table([*head, "forward passes per step"], [tuned, *others])


def _is_fixed_adam(cell: Cell, problem: str) -> bool:
    return (cell.problem, cell.column, cell.base) == (problem, "fixed", "adam")


def _is_usual(cell: Cell) -> bool:
    """Whether the cell is the one that stands for its method."""
    is_peer = cell.column not in ("fixed", "default rule")
    return is_peer or cell.rate == START


def _passes(cells: Mapping[str, Cell]) -> float:
    return fmean(h.passes / h.steps for cell in cells.values() for h in cell.histories)


def _spell_range(counts: Sequence[int]) -> str:
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
