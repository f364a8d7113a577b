"""C9 to C11: the heat map, Rosenbrock's function and the rates over time."""

import math
from collections.abc import Sequence

from probstep.bench.report.figures.heatmap import momentum_differences
from probstep.bench.report.figures.rosenbrock import POLYAK, STANDARD, rosenbrock_curves
from probstep.drawing.axes import spell

from .evidence import BASES, HEAVY, OURS, End, Evidence
from .verdict import (
    HALF,
    MOST,
    NO_RECORDS,
    Verdict,
    Word,
    count,
    fall_short,
    percent,
    share,
)

APART = 100  # steps after which the paper's curves part
VISIBLE = 0.005  # a tile shows whole points of per cent
SAME = 0.01  # curves are the same up to this relative distance
FORGOTTEN = 10.0  # rates have met if the largest is below this multiple of the smallest


def judge_heatmap(evidence: Evidence) -> Verdict:
    """Green except for large momentum."""
    cells = [c for c in evidence.on("digits_conv") if c.base == "adam"]
    tiles = momentum_differences(cells, OURS)
    light = [gain for (_, beta), gain in tiles.items() if beta < HEAVY]
    heavy = [gain for (_, beta), gain in tiles.items() if beta >= HEAVY]
    if not light or not heavy:
        return NO_RECORDS
    green, red = share(g >= -VISIBLE for g in light), share(g < -VISIBLE for g in heavy)
    said = (
        f"below {HEAVY} {percent(green)} of {len(light)} tiles are green or equal, from {HEAVY} on "
        f"{percent(red)} of {len(heavy)} are worse; largest gain "
        f"{100 * max(light):+.0f}, largest loss {100 * min(heavy):+.0f} points"
    )
    seeds = max(len(cell.histories) for cell in cells)
    why = (
        f"On digits_conv instead of cifar10_3c3d, best of {seeds} seed{'s' * (seeds > 1)}. "
        "What is worse below is so next to the best fixed rates, where there is nothing to gain."
    )
    is_green, is_red = green >= MOST, red >= HALF
    word: Word = (
        "confirmed" if is_green and is_red else "partly" if is_green or is_red else "refuted"
    )
    gap = max(fall_short(green, MOST), fall_short(red, HALF))
    return Verdict(word, said, why, sum(len(cell.histories) for cell in cells), gap=gap)


def judge_rosenbrock(evidence: Evidence) -> Verdict:
    """Four variants in three panels."""
    panels = list(rosenbrock_curves(evidence.on("rosenbrock")).values())
    if len(panels) < 3 or any(POLYAK not in lines for lines in panels):
        return NO_RECORDS
    small, large, adapted = panels
    apart = _first_apart(small[POLYAK][1], large[POLYAK][1])
    gains = {
        name: _last(small[name][1]) > _last(adapted[name][1]) for name in small if name != POLYAK
    }
    said = (
        f"the R = 0 runs are the same for {apart} steps; adapting ends lower than the small fixed "
        f"rate in {count(gains.values())} variants (standard step: {_last(small[STANDARD][1]):.2g} "
        f"fixed, {_last(adapted[STANDARD][1]):.2g} adapted)"
    )
    why = (
        f"The same means within {percent(SAME)}. In exact arithmetic they would be the same for ever: "
        "when rounding shows depends on start and number format, which the paper does not give."
    )
    parts = [apart >= APART / 10, all(gains.values())]
    word: Word = "confirmed" if all(parts) else "partly" if any(parts) else "refuted"
    gap = max(fall_short(apart, APART), 1 - share(gains.values()))
    return Verdict(word, said, why, len(evidence.on("rosenbrock")), gap=gap)


def _first_apart(one: Sequence[float | None], other: Sequence[float | None]) -> int:
    for step, (a, b) in enumerate(zip(one, other, strict=False)):
        if a is None or b is None or abs(a - b) > SAME * max(abs(a), abs(b)):
            return step
    return len(one)


def _last(values: Sequence[float | None]) -> float:
    return math.inf if values[-1] is None else values[-1]


def judge_rates(evidence: Evidence) -> Verdict:
    """The rates from all starts meet, then get noisy."""
    ends = [e for e in evidence.choose(OURS) if e.problem == "cifar100_resnet18_narrow"]
    groups = {b: [e for e in ends if e.base == b] for b in BASES if any(e.base == b for e in ends)}
    if not groups:
        return NO_RECORDS
    spreads = {base: spread_of_rates(group) for base, group in groups.items()}
    said = "; ".join(
        f"{BASES[base]}: from a spread of {spell(before)} to one of {spell_spread(after)} among "
        f"{len(groups[base])} starts"
        for base, (before, after) in spreads.items()
    )
    have_met = all(after < FORGOTTEN for _, after in spreads.values())
    are_nearer = any(after < before for before, after in spreads.values())
    why = (
        "On a narrow net, a subset and few epochs: the rates move towards each other, and the noisier "
        "regime that the paper sees after many epochs is out of reach."
    )
    word: Word = "partly" if have_met else "not at this scale" if are_nearer else "refuted"
    return Verdict(word, said, why, len(ends), gap=0.5 if have_met else 1.0)


def spread_of_rates(ends: Sequence[End]) -> tuple[float, float]:
    """The largest over the smallest rate of some runs, at first and in the end."""
    rates = [values[-1] for e in ends if (values := e.cell.curve("effective_rate")[1])]
    known = [rate for rate in rates if rate]
    starts = [e.rate for e in ends]
    return max(starts) / min(starts), max(known) / min(known) if known else math.inf


def spell_spread(value: float) -> str:
    """A spread with two digits.

    >>> spell_spread(2.63), spell_spread(4412.0)
    ('2.6', '4400')
    """
    return spell(float(f"{value:.2g}"))
