"""Performance profiles: how often a method ends within a factor of the best.

Reference: Dolan and Moré, 2002, "Benchmarking optimization software with performance profiles".
"""

from collections.abc import Sequence

from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import PALETTE, Style, free_style
from probstep.bench.report.figures.grid import BASES
from probstep.bench.report.numbers.cells import Cell, group_by
from probstep.bench.report.numbers.measures import loss_ratios
from probstep.drawing.axes import Axis

MOST = 1000.0
STROKES = {
    "default rule": "solid",
    "paper's rule": "long-dashed",
    "fixed": "dotted",
    "hypergradient": "dashed",
    "L4": "dash-dotted",
}


def draw_profiles(cells: Sequence[Cell]) -> Figure | None:
    """The share of a method's cells that end within a factor of the problem's best loss."""
    cells = _usual(cells)
    ratios = loss_ratios(cells)
    if len(ratios) < 2:
        return None
    columns = {cell.label: cell.column for cell in cells}
    styles = profile_styles([c for c in cells if c.label in ratios])
    lines = [
        Line(
            label,
            *_profile(values),
            *styles[label],
            2.6 if columns[label] == "default rule" else 1.6,
        )
        for label, values in ratios.items()
    ]
    return Figure(
        slug="profiles",
        title="Performance profiles",
        sentence="Pick one of a method's problems and initial rates at random: the curve is the chance "
        "that its final training loss is at most so many times the best that any method reached on "
        "the problem. Higher and further left is better; a run that diverged never gets there.",
        rows=[[Panel("", Axis(1.0, MOST, "log"), Axis(-0.02, 1.02), lines)]],
        x_label="factor of the best final training loss",
        y_label="share of the runs",
        legend=lines,
        size=(430.0, 250.0),
    )


def _usual(cells: Sequence[Cell]) -> list[Cell]:
    """Of a method that was given several settings only its own; all of them would hide each other."""
    counts = {m: len(group_by(group, "label")) for (m,), group in group_by(cells, "method").items()}
    return [cell for cell in cells if cell.is_default or counts[cell.method] == 1]


def profile_styles(cells: Sequence[Cell]) -> dict[str, Style]:
    """A colour for each optimizer, a stroke for each way to set its rate; others what is left."""
    bases = [base for base in BASES if any(cell.base == base for cell in cells)]
    styles: dict[str, Style] = {}
    for cell in sorted(cells, key=lambda cell: cell.column not in STROKES):
        if cell.label not in styles:
            usual = _usual_style(cell, bases)
            is_free = usual is not None and usual not in styles.values()
            styles[cell.label] = usual if usual and is_free else free_style(styles.values())
    return styles


def _usual_style(cell: Cell, bases: Sequence[str]) -> Style | None:
    if cell.base not in bases or cell.column not in STROKES:
        return None
    return PALETTE[bases.index(cell.base) % len(PALETTE)], STROKES[cell.column]


def _profile(ratios: Sequence[float]) -> tuple[list[float], list[float | None]]:
    """The steps of the curve, which rises at each ratio."""
    xs, ys = [1.0], [0.0]
    for count, ratio in enumerate(sorted(r for r in ratios if r <= MOST), start=1):
        xs += [ratio, ratio]
        ys += [ys[-1], count / len(ratios)]
    return [*xs, MOST], [*ys, ys[-1]]
