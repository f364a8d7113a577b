"""The paper's figures from records, each narrow enough to be read on a phone.

Every figure has one sentence that says what to see; the page shows it above the picture.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import PALETTE, factor_colours, rate_colours
from probstep.bench.report.figures.heatmap import draw_heatmap, momentum_differences
from probstep.bench.report.figures.illustration import draw_illustration
from probstep.bench.report.figures.rosenbrock import draw_rosenbrock
from probstep.bench.report.numbers.cells import ACCURACIES
from probstep.drawing.axes import Axis, fit_axis, spell
from probstep.drawing.scene import GREY, Colour

from .evidence import (
    BASES,
    BOTH,
    BOUND,
    CLOSE,
    DOUBLING,
    FIXED,
    HEAVY,
    HYPER,
    L4,
    NETS,
    NOISE,
    OURS,
    OURS_09,
    End,
    Evidence,
    from_same_starts,
)
from .sweeps import VISIBLE, spell_spread, spread_of_rates
from .verdict import count, percent, share

FRAMES = {FIXED: "fixed", OURS: "default rule", HYPER: "hypergradient", L4: "L4"}  # as in the paper
STYLES: dict[str, tuple[Colour, str]] = {
    FIXED: (GREY, "solid"),
    OURS: (PALETTE[0], "solid"),
    OURS_09: (PALETTE[1], "solid"),
    NOISE: (PALETTE[1], "dashed"),
    BOUND: (PALETTE[2], "solid"),
    BOTH: (PALETTE[3], "dashed"),
    DOUBLING: (PALETTE[1], "dashed"),
}
CURVES = {
    "train_accuracy": (
        "training accuracy",
        "A curve for each initial rate: together at the top, it matters little",
    ),
    "train_loss": ("training loss", "The same runs, lower is better"),
    "test_accuracy": ("test accuracy", "The same runs on samples that were not trained on"),
}
UNTRAINED = "No fixed rate trains this net in the time: it judges nothing."
RATES = Axis(5e-6, 2.0, "log")
TOPS = (0.1, 0.2, 0.5, 1.0)  # where an axis of accuracies may end


def draw_inference() -> Figure:
    """The paper's Fig. 1."""
    return replace(
        draw_illustration(),
        slug="inference",
        size=(330.0, 250.0),
        sentence="A learning rate is the width of a prior: against the same noise, the wide prior "
        "(blue) is moved much nearer to the solution than the narrow one (orange).",
    )


def draw_heatmaps(evidence: Evidence) -> Figure | None:
    """The paper's Fig. 2, and the one for momentum that its text mentions."""
    figure = draw_heatmap(evidence.on("digits_conv"))
    if figure is None:
        return None
    panels = [panel for row in figure.rows for panel in row]
    return replace(
        figure,
        slug="heatmap",
        rows=[[panel] for panel in panels],
        size=(310.0, 200.0),
        sentence="Points of training accuracy that adapting gains (blue) or loses (orange). It loses "
        f"{_losses(evidence)}.",
    )


def _losses(evidence: Evidence) -> str:
    """In how many of the tiles adapting is worse, by momentum."""
    cells = evidence.on("digits_conv")
    both = [momentum_differences([c for c in cells if c.base == b], OURS) for b in BASES]
    tiles = [(beta, gain < -VISIBLE) for tiles in both for (_, beta), gain in tiles.items()]
    light, heavy = (
        [bad for beta, bad in tiles if (beta >= HEAVY) == side] for side in (False, True)
    )
    return f"in {count(light)} tiles with a momentum below {HEAVY}, and in {count(heavy)} from there on"


def draw_rosenbrocks(evidence: Evidence) -> Figure | None:
    """The appendix's three panels, one under the other."""
    figure = draw_rosenbrock(evidence.on("rosenbrock"))
    if figure is None:
        return None
    panels = [panel for row in figure.rows for panel in row]
    return replace(
        figure,
        rows=[[panel] for panel in panels],
        size=(310.0, 130.0),
        sentence="Without noise (grey) the rate cancels, so all panels begin alike; with it a small "
        "rate hardly moves (first panel), unless it is adapted (last panel).",
    )


def draw_ends(evidence: Evidence) -> Figure | None:
    """Where training ends, over the initial rate: fixed, and the paper's rule at both momenta."""
    bases = ("momentum", "adam")
    return _over_rates(
        evidence.choose(FIXED, OURS, OURS_09, bases=bases),
        slug="ends",
        ways=(FIXED, OURS, OURS_09),
        bases=bases,
        sentence="A flat, high line needs no tuning. Of the starts that all three have on record on "
        f"nets that judge there have trained: {_shares(evidence, bases)}.",
        size=(150.0, 84.0),
    )


def _shares(evidence: Evidence, bases: Sequence[str]) -> str:
    colours = {FIXED: "grey", OURS: "blue", OURS_09: "orange"}
    able = evidence.judging
    groups = from_same_starts(able.choose(*colours, bases=bases))
    return ", ".join(
        f"{way} ({colour}) {percent(share(map(able.has_trained, groups[way])))}"
        for way, colour in colours.items()
        if groups.get(way)
    )


def draw_noise(evidence: Evidence) -> Figure | None:
    """The noise R, with and without f*."""
    return _over_rates(
        evidence.choose(OURS, NOISE, BOUND, BOTH, bases=("sgd", "momentum", "adam")),
        slug="noise",
        ways=(OURS, NOISE, BOUND, BOTH),
        bases=("sgd", "momentum", "adam"),
        sentence="If R made no difference, each dashed line would lie on a solid one: orange on blue "
        f"without `f*`, pink on green with it. {_bounded(evidence)}",
        size=(100.0, 90.0),
        only=(NOISE, BOTH),
    )


def _bounded(evidence: Evidence) -> str:
    """What R does where f* is given."""
    pairs = evidence.pair(BOUND, BOTH)
    alone, both = ([evidence.has_trained(pair[i]) for pair in pairs] for i in (0, 1))
    return f"With `f*` = 0 alone {count(alone)} have trained, with R {count(both)}."


def draw_doubling(evidence: Evidence) -> Figure | None:
    """Adapting in every 2^i-th epoch."""
    return _over_rates(
        evidence.choose(OURS, DOUBLING, bases=("sgd", "momentum", "adam")),
        slug="doubling",
        ways=(OURS, DOUBLING),
        bases=("sgd", "momentum", "adam"),
        sentence="Orange on blue: adapting in every 2^i-th epoch only ends like adapting at every step. "
        f"Within {100 * CLOSE:.0f} points of it are {_same_ends(evidence)} runs.",
        size=(100.0, 90.0),
        only=(DOUBLING,),
    )


def _same_ends(evidence: Evidence) -> str:
    pairs = evidence.pair(OURS, DOUBLING)
    return count(abs(usual.accuracy - other.accuracy) <= CLOSE for usual, other in pairs)


def draw_all_curves(evidence: Evidence, metric: str) -> Iterator[Figure]:
    """The paper's Fig. 3 and its supplement's, a figure per net."""
    for problem in NETS:
        ends = [e for e in evidence.choose(FIXED, OURS, HYPER, L4) if e.problem == problem]
        sentence = _closeness(ends, metric) if problem in evidence.judging.best else UNTRAINED
        figure = _curves(ends, problem, metric, (FIXED, OURS, HYPER, L4), sentence)
        if figure is not None:
            yield figure


def draw_rates(evidence: Evidence) -> Iterator[Figure]:
    """The supplement's last row: the rate at the end of each epoch."""
    for problem in reversed(NETS):
        ends = [e for e in evidence.choose(OURS, HYPER) if e.problem == problem]
        figure = _curves(ends, problem, "effective_rate", (OURS, HYPER), _spreads(ends))
        if figure is not None:
            yield figure


def _over_rates(
    ends: Sequence[End],
    *,
    slug: str,
    ways: Sequence[str],
    bases: Sequence[str],
    sentence: str,
    size: tuple[float, float],
    only: Sequence[str] = (),
) -> Figure | None:
    """Final training accuracy over the initial rate: a row per net, a column per optimizer."""
    problems = [p for p in NETS if any(e.problem == p and e.way in (only or ways) for e in ends)]
    if not problems:
        return None
    rows = [
        [
            _ends_panel(
                [e for e in ends if (e.problem, e.base) == (problem, base)],
                BASES[base] if problem == problems[0] else "",
                ways,
                fit_accuracy(e.accuracy for e in ends if e.problem == problem),
            )
            for base in bases
        ]
        for problem in problems
    ]
    shown = [way for way in ways if any(e.way == way for e in ends)]
    return Figure(
        slug=slug,
        title="Final training accuracy over the initial rate",
        sentence=sentence,
        rows=rows,
        x_label="initial rate",
        y_label="final training accuracy",
        legend=[Line(way, (), (), *STYLES[way], 2.0, "disc") for way in shown],
        row_names=[problem.replace("_", " ", 1) for problem in problems],
        size=size,
    )


def _ends_panel(ends: Sequence[End], title: str, ways: Sequence[str], y: Axis) -> Panel | None:
    lines = []
    for way in ways:
        chosen = sorted((e for e in ends if e.way == way), key=lambda e: e.rate)
        if chosen:
            xs, ys = [e.rate for e in chosen], [e.accuracy for e in chosen]
            lost = [e.rate for e in chosen if e.has_diverged]
            lines.append(Line(way, xs, ys, *STYLES[way], 1.8, "disc", lost))
    if not lines:
        return None
    return Panel(title, RATES, y, lines, worst="bottom")


def _closeness(ends: Sequence[End], metric: str) -> str:
    """What the curves of a net are, and how many of each way end near the best of them."""
    lead = CURVES[metric][1]
    if metric not in ACCURACIES:
        return f"{lead}."
    finals = [(e.way, e.cell.final(metric) or 0.0) for e in ends]
    best = max((value for _, value in finals), default=0.0)
    near = {way: [v >= best - CLOSE for w, v in finals if w == way] for way in FRAMES}
    counts = ", ".join(f"{way} {count(hits)}" for way, hits in near.items() if hits)
    return f"{lead}. Close to the best end: {counts}."


def _spreads(ends: Sequence[End]) -> str:
    """How far the rates of the paper's rule lie apart, at first and in the end."""
    groups = {base: [e for e in ends if (e.base, e.way) == (base, OURS)] for base in BASES}
    found = {base: spread_of_rates(group) for base, group in groups.items() if len(group) > 1}
    lead = "Where the curves meet, the start is forgotten"
    if not found:
        return f"{lead}."
    after = ", ".join(f"{BASES[base]} {spell_spread(after)}" for base, (_, after) in found.items())
    before = spell(max(before for before, _ in found.values()))
    said = f"Largest over smallest rate of the paper's rule: {before} at first, in the end {after}."
    return f"{lead}. {said}"


def _curves(
    ends: Sequence[End], problem: str, metric: str, ways: Sequence[str], sentence: str
) -> Figure | None:
    """A row per optimizer, a column per way to set the rate, a curve per initial rate."""
    bases = [base for base in BASES if any(e.base == base for e in ends)]
    if not bases:
        return None
    curves = {id(e): e.cell.curve(metric) for e in ends}
    x = fit_axis([float(v) for epochs, _ in curves.values() for v in epochs], margin=0.0)
    y = _y_axis(metric, [values for _, values in curves.values()])
    colours = _colours(ends)
    shown = [way for way in ways if any(e.way == way for e in ends)]
    titled: set[str] = set()  # the uppermost panel of a column has its name
    rows = []
    for base in bases:
        row: list[Panel | None] = []
        for way in shown:
            lines = [
                Line(spell(e.rate), *curves[id(e)], colours[e.way == L4, e.rate], width=1.4)
                for e in ends
                if (e.base, e.way) == (base, way)
            ]
            title = "" if way in titled else way
            row.append(Panel(title, x, y, lines, frame=FRAMES[way]) if lines else None)
            titled |= {way} if lines else set()
        rows.append(row)
    name = CURVES[metric][0] if metric in CURVES else "rate in use"
    return Figure(
        slug=f"{metric.replace('_', '-')}-{problem.replace('_', '-')}",
        title=f"{problem}: {name}",
        sentence=sentence,
        rows=rows,
        x_label="epoch",
        y_label=name,
        legend=[
            Line(f"L4 factor {spell(rate)}" if is_factor else spell(rate), (), (), colour)
            for (is_factor, rate), colour in colours.items()
        ],
        legend_title="initial rate",
        row_names=[BASES[base] for base in bases],
        size=(84.0, 76.0) if len(shown) > 2 else (150.0, 84.0),
    )


def _y_axis(metric: str, curves: Sequence[Sequence[float | None]]) -> Axis:
    values = [v for curve in curves for v in curve if v is not None]
    if metric.endswith("accuracy"):
        return fit_accuracy(values)
    if metric == "effective_rate":
        return fit_axis([v for v in values if 1e-8 < v < 1e3], "log")
    starts = sorted(curve[0] for curve in curves if curve and curve[0] is not None)
    most = 3 * starts[len(starts) // 2]  # a run that exploded would flatten all others
    return fit_axis([v for v in values if v <= most], "log")


def fit_accuracy(values: Iterable[float]) -> Axis:
    """An axis from 0 that ends above all values: at 1, unless the net hardly trains.

    >>> fit_accuracy([0.03, 0.09]).ticks(2), fit_accuracy([0.9]).ticks(2)
    ([0.0, 0.1], [0.0, 1.0])
    """
    most = max(values, default=1.0)
    top = next((top for top in TOPS if most <= top), TOPS[-1])
    return Axis(-0.02 * top, 1.02 * top)


def _colours(ends: Iterable[End]) -> dict[tuple[bool, float], Colour]:
    """By whether it is a factor of L4, and the rate."""
    ends = list(ends)
    rates = rate_colours(e.rate for e in ends if e.way != L4)
    factors = factor_colours(e.rate for e in ends if e.way == L4)
    return {
        **{(False, rate): colour for rate, colour in rates.items()},
        **{(True, factor): colour for factor, colour in factors.items()},
    }
