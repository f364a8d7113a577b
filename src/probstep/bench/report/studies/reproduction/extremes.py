"""Where the paper's rule fails as it is meant: large momentum and large initial rates, from records."""

from collections.abc import Sequence

from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import PALETTE, rate_colours
from probstep.bench.report.figures.heatmap import METRIC, momentum_of
from probstep.bench.report.numbers.cells import Cell
from probstep.drawing.axes import Axis, fit_axis, spell
from probstep.drawing.scene import GREY, Colour

from .evidence import BASES, CLOSE, HEAVY, LARGE, NETS, OURS, SMALL, End, Evidence
from .verdict import count, percent, share

SHOWN = ("momentum", "adam")
ACCURACY = Axis(-0.02, 1.02)
LOUD: dict[float, Colour] = {LARGE: PALETTE[1], 1.0: PALETTE[3]}


def draw_heavy(evidence: Evidence) -> Figure | None:
    """Final accuracy of the paper's rule over the momentum, a line for each initial rate."""
    cells = [c for c in evidence.on("digits_conv") if c.column == OURS and c.has_ended]
    betas = sorted({beta for c in cells if (beta := momentum_of(c)) is not None})
    if len(betas) < 2:
        return None
    colours = rate_colours(c.rate for c in cells if c.rate)
    return Figure(
        slug="heavy",
        title="Final training accuracy of the paper's rule over the momentum",
        sentence=_heavy_sentence(cells, betas),
        rows=[[_heavy_panel(cells, base, betas, colours) for base in SHOWN]],
        x_label="momentum β",
        y_label="final training accuracy",
        legend=[Line(spell(rate), (), (), colour) for rate, colour in colours.items()],
        legend_title="initial rate",
        size=(178.0, 130.0),
    )


def draw_large(evidence: Evidence) -> Figure | None:
    """Training accuracy by epoch with the paper's rule, from large initial rates and small ones."""
    ends = evidence.judging.choose(OURS, bases=SHOWN)
    ends = [e for e in ends if e.rate <= SMALL or e.rate in LOUD]
    nets = [net for net in NETS if any(e.problem == net and e.rate in LOUD for e in ends)]
    if not nets:
        return None
    rows = []
    for net in nets:
        groups = [[e for e in ends if (e.problem, e.base) == (net, base)] for base in SHOWN]
        names = [BASES[base] if net == nets[0] else "" for base in SHOWN]
        rows.append([_large_panel(g, name) for g, name in zip(groups, names, strict=True)])
    legend = {f"{spell(SMALL)} and below": GREY, **{spell(r): c for r, c in LOUD.items()}}
    return Figure(
        slug="large",
        title="Training accuracy of the paper's rule from large initial rates",
        sentence=_large_sentence(ends),
        rows=rows,
        x_label="epoch",
        y_label="training accuracy",
        legend=[Line(name, (), (), colour, width=2.0) for name, colour in legend.items()],
        legend_title="initial rate",
        row_names=[net.replace("_", " ", 1) for net in nets],
        size=(150.0, 84.0),
    )


def _heavy_sentence(cells: Sequence[Cell], betas: Sequence[float]) -> str:
    best = max(map(_accuracy, cells))
    groups = {
        f"below {HEAVY}": [b for b in betas if b < HEAVY],
        **{f"at {spell(b)}": [b] for b in betas if b >= HEAVY},
    }
    ends = {
        name: [_accuracy(c) >= best - CLOSE for c in cells if momentum_of(c) in group]
        for name, group in groups.items()
    }
    shares = (f"{name} {percent(share(hits))}" for name, hits in ends.items() if hits)
    return (
        "The lines fall where the momentum is large. Runs that end close to the best: "
        f"{', '.join(shares)}."
    )


def _heavy_panel(
    cells: Sequence[Cell], base: str, betas: Sequence[float], colours: dict[float, Colour]
) -> Panel | None:
    lines = []
    for rate, colour in colours.items():
        found = {momentum_of(c): _accuracy(c) for c in cells if (c.base, c.rate) == (base, rate)}
        xs, ys = [i + 0.5 for i in range(len(betas))], [found.get(beta) for beta in betas]
        lines.append(Line(spell(rate), xs, ys, colour, width=1.8, marker="disc"))
    if not any(line.ys for line in lines):
        return None
    names = [spell(beta) for beta in betas]
    return Panel(f"{BASES[base]}, digits_conv", Axis(0, len(betas)), ACCURACY, lines, x_names=names)


def _accuracy(cell: Cell) -> float:
    return cell.final(METRIC) or 0.0


def _large_sentence(ends: Sequence[End]) -> str:
    behind = []
    for end in ends:
        small = [e.accuracy for e in ends if _place(e) == _place(end) and e.rate <= SMALL]
        if end.rate in LOUD and small:
            behind.append(end.accuracy < max(small) - CLOSE)
    return (
        "A coloured curve below the grey ones has not got over its first steps: "
        f"{count(behind)} runs from {spell(LARGE)} and 1 end more than {100 * CLOSE:.0f} points below "
        "the best small initial rate of the same optimizer."
    )


def _place(end: End) -> tuple[str, str]:
    return end.problem, end.base


def _large_panel(ends: Sequence[End], title: str) -> Panel | None:
    ends = sorted(ends, key=lambda e: e.rate)  # the loud ones on top
    curves = [(e, *e.cell.curve(METRIC)) for e in ends]
    if not curves:
        return None
    lines = [
        Line(spell(e.rate), xs, ys, LOUD.get(e.rate, GREY), width=2.0 if e.rate in LOUD else 1.2)
        for e, xs, ys in curves
    ]
    epochs = [float(x) for _, xs, _ in curves for x in xs]
    return Panel(title, fit_axis(epochs, margin=0.0), ACCURACY, lines, worst="bottom")
