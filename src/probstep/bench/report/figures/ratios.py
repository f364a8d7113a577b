"""Every cell's loss over that of the best fixed rate: a row per problem, a colour per optimizer."""

from collections.abc import Sequence

from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import PALETTE
from probstep.bench.report.figures.grid import BASES
from probstep.bench.report.numbers.comparisons import Comparison
from probstep.drawing.axes import Axis, fit_axis
from probstep.drawing.scene import GREY

BAR = 1.5


def draw_ratios(named: Sequence[tuple[str, Comparison]]) -> Figure | None:
    """The ratios of comparisons, each in the row of its name, from below; None without any."""
    if not named:
        return None
    names = list(dict.fromkeys(name for name, _ in named))
    bases = [base for base in BASES if any(c.cell.base == base for _, c in named)]
    heights = {name: row + 0.5 for row, name in enumerate(names)}
    dots = [
        Line(
            name=BASES[base],
            xs=[c.ratio for _, c in named if c.cell.base == base],
            ys=[heights[name] for name, c in named if c.cell.base == base],
            colour=PALETTE[index % len(PALETTE)],
            width=0.0,
            marker="disc",
        )
        for index, base in enumerate(bases)
    ]
    ends = [0.0, float(len(names))]
    rules = [
        Line("the best fixed rate", [1.0, 1.0], ends, GREY, width=1.2),
        Line(f"{BAR:g} times it", [BAR, BAR], ends, GREY, "dotted", 1.2),
    ]
    x = fit_axis([1.0, BAR, *(c.ratio for _, c in named)], "log")
    panel = Panel("", x, Axis(0.0, ends[1]), [*rules, *dots], y_names=names)
    return Figure(
        slug="cells",
        title="The ratio of every cell",
        sentence="Final training loss over that of the best fixed rate; left of 1 is better.",
        rows=[[panel]],
        x_label="final training loss over the best fixed rate's",
        y_label="",
        legend=[*dots, *rules],
        size=(480.0, 24.0 * len(names)),
    )
