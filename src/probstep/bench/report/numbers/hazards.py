"""What the records of hazards say: each row of a way beside the plain optimizer.

A record is a line of JSON of `python -m benchmarks.hazards`; its README says what the fields mean.
"""

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probstep.bench.means import geometric_mean, mean
from probstep.bench.report.numbers.cells import FLOOR

WORST_RATIO, WORST_POINTS = 1.5, -2.0  # the bar, for every row
LARGEST = 100.0  # a ratio counts as at most this, and at least its inverse, in a mean

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """One row of the table of hazards, ours beside the plain optimizer, over all seeds.

    Losses are geometric means, scores means.

    Args:
        name: The hazard.
        family: Its class.
        half: "tuning" or "kept".
        is_score: Whether it is judged by a score in points, not by a loss.
        ours: Our loss, floored, or our score.
        plain: That of the plain optimizer.
        rate: Our last rate; None if it is unknown.
        status: "done", or what happened to our run.
    """

    name: str
    family: str
    half: str
    is_score: bool
    ours: float
    plain: float
    rate: float | None
    status: str

    @property
    def ratio(self) -> float:
        """Our loss over that of plain; infinite if only ours has no end, 1 if neither has."""
        if math.isinf(self.ours):
            return 1.0 if math.isinf(self.plain) else math.inf
        return self.ours / self.plain if self.plain else 1.0

    @property
    def points(self) -> float:
        """Our score minus that of plain."""
        return self.ours - self.plain

    @property
    def is_failed(self) -> bool:
        """Whether it misses the bar."""
        is_bad = self.points < WORST_POINTS if self.is_score else self.ratio > WORST_RATIO
        return is_bad or self.status != "done"

    @property
    def is_as_good(self) -> bool:
        """Whether ours is at least as good as plain."""
        return self.points >= 0 if self.is_score else self.ratio <= 1 + 1e-9


def read_records(path: Path) -> list[Record]:
    """The records of a packed file."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return [record for record in map(json.loads, lines) if record["suite"] == "hazards"]


def floored(record: Record) -> float:
    """What a run is judged by: its score, or its loss, at least 1 % of its first one.

    >>> floored({"measured": "loss", "final": 1e-9, "first": 2.0})
    0.02
    """
    final, is_score = record["final"], record["measured"] == "score"
    if final is None:
        return 0.0 if is_score else math.inf
    return float(final) if is_score else max(float(final), FLOOR * abs(record["first"]))


def compare_with_plain(records: Iterable[Record], label: str, way: str = "ours") -> list[Outcome]:
    """Every row that has runs of this way and label, and of plain, over shared seeds; worst first."""
    pairs: dict[str, list[tuple[Record, Record]]] = defaultdict(list)
    runs = {(r["way"], r["label"], r["hazard"], r["seed"]): r for r in records}
    for (its_way, its_label, hazard, seed), ours in sorted(runs.items()):
        plain = runs.get(("plain", "", hazard, seed))
        if (its_way, its_label) == (way, label) and plain is not None:
            pairs[hazard].append((ours, plain))
    return sorted(map(_outcome, pairs.values()), key=_badness, reverse=True)


def _outcome(pairs: Sequence[tuple[Record, Record]]) -> Outcome:
    ours, plain = zip(*pairs, strict=True)
    first, is_score = ours[0], ours[0]["measured"] == "score"
    average = mean if is_score else _mean_loss
    rates = [r["last_rate"] for r in ours if r.get("last_rate")]
    return Outcome(
        name=first["hazard"],
        family=first["family"],
        half=first["half"],
        is_score=is_score,
        ours=average([floored(r) for r in ours]),
        plain=average([floored(r) for r in plain]),
        rate=geometric_mean(rates) if rates else None,
        status=next((r["status"] for r in ours if r["status"] != "done"), "done"),
    )


def _mean_loss(losses: Sequence[float]) -> float:
    """The geometric mean; infinite if one is, 0 if one is."""
    return max(losses) if math.inf in losses else min(losses) and geometric_mean(losses)


def _badness(one: Outcome) -> float:
    """The log of the ratio; for scores so that both bars coincide."""
    if one.is_score:
        return one.points / WORST_POINTS * math.log(WORST_RATIO)
    return math.log(min(max(one.ratio, 1e-9), 1e9))


def mean_ratio(outcomes: Sequence[Outcome]) -> float | None:
    """The geometric mean of the ratios of those that are judged by a loss; None without any."""
    ratios = [min(max(o.ratio, 1 / LARGEST), LARGEST) for o in outcomes if not o.is_score]
    return geometric_mean(ratios) if ratios else None


def mean_points(outcomes: Sequence[Outcome]) -> float | None:
    """The mean difference of those that are judged by a score; None without any."""
    points = [o.points for o in outcomes if o.is_score]
    return mean(points) if points else None
