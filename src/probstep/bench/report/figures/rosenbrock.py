"""The appendix's Rosenbrock figure, from the records of the plan `rosenbrock`."""

from collections.abc import Sequence

from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import PALETTE
from probstep.bench.report.numbers.cells import Cell
from probstep.bench.report.numbers.histories import number
from probstep.drawing.axes import Axis, fit_axis, spell
from probstep.drawing.scene import GREY, Colour

STYLES: tuple[tuple[Colour, str], ...] = (  # the paper's purple, grey, blue and green
    (PALETTE[3], "solid"),
    (GREY, "solid"),
    (PALETTE[0], "solid"),
    (PALETTE[2], "dashed"),
)
STANDARD, POLYAK = "standard step", "inference, R = 0 (Polyak)"
WIDTHS = {POLYAK: 0.8}


def draw_rosenbrock(cells: Sequence[Cell]) -> Figure | None:
    """Three panels of four lines: the loss after every step; None without the plan's records."""
    panels = rosenbrock_curves(cells)
    if not any(POLYAK in lines for lines in panels.values()):
        return None
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    names.sort(key=lambda name: (name != STANDARD, name != POLYAK, name))
    styles = {name: STYLES[min(i, len(STYLES) - 1)] for i, name in enumerate(names)}
    values = [v for lines in panels.values() for _, ys in lines.values() for v in ys if v]
    y = fit_axis([v for v in values if v < 1e4], "log")
    return Figure(
        slug="rosenbrock",
        title="Rosenbrock's function: the inference with a known minimum",
        sentence="Adam (β₁ = 0.7) with the step of the inference, whose bound f* = 0 is known. "
        "Without noise (R = 0) the rate cancels: the grey lines of the three panels are the same "
        "until rounding has grown into them. With noise or the standard step a small rate is slow, "
        "and adapting it helps.",
        rows=[[_panel(title, lines, styles, y) for title, lines in panels.items()]],
        x_label="step",
        y_label="f",
        legend=[Line(name, (), (), *styles[name], 2.0) for name in names],
        size=(270.0, 230.0),
    )


Curve = tuple[list[float], list[float | None]]


def rosenbrock_curves(cells: Sequence[Cell]) -> dict[str, dict[str, Curve]]:
    """The loss against the step, by panel and line: fixed rates from small to large, then adapted."""
    panels: dict[tuple[bool, float], dict[str, Curve]] = {}
    for cell in cells:
        if _is_shown(cell) and cell.rate:
            lines = panels.setdefault((_is_adapted(cell), cell.rate), {})
            lines.setdefault(_line_name(cell), _curve(cell))
    return {
        f"{'adapted' if adapted else 'fixed'} η, {'from ' * adapted}{spell(rate)}": lines
        for (adapted, rate), lines in sorted(panels.items())
    }


def is_rosenbrock(cell: Cell) -> bool:
    """Whether the cell is of the problem that this figure is about."""
    return cell.histories[0].run.problem == "rosenbrock"


def _is_shown(cell: Cell) -> bool:
    return is_rosenbrock(cell) and cell.base == "adam" and cell.column != "default rule"


def _is_adapted(cell: Cell) -> bool:
    return cell.column == "paper's rule" and cell.options.get("up") != 1.0


def _line_name(cell: Cell) -> str:
    if cell.options.get("lower_bound") is None:
        return STANDARD
    if share := number(cell.options.get("noise_share")):
        return f"inference, R = {spell(share)} f"
    noise = number(cell.options.get("noise"))
    return f"inference, R = {spell(noise)}" if noise else POLYAK


def _curve(cell: Cell) -> Curve:
    epochs, values = cell.curve("train_loss")
    history = cell.histories[0]
    stride = history.steps / max(1, history.epochs[-1] if history.epochs else 1)
    return [epoch * stride for epoch in epochs], values


def _panel(
    title: str, lines: dict[str, Curve], styles: dict[str, tuple[Colour, str]], y: Axis
) -> Panel:
    behind_first = sorted(lines, key=lambda name: name != POLYAK)  # it swings across all others
    curves = [
        Line(name, *lines[name], *styles[name], WIDTHS.get(name, 1.8)) for name in behind_first
    ]
    x = fit_axis([x for line in curves for x in line.xs], margin=0.0)
    return Panel(title, x, y, curves, frame="default rule" if "adapted" in title else "fixed")
