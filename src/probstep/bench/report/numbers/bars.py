"""Bars: what a requirement asks for, what was found on each half of the rows, whether it is reached."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from probstep.bench.means import quantile
from probstep.bench.report.numbers.hazards import (
    FAR,
    GRID,
    PEERS,
    PLAIN,
    PRESENT,
    WORST_POINTS,
    WORST_RATIO,
    Outcome,
    Record,
    Way,
    compare,
    mean_ratio,
    spell_compared,
)

HALVES = ("tuning", "kept")

Measure = Callable[[Sequence[Outcome]], float | None]


@dataclass(frozen=True)
class Finding:
    """What was found on a half.

    Args:
        text: The numbers, in a few words.
        is_within: Whether the bar is reached; None if that is not known: not all has been run.
    """

    text: str
    is_within: bool | None


@dataclass(frozen=True)
class Bar:
    """What is asked for, the limit, and what was found on each half that has rows."""

    what: str
    limit: str
    findings: Mapping[str, Finding]

    @property
    def is_reached(self) -> bool | None:
        """Whether it is reached on every half; None if that is not known.

        >>> Bar("", "", {"tuning": Finding("", None), "kept": Finding("", False)}).is_reached
        False
        """
        known = [finding.is_within for finding in self.findings.values()]
        return False if False in known else None if None in known else True

    @property
    def word(self) -> str:
        """The same in a word."""
        return {True: "yes", False: "no", None: "not all run"}[self.is_reached]


def judge(
    what: str,
    limit: str,
    outcomes: Iterable[Outcome],
    measure: Measure,
    rows: Mapping[str, int],
) -> Bar:
    """The bar of a number that is measured on the rows of each half.

    Args:
        what: What is asked for.
        limit: "at most" or "at least", and a number; per cent count as such.
        outcomes: The rows that have been run.
        measure: The number of some of them; None if they do not tell it.
        rows: How many rows each half has; those that have none are left out.
    """
    found = list(outcomes)
    parts = {half: [o for o in found if o.half == half] for half, count in rows.items() if count}
    findings = {
        half: _find(measure(part) if part else None, limit, len(part), rows[half])
        for half, part in parts.items()
    }
    return Bar(what, limit, findings)


def _find(value: float | None, limit: str, count: int, rows: int) -> Finding:
    if value is None:
        return Finding("not run", None)
    is_percent = limit.endswith("%")
    number = f"{value:.1%}".replace("%", " %") if is_percent else _spell(value)
    counted = f"{count} rows" if count == rows else f"{count} of {rows} rows"
    return Finding(f"{number} ({counted})", is_within(value, limit) if count == rows else None)


def is_within(value: float, limit: str) -> bool:
    """Whether a number keeps to a limit.

    >>> is_within(1.31, "at most 1.3"), is_within(0.9, "at least 90 %")
    (False, True)
    """
    *words, number = limit.removesuffix(" %").split()
    bound = float(number) / (100 if limit.endswith("%") else 1)
    return value <= bound + 1e-9 if "most" in words else value >= bound - 1e-9


def _spell(value: float) -> str:
    return str(int(value)) if isinstance(value, int) else f"{value:.3f}"


# Numbers of many rows


def count_too_bad(outcomes: Sequence[Outcome]) -> int:
    """How many hazards end worse than the bar allows."""
    return sum(one.is_too_bad for one in outcomes)


def count_rates_far(outcomes: Sequence[Outcome]) -> int | None:
    """How many last rates are far from the best of the grid; None if there is no grid."""
    known = [one for one in outcomes if one.best_rate is not None]
    return sum(one.is_rate_far for one in known) if known else None


def share_as_good(outcomes: Sequence[Outcome]) -> float:
    """The share of rows that are at least as good as the reference."""
    return sum(one.is_as_good for one in outcomes) / len(outcomes)


def worst_ratio(outcomes: Sequence[Outcome]) -> float:
    """The largest ratio."""
    return max(one.ratio for one in outcomes)


def ratio_of_95(outcomes: Sequence[Outcome]) -> float | None:
    """The ratio that 95 of 100 rows are not beyond."""
    return quantile([one.ratio for one in outcomes], 0.95)


def mean_test_points(outcomes: Sequence[Outcome]) -> float | None:
    """The mean difference of test scores, over the rows that have one."""
    points = [one.test_points for one in outcomes if one.test_points is not None]
    return sum(points) / len(points) if points else None


# Bars that several pages show


def judge_hazards(records: Sequence[Record], rows: Mapping[str, int]) -> list[Bar]:
    """The bars of the hazards, for the present rule."""
    found = compare(records, PRESENT)
    with_grid = [one for one in found if one.best_rate is not None]
    return [
        judge(
            f"worse than plain by a factor above {WORST_RATIO} or by more than {-WORST_POINTS:g} "
            "points, raised or diverged",
            "at most 0",
            found,
            count_too_bad,
            rows,
        ),
        judge("at least as good as plain", "at least 90 %", found, share_as_good, rows),
        judge(
            f"last rate outside 1/{FAR:g} to {FAR:g} times the grid's best, not converged",
            "at most 0",
            with_grid,
            count_rates_far,
            rows,
        ),
    ]


def judge_peers(
    records: Sequence[Record], against: Way, rows: Mapping[str, int], ours: Way = PRESENT
) -> list[Bar]:
    """Whether ours is ahead of every peer, in the geometric mean and in the worst row.

    Both stand beside the same reference, on the rows and seeds that all three have.
    """
    bars = []
    for peer, name in PEERS.items():
        pairs = {
            half: side_by_side([r for r in records if r["half"] == half], peer, against, ours)
            for half in rows
        }
        for what, tell in (("geometric mean", _lead_in_mean), ("worst row", _lead_in_worst)):
            findings = {half: _find_lead(*pair, tell, rows[half]) for half, pair in pairs.items()}
            bars.append(Bar(f"{name}: {what}", "ours below", findings))
    return bars


def side_by_side(
    records: Sequence[Record], peer: Way, against: Way, ours: Way = PRESENT
) -> tuple[list[Outcome], list[Outcome]]:
    """Ours and a peer beside the same reference, on the rows and seeds that all three have."""
    keys = [{(r["hazard"], r["seed"]) for r in records if _way(r) == way} for way in (ours, peer)]
    shared = keys[0] & keys[1]
    both = [r for r in records if _way(r) in (GRID, PLAIN) or (r["hazard"], r["seed"]) in shared]
    return compare(both, ours, against), compare(both, peer, against)


def _way(record: Record) -> Way:
    return record["way"], record["label"]


Lead = tuple[str, bool]


def _find_lead(
    ours: Sequence[Outcome],
    theirs: Sequence[Outcome],
    tell: Callable[[Sequence[Outcome], Sequence[Outcome]], Lead],
    rows: int,
) -> Finding:
    if not ours:
        return Finding("not run", None)
    text, is_ahead = tell(ours, theirs)
    counted = f"{len(ours)} rows" if len(ours) == rows else f"{len(ours)} of {rows} rows"
    return Finding(f"{text} ({counted})", is_ahead if len(ours) == rows else None)


def _lead_in_mean(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> Lead:
    mine, its = (mean_ratio(part) or math.nan for part in (ours, theirs))
    return f"{mine:.3f} against {its:.3f}", mine < its


def _lead_in_worst(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> Lead:
    mine, its = (max(part, key=lambda one: one.badness) for part in (ours, theirs))
    text = f"{spell_compared(mine)} against {spell_compared(its)}"
    return text, mine.badness < its.badness
