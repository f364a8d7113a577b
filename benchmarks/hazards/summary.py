"""From records to a verdict: each row of a way beside the plain optimizer, or the best of its grid.

Losses are floored at 1 % of the first loss. Over several seeds a loss is the geometric mean, a score
the mean. A run that raised or diverged has an infinite loss and a score of zero.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .records import Record

FLOOR = 0.01  # of the first loss: below, one is as good as the other
WORST_RATIO, WORST_POINTS = 1.5, -2.0  # the bar, for every row
FAR = 100.0  # how far the last rate may be from the best of the grid
LARGEST = 100.0  # a ratio counts as at most this, and at least its inverse, in a mean
SHOWN = ("geometric mean", "95th percentile", "worst ratio", "mean points", "test points")
SHARE_AS_GOOD = 0.9  # the bar, over all rows


@dataclass(frozen=True)
class Cell:
    """One row under one way, over all its seeds.

    Args:
        value: Its loss, floored, or its score.
        rate: Its last rate, as if there were no schedule; None if unknown.
        forwards: Extra forward passes per step.
        is_converged: Whether its loss has reached the floor.
        score: What was told beside, such as a test accuracy; NaN if nothing was.
        errors: What was raised or diverged.
        seeds: How many there were.
    """

    value: float
    rate: float | None
    forwards: float
    is_converged: bool
    score: float
    errors: tuple[str, ...]
    seeds: int


@dataclass(frozen=True)
class Result:
    """One row of one way beside a reference."""

    hazard: str
    family: str
    half: str
    measured: str
    ours: Cell
    reference: Cell
    best: Cell | None

    @property
    def ratio(self) -> float:
        """Our loss over the reference's; for scores NaN."""
        if self.measured == "score":
            return math.nan
        if math.isinf(self.ours.value):
            return 1.0 if math.isinf(self.reference.value) else math.inf
        return self.ours.value / self.reference.value

    @property
    def points(self) -> float:
        """Our score minus the reference's; for losses NaN."""
        return self.ours.value - self.reference.value if self.measured == "score" else math.nan

    @property
    def test_points(self) -> float:
        """Our test score minus the reference's, where the judge is a training loss."""
        return self.ours.score - self.reference.score

    @property
    def badness(self) -> float:
        """What rows are sorted by: the log of the ratio; for scores so that both bars coincide."""
        if self.measured == "loss":
            return math.log(min(max(self.ratio, 1e-9), 1e9))
        return self.points / WORST_POINTS * math.log(WORST_RATIO)

    @property
    def is_as_good(self) -> bool:
        return self.badness <= 1e-9

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the row fails; empty if it does not."""
        found = list(self.ours.errors[:1])
        if self.ratio > WORST_RATIO or self.points < WORST_POINTS:
            found.append("too bad")
        if self.is_rate_far:
            found.append("rate far off")
        return tuple(found)

    @property
    def is_rate_far(self) -> bool:
        if self.best is None or not self.best.rate or self.ours.rate is None:
            return False
        away = self.ours.rate / self.best.rate
        return not self.ours.is_converged and not 1 / FAR <= away <= FAR


def floored(record: Record, measured: str) -> float:
    """Return what a run is judged by."""
    if record["final"] is None:
        return 0.0 if measured == "score" else math.inf
    if measured == "score":
        return float(record["final"])
    return max(float(record["final"]), FLOOR * abs(record["first"]))


def geometric(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) if v > 0 else -math.inf for v in values))


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which a share of them lies, linear between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low if low == high else low + (place % 1) * (high - low)


def make_cell(records: Sequence[Record]) -> Cell:
    """Return what the seeds of one row and one way come to."""
    measured = records[0]["measured"]
    values = [floored(r, measured) for r in records]
    rates = [r["last_rate"] for r in records if r.get("last_rate")]
    is_floor = [
        r["final"] is not None and v > r["final"] for r, v in zip(records, values, strict=True)
    ]
    return Cell(
        value=statistics.fmean(values) if measured == "score" else mean_loss(values),
        rate=geometric(rates) if rates else None,
        forwards=statistics.fmean(
            r.get("forwards", 0) / max(r.get("steps", 1), 1) for r in records
        ),
        is_converged=measured == "loss" and all(is_floor),
        score=statistics.fmean(math.nan if r.get("score") is None else r["score"] for r in records),
        errors=tuple(r["status"] for r in records if r["status"] != "done"),
        seeds=len(records),
    )


def mean_loss(values: Sequence[float]) -> float:
    """Return the geometric mean; a loss of exactly zero, whose floor is zero, counts as tiny."""
    return math.inf if math.inf in values else geometric([max(v, 1e-300) for v in values])


def best_of_grid(records: Sequence[Record]) -> Cell | None:
    """Return the cell of the fixed rate that did best over the seeds that all rates have."""
    by_rate = defaultdict(list)
    for record in records:
        by_rate[f"{record['rate']:.6g}"].append(record)
    if not by_rate:
        return None
    most = max(map(len, by_rate.values()))
    cells = [make_cell(rs) for rs in by_rate.values() if len(rs) == most]
    sign = -1 if records[0]["measured"] == "score" else 1
    return min(cells, key=lambda cell: sign * cell.value)


def compare(
    records: Iterable[Record], way: str, label: str = "", against: str = "plain", half: str = "all"
) -> list[Result]:
    """Return a result for every row that has both the way and the reference, on the seeds of both."""
    rows: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for r in records:
        if half in ("all", r["half"]):
            name = r["way"] if r["way"] != "ours" else f"ours {r['label']}"
            rows[r["hazard"]][name].append(r)
    mine = f"ours {label}" if way == "ours" else way
    results = []
    for hazard, ways in rows.items():
        seeds = {r["seed"] for r in ways[mine]} & {r["seed"] for r in ways[against]}
        shared = {name: [r for r in rs if r["seed"] in seeds] for name, rs in ways.items()}
        if not seeds:
            continue
        best = best_of_grid(shared.get("grid", []))
        reference = best if against == "grid" else make_cell(shared[against])
        assert reference is not None
        about = {k: shared[mine][0][k] for k in ("family", "half", "measured")}
        results.append(
            Result(hazard, **about, ours=make_cell(shared[mine]), reference=reference, best=best)
        )
    return sorted(results, key=lambda r: -r.badness)


def headline(results: Sequence[Result]) -> dict[str, float]:
    """Return the numbers that decide."""
    losses = [r for r in results if r.measured == "loss"]
    scores = [r for r in results if r.measured == "score"]
    ratios = [min(max(r.ratio, 1 / LARGEST), LARGEST) for r in losses]
    tested = [r.test_points for r in losses if not math.isnan(r.test_points)]
    return {
        "rows": len(results),
        "failed": sum(bool(r.faults) for r in results),
        "as good": sum(r.is_as_good for r in results) / max(len(results), 1),
        "geometric mean": geometric(ratios) if ratios else math.nan,
        "95th percentile": quantile((r.ratio for r in losses), 0.95) if losses else math.nan,
        "worst ratio": max((r.ratio for r in losses), default=math.nan),
        "mean points": statistics.fmean(r.points for r in scores) if scores else math.nan,
        "worst points": min((r.points for r in scores), default=math.nan),
        "test points": statistics.fmean(tested) if tested else math.nan,
        "extra forwards": statistics.fmean(r.ours.forwards for r in results)
        if results
        else math.nan,
    }


def show(results: Sequence[Result], title: str) -> Iterator[str]:
    """Yield the lines of a table: all rows, then all classes, then the numbers that decide."""
    head = (
        "hazard",
        "class",
        "half",
        "reference",
        "ours",
        "ratio",
        "rate",
        "best rate",
        "fails for",
    )
    yield from align([head, *map(show_result, results)])
    yield ""
    families = defaultdict(list)
    for result in results:
        families[result.family].append(result)
    yield from align(
        [
            ("class", "rows", "failed", *SHOWN),
            *map(show_family, sorted(families.items())),
        ]
    )
    yield ""
    numbers = headline(results)
    yield f"{title}: " + ", ".join(
        f"{name} {value:.3g}" for name, value in numbers.items() if not math.isnan(value)
    )
    yield (
        f"The bar: failed 0 (ratio at most {WORST_RATIO}, points at least {WORST_POINTS:g}), "
        f"as good at least {SHARE_AS_GOOD}."
    )


def show_result(r: Result) -> tuple[str, ...]:
    compared = f"{r.points:+.1f} pts" if r.measured == "score" else f"{r.ratio:.3g}"
    best = "" if r.best is None or r.best.rate is None else f"{r.best.rate:.2g}"
    rate = "" if r.ours.rate is None else f"{r.ours.rate:.2g}"
    numbers = (f"{r.reference.value:.4g}", f"{r.ours.value:.4g}", compared, rate, best)
    return (r.hazard, r.family, r.half, *numbers, ", ".join(r.faults))


def show_family(item: tuple[str, list[Result]]) -> tuple[str, ...]:
    family, results = item
    numbers = headline(results)
    words = ["" if math.isnan(numbers[name]) else f"{numbers[name]:.3g}" for name in SHOWN]
    return (family, str(len(results)), str(numbers["failed"]), *words)


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows with their columns under one another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip()
