"""What came after the paper, on its nets: RobustRule and today's tuning-free methods."""

from collections.abc import Iterable, Iterator, Sequence

from probstep.bench.methods import METHODS
from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import PALETTE
from probstep.bench.report.page.markdown import write_table
from probstep.drawing.axes import Axis

from .evidence import (
    FIXED,
    MOMO,
    NETS,
    NEWER,
    OURS,
    PRODIGY,
    ROBUST,
    End,
    Evidence,
    from_same_starts,
)
from .verdict import count, percent, share

PLAN = "paper-beside"
WAYS = (FIXED, OURS, *NEWER)
STYLES = {
    "adam": Line("Adam", (), (), PALETTE[0], "solid", 1.8, "disc"),
    "momentum": Line("Momentum", (), (), PALETTE[1], "dashed", 1.8, "disc"),
}
MEANS = {ROBUST: "where it starts", PRODIGY: "its first guess, `d0`", MOMO: "a bound"}
SHORT = {
    "fmnist_logreg": "logreg",
    "fmnist_mlp": "mlp",
    "fmnist_2c2d": "2c2d",
    "cifar10_3c3d": "3c3d",
    "svhn_wrn164_narrow": "narrow wrn",
    "cifar100_resnet18_narrow": "narrow resnet",
}
RATES, SHARES = Axis(5e-7, 3.0, "log"), Axis(-0.06, 1.06)
GUESS = 1e-6  # Prodigy's d0 by default


def draw_since(evidence: Evidence) -> Figure | None:
    """A row per way to set a rate, a column per net: where training ends from every start."""
    everything = evidence.with_beside()
    nets = [net for net in NETS if any(cell.run.problem == net for cell in evidence.beside)]
    ends = [e for e in everything.choose(*WAYS, bases=STYLES) if e.problem in nets]
    ways = [way for way in WAYS if any(e.way == way for e in ends)]
    if not nets:
        return None
    rows = []
    for way in ways:
        chosen = [e for e in ends if e.way == way]
        rows.append([_panel(everything, chosen, net, way == ways[0]) for net in nets])
    return Figure(
        slug="since",
        title="Final training accuracy over the initial rate, since the paper",
        sentence=_sentence(everything.judging, nets),
        rows=rows,
        x_label="initial rate",
        y_label="final training accuracy, as a share of the best on the net",
        legend=list(STYLES.values()),
        row_names=ways,
        groups=_groups(nets),
        size=(50.0, 64.0),
    )


def write_shares(evidence: Evidence) -> Iterator[str]:
    """The table of how many starts train and end close to the best, by way and optimizer."""
    able = evidence.with_beside().judging
    nets = {cell.run.problem for cell in evidence.beside}
    head = (
        "",
        "optimizer",
        "the rate is",
        "trained",
        "close to the best",
        "close from its default",
    )
    rows = []
    for way in WAYS:
        for base, style in STYLES.items():
            ends = [e for e in able.choose(*WAYS, bases=[base]) if e.problem in nets]
            usual = [e for e in ends if e.way == way and _is_default(e)]
            if fair := from_same_starts(ends).get(way):
                rows.append(
                    (
                        way,
                        style.name,
                        MEANS.get(way, "the rate" if way != OURS else MEANS[ROBUST]),
                        count(map(able.has_trained, fair)),
                        count(map(able.is_close, fair)),
                        count(map(able.is_close, usual)) if usual else "",
                    )
                )
    yield from write_table(head, rows)


def _sentence(evidence: Evidence, nets: Sequence[str]) -> str:
    ends = evidence.choose(*WAYS, bases=["adam"])  # which all of them follow
    fair = from_same_starts([e for e in ends if e.problem in nets])
    known = {way: share(map(evidence.is_close, group)) for way, group in fair.items() if group}
    ranked = sorted(known, key=lambda way: -known[way])
    shares = ", ".join(f"{way} {percent(known[way])}" for way in ranked)
    lead = "A row that is flat and high needs no tuning."
    return (
        f"{lead} Starts from which Adam's kind ends close to the best: {shares}."
        if shares
        else lead
    )


def _panel(evidence: Evidence, ends: Iterable[End], net: str, is_first: bool) -> Panel | None:
    lines = []
    chosen = sorted((e for e in ends if e.problem == net), key=lambda e: e.rate)
    for base, style in STYLES.items():
        group = [e for e in chosen if e.base == base]
        if group:
            xs, ys = [e.rate for e in group], [e.accuracy / evidence.best[net] for e in group]
            lost = [e.rate for e in group if e.has_diverged]
            name, colour, dash = style.name, style.colour, style.dash
            lines.append(Line(name, xs, ys, colour, dash, style.width, style.marker, lost))
    if not lines:
        return None
    return Panel(SHORT[net] if is_first else "", RATES, SHARES, lines, worst="bottom")


def _groups(nets: Sequence[str]) -> list[tuple[str, int]]:
    names = [net.split("_")[0] for net in nets]
    return [(name, names.count(name)) for name in dict.fromkeys(names)]


def _is_default(end: End) -> bool:
    """Whether a run began as its method does if nothing is said."""
    usual = GUESS if end.way == PRODIGY else METHODS[end.cell.method].default_rate
    return end.rate == usual
