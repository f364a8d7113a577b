"""The paper's Fig. 3: a row per problem, a group per optimizer, a panel per way to set the rate."""

import math
from collections.abc import Collection, Sequence

from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import factor_colours, rate_colours
from probstep.bench.report.numbers.cells import ACCURACIES, COLUMNS, Cell, Curve, group_by
from probstep.drawing.axes import Axis, fit_axis, spell
from probstep.drawing.scene import INK, Colour

BASES = {
    "sgd": "SGD",
    "momentum": "SGD with momentum",
    "adam": "Adam",
    "adamw": "AdamW",
    "nadam": "NAdam",
    "rmsprop": "RMSprop",
    "adagrad": "Adagrad",
}
MOST_ROWS = 12
MOST_POINTS = 32  # of a curve; a panel is not much wider than a hundred pixels
NAMES = {
    "train_accuracy": "training accuracy",
    "train_loss": "training loss",
    "test_accuracy": "test accuracy",
    "test_loss": "test loss",
    "effective_rate": "effective rate",
}
SENTENCES = {
    "train_accuracy": "Higher is better.",
    "train_loss": "Lower is better; what lies far above the untrained model's loss is cut off.",
    "test_accuracy": "Higher is better; what lies more than 50 points under the best is cut off.",
    "effective_rate": "The rate in use at the end of each epoch. Where the curves of a panel meet, "
    "the initial rate no longer matters.",
}


def draw_grid(
    cells: Sequence[Cell], metric: str, columns: Sequence[str] = COLUMNS
) -> Figure | None:
    """The grid of one metric over the epochs; None if no record has it."""
    shown = [
        c for c in cells if c.column in columns and any(v is not None for v in c.curve(metric)[1])
    ]
    shown = _one_variant_each(shown)
    problems = list(dict.fromkeys(cell.problem for cell in shown))
    if not shown:
        return None
    groups = _groups(shown, columns)
    colours = _colours(shown)
    rows = [
        _row([c for c in shown if c.problem == problem], groups, metric, colours)
        for problem in problems[:MOST_ROWS]
    ]
    return Figure(
        slug=f"grid-{metric.replace('_', '-')}",
        title=f"{NAMES[metric].capitalize()} from every initial rate",
        sentence=_sentence(metric, {cell.column for cell in shown}, len(problems)),
        rows=rows,
        x_label="epoch",
        y_label=NAMES[metric],
        legend=_legend(colours),
        legend_title="initial rate",
        groups=[(BASES.get(base, base), len(names)) for base, names in groups.items()],
        row_names=problems[:MOST_ROWS],
        size=(140.0, 110.0) if len(rows[0]) > 6 else (190.0, 140.0),
    )


def _one_variant_each(cells: Sequence[Cell]) -> list[Cell]:
    """Of several methods or settings in one place the usual one; tables have them all."""
    kept = []
    for group in group_by(cells, "problem", "base", "column").values():
        chosen = next((cell for cell in group if cell.is_default), group[0]).label
        kept += [cell for cell in group if cell.label == chosen]
    return kept


def _groups(cells: Sequence[Cell], columns: Sequence[str]) -> dict[str, list[str]]:
    """For each optimizer the panels that it has anywhere."""
    found = {(cell.base, cell.column) for cell in cells}
    bases = [base for base in BASES if any(b == base for b, _ in found)]
    bases += sorted({b for b, _ in found} - set(bases))
    return {base: [c for c in columns if (base, c) in found] for base in bases}


def _row(
    cells: Sequence[Cell],
    groups: dict[str, list[str]],
    metric: str,
    colours: dict[tuple[bool, float], Colour],
) -> list[Panel | None]:
    curves = [cell.curve(metric) for cell in cells]
    x = fit_axis([float(e) for epochs, _ in curves for e in epochs], margin=0.0)
    y = _y_axis(metric, [values for _, values in curves])
    panels: list[Panel | None] = []
    for base, columns in groups.items():
        for column in columns:
            members = [c for c in cells if (c.base, c.column) == (base, column)]
            lines = [_line(cell, metric, colours) for cell in members]
            panels.append(Panel(column, x, y, lines, frame=column) if lines else None)
    return panels


def _line(cell: Cell, metric: str, colours: dict[tuple[bool, float], Colour]) -> Line:
    epochs, values = thin(*cell.curve(metric))
    rate = cell.rate or 0.0
    kind = "factor" if cell.column == "L4" else "rate"
    name = f"{cell.label}, {kind} {spell(rate)}"
    return Line(name, epochs, values, colours.get((cell.column == "L4", rate), INK), width=1.4)


def thin(epochs: Sequence[int], values: Sequence[float | None]) -> Curve:
    """At most about so many points as a panel can show, the first and the last among them.

    >>> epochs, values = thin(range(101), [0.0] * 101)
    >>> epochs[:3], epochs[-1], len(values)
    ([0, 4, 8], 100, 26)
    """
    stride = max(1, math.ceil((len(epochs) - 1) / MOST_POINTS))
    kept = sorted({*range(0, len(epochs), stride), len(epochs) - 1} - {-1})
    return [epochs[i] for i in kept], [values[i] for i in kept]


def _y_axis(metric: str, curves: Sequence[Sequence[float | None]]) -> Axis:
    values = [v for curve in curves for v in curve if v is not None]
    if metric in ACCURACIES:
        top = min(max(0.0, *values), 1.0)  # a stranger's accuracy may be any number
        low = max(0.0, top - 0.5) if metric == "test_accuracy" else 0.0
        return Axis(low - 0.02, 1.02 if metric == "train_accuracy" else top + 0.02)
    if metric == "effective_rate":
        return fit_axis(values, "log")
    starts = sorted(curve[0] for curve in curves if curve and curve[0] is not None)
    most = 10 * starts[len(starts) // 2] if starts else max(values)
    return fit_axis(
        [v for v in values if v <= most] or values, "log" if min(values) > 0 else "linear"
    )


def _colours(cells: Sequence[Cell]) -> dict[tuple[bool, float], Colour]:
    """By whether it is a factor of L4, and the rate."""
    rates = rate_colours(c.rate for c in cells if c.rate and c.column != "L4")
    factors = factor_colours(c.rate for c in cells if c.rate and c.column == "L4")
    return {
        **{(False, r): c for r, c in rates.items()},
        **{(True, f): c for f, c in factors.items()},
    }


def _legend(colours: dict[tuple[bool, float], Colour]) -> list[Line]:
    if len(colours) > 24:  # too many to name: the ends tell the order
        colours = dict([*list(colours.items())[:1], *list(colours.items())[-1:]])
    return [
        Line(f"L4 factor {spell(rate)}" if is_factor else spell(rate), (), (), colour)
        for (is_factor, rate), colour in colours.items()
    ]


def _sentence(metric: str, columns: Collection[str], problems: int) -> str:
    frames = {
        "default rule": "thick, probstep with its default rule",
        "paper's rule": "thin black, probstep with the paper's rule",
        "fixed": "thin grey, a fixed rate",
        "hypergradient": "dashed, hypergradient descent",
        "L4": "dash-dotted, L4, whose factor takes the place of the rate",
    }
    more = f" The first {MOST_ROWS} of {problems} problems." if problems > MOST_ROWS else ""
    said = "; ".join(frames[column] for column in COLUMNS if column in columns)
    beginning = "One curve per initial rate, the mean over seeds."
    return f"{beginning} {SENTENCES[metric]} Frames: {said}.{more}"
