"""Every row's loss over that of the best fixed rate: a line per training, a colour per optimizer."""

from collections.abc import Sequence

from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import PALETTE
from probstep.bench.report.figures.grid import BASES
from probstep.bench.report.numbers.hazards import Outcome
from probstep.drawing.axes import Axis, fit_axis
from probstep.drawing.scene import GREY


def draw_ratios(named: Sequence[tuple[str, Outcome]], bar: float) -> Figure | None:
    """The ratios of rows, each in the line of its name, from below; None without any.

    Args:
        named: Rows, each with the name of its line.
        bar: The largest ratio that is allowed.
    """
    if not named:
        return None
    names = list(dict.fromkeys(name for name, _ in named))
    bases = [base for base in BASES if any(one.base == base for _, one in named)]
    heights = {name: row + 0.5 for row, name in enumerate(names)}
    dots = [
        Line(
            name=BASES[base],
            xs=[one.ratio for _, one in named if one.base == base],
            ys=[heights[name] for name, one in named if one.base == base],
            colour=PALETTE[index % len(PALETTE)],
            width=0.0,
            marker="disc",
        )
        for index, base in enumerate(bases)
    ]
    ends = [0.0, float(len(names))]
    rules = [
        Line("the best fixed rate", [1.0, 1.0], ends, GREY, width=1.2),
        Line(f"{bar:g} times it", [bar, bar], ends, GREY, "dotted", 1.2),
    ]
    x = fit_axis([1.0, bar, *(one.ratio for _, one in named)], "log")
    panel = Panel("", x, Axis(0.0, ends[1]), [*rules, *dots], y_names=names)
    return Figure(
        slug="cells",
        title="The ratio of every row",
        sentence="Final training loss over that of the best fixed rate; left of 1 is better.",
        rows=[[panel]],
        x_label="final training loss over the best fixed rate's",
        y_label="",
        legend=[*dots, *rules],
        size=(480.0, 24.0 * len(names)),
    )
