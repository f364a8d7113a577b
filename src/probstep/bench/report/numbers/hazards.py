"""What the records of benchmarks/hazards say: each row of a way beside a reference.

A record is a line of JSON of `python -m benchmarks.hazards`; its README says what the fields mean. A
row is a training: a hazard, or an ordinary one. It counts on the seeds that both sides have.
"""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probstep.bench.means import geometric_mean, mean
from probstep.bench.report.numbers.cells import FLOOR

WORST_RATIO, WORST_POINTS = 1.5, -2.0  # the bar, for every hazard
FAR = 100.0  # how far the last rate may be from the best of the grid
LARGEST = 100.0  # a ratio counts as at most this, and at least its inverse, in a mean
HAZARDS = {"tuning": 82, "kept": 82}  # rows of the table in benchmarks/hazards
RATES = 7  # of a grid: one that has fewer is not whole yet, and has no best

Record = Mapping[str, Any]
Way = tuple[str, str]  # how a row is trained, and the label of the rule; empty but for ours
PLAIN: Way = ("plain", "")
GRID: Way = ("grid", "")  # as a reference: the best of its rates
PRESENT: Way = ("ours", "0.14.0")
PEERS = {  # what they are called
    ("prodigy", ""): "Prodigy",
    ("dadapt", ""): "D-Adaptation",
    ("schedulefree", ""): "Schedule-Free",
    ("momo", ""): "MoMo",
    ("dog", ""): "DoG",
    ("gen", ""): "GeN",
}


@dataclass(frozen=True)
class Outcome:
    """One row under one way, beside a reference, over all seeds that both have.

    Losses are geometric means, scores means.

    Args:
        name: The row.
        family: Its class.
        half: "tuning" or "kept".
        base: The optimizer.
        is_score: Whether it is judged by a score in points, not by a loss.
        ours: Our loss, floored, or our score.
        reference: That of the reference.
        rate: Our last rate; None if it is unknown.
        best: The loss or the score of the best of the grid; None if the grid is not on record.
        best_rate: Its rate.
        is_at_edge: Whether no lower or no higher rate was tried.
        is_converged: Whether our loss has reached the floor.
        test_points: Our test score minus the reference's, where it is told beside a loss.
        status: "done", or what happened to our run.
        runs: Our runs, a seed each.
        references: Those of the reference.
    """

    name: str
    family: str
    half: str
    base: str
    is_score: bool
    ours: float
    reference: float
    rate: float | None
    best: float | None
    best_rate: float | None
    is_at_edge: bool
    is_converged: bool
    test_points: float | None
    status: str
    runs: Sequence[Record] = field(repr=False)
    references: Sequence[Record] = field(repr=False)

    @property
    def ratio(self) -> float:
        """Our loss over the reference's; infinite if only ours has no end, 1 if neither has."""
        if math.isinf(self.ours):
            return 1.0 if math.isinf(self.reference) else math.inf
        return self.ours / self.reference if self.reference else 1.0

    @property
    def points(self) -> float:
        """Our score minus the reference's."""
        return self.ours - self.reference

    @property
    def badness(self) -> float:
        """The log of the ratio; for scores so that both bars of a hazard coincide."""
        if self.is_score:
            return self.points / WORST_POINTS * math.log(WORST_RATIO)
        return math.log(min(max(self.ratio, 1e-9), 1e9))

    @property
    def is_too_bad(self) -> bool:
        """Whether a hazard ends worse than the bar allows, or does not end."""
        is_bad = self.points < WORST_POINTS if self.is_score else self.ratio > WORST_RATIO
        return is_bad or self.status != "done"

    @property
    def is_rate_far(self) -> bool:
        """Whether the last rate is far from the best of the grid, and the loss not at its floor."""
        if not self.best_rate or self.rate is None or self.is_converged:
            return False
        return not 1 / FAR <= self.rate / self.best_rate <= FAR

    @property
    def is_failed(self) -> bool:
        """Whether a hazard misses the bar."""
        return self.is_too_bad or self.is_rate_far

    @property
    def is_as_good(self) -> bool:
        """Whether ours is at least as good as the reference."""
        return self.points >= 0 if self.is_score else self.ratio <= 1 + 1e-9


def read_records(path: Path) -> list[Record]:
    """The records of a packed file; none if it is not there."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def floored(record: Record) -> float:
    """What a run is judged by: its score, or its loss, at least 1 % of its first one.

    >>> floored({"measured": "loss", "final": 1e-9, "first": 2.0})
    0.02
    """
    final, is_score = record["final"], record["measured"] == "score"
    if final is None:
        return 0.0 if is_score else math.inf
    return float(final) if is_score else max(float(final), FLOOR * abs(record["first"]))


def compare(records: Iterable[Record], way: Way, against: Way = PLAIN) -> list[Outcome]:
    """Every row that has runs of this way and of the reference, over shared seeds; worst first."""
    rows: dict[str, dict[Way, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        rows[record["hazard"]][record["way"], record["label"]].append(record)
    found = [_compare(ways, way, against) for ways in rows.values()]
    return sorted((o for o in found if o is not None), key=lambda o: (-o.badness, o.name))


def _compare(ways: Mapping[Way, list[Record]], way: Way, against: Way) -> Outcome | None:
    grid = _whole_grid(ways.get(GRID, []))
    ours, theirs = ways.get(way, []), grid if against == GRID else ways.get(against, [])
    seeds = {r["seed"] for r in ours} & {r["seed"] for r in theirs}
    if not seeds:
        return None
    shared = [r for r in grid if r["seed"] in seeds]
    best = _best_of(shared)
    references = best if against == GRID else _of_seeds(theirs, seeds)
    return _outcome(_of_seeds(ours, seeds), references, best, {r["rate"] for r in shared})


def _of_seeds(records: Iterable[Record], seeds: set[int]) -> list[Record]:
    return sorted((r for r in records if r["seed"] in seeds), key=lambda r: int(r["seed"]))


def _whole_grid(records: Sequence[Record]) -> list[Record]:
    """The runs of the seeds that have all rates."""
    counts: dict[int, int] = defaultdict(int)
    for record in records:
        counts[record["seed"]] += 1
    return [record for record in records if counts[record["seed"]] == RATES]


def _best_of(grid: Sequence[Record]) -> list[Record]:
    """The runs at the rate that ended best over the seeds."""
    by_rate: dict[float, list[Record]] = defaultdict(list)
    for record in grid:
        by_rate[record["rate"]].append(record)
    sign = -1 if grid and grid[0]["measured"] == "score" else 1
    found = min(by_rate.values(), key=lambda runs: sign * _value(runs), default=[])
    return _of_seeds(found, {r["seed"] for r in found})


def _outcome(
    ours: Sequence[Record], references: Sequence[Record], best: Sequence[Record], rates: set[float]
) -> Outcome:
    first, is_score = ours[0], ours[0]["measured"] == "score"
    last = [r["last_rate"] for r in ours if r.get("last_rate")]
    best_rate = best[0]["rate"] if best else None
    return Outcome(
        name=first["hazard"],
        family=first["family"],
        half=first["half"],
        base=first["base"],
        is_score=is_score,
        ours=_value(ours),
        reference=_value(references),
        rate=geometric_mean(last) if last else None,
        best=_value(best) if best else None,
        best_rate=best_rate,
        is_at_edge=best_rate is not None and best_rate in (min(rates), max(rates)),
        is_converged=not is_score and all(_is_at_floor(r) for r in ours),
        test_points=_test_points(ours, references),
        status=next((r["status"] for r in ours if r["status"] != "done"), "done"),
        runs=ours,
        references=references,
    )


def _value(runs: Sequence[Record]) -> float:
    values = [floored(r) for r in runs]
    return mean(values) if runs[0]["measured"] == "score" else _mean_loss(values)


def _mean_loss(losses: Sequence[float]) -> float:
    """The geometric mean; infinite if one is, 0 if one is."""
    return max(losses) if math.inf in losses else min(losses) and geometric_mean(losses)


def _is_at_floor(record: Record) -> bool:
    return record["final"] is not None and floored(record) > record["final"]


def _test_points(ours: Sequence[Record], references: Sequence[Record]) -> float | None:
    if any(run.get("score") is None for run in (*ours, *references)):
        return None
    return mean([r["score"] for r in ours]) - mean([r["score"] for r in references])


def mean_ratio(outcomes: Sequence[Outcome]) -> float | None:
    """The geometric mean of the ratios of those that are judged by a loss; None without any."""
    ratios = [min(max(o.ratio, 1 / LARGEST), LARGEST) for o in outcomes if not o.is_score]
    return geometric_mean(ratios) if ratios else None


def mean_points(outcomes: Sequence[Outcome]) -> float | None:
    """The mean difference of those that are judged by a score; None without any."""
    points = [o.points for o in outcomes if o.is_score]
    return mean(points) if points else None


def spell_compared(one: Outcome) -> str:
    """A row's ratio, or its points."""
    return f"{one.points:+.1f} points" if one.is_score else f"{one.ratio:.3g}"


def spell_seeds(outcomes: Iterable[Outcome]) -> str:
    """How many seeds the rows have.

    >>> spell_seeds([])
    ''
    """
    counts = {len(one.runs) for one in outcomes}
    return " to ".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""
