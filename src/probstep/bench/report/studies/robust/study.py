"""What the page judges the default rule by: the records, the rows, and the bars on them.

A row is a training with an optimizer: a problem for 1,000 steps under a schedule, a short one, or one
of some batch size.
"""

import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from probstep.bench.report.numbers.bars import (
    HALVES,
    Bar,
    Finding,
    is_within,
    judge,
    judge_hazards,
    judge_peers,
    mean_test_points,
    ratio_of_95,
    side_by_side,
    worst_ratio,
)
from probstep.bench.report.numbers.effort import EARLY, early_passes, late_passes
from probstep.bench.report.numbers.hazards import (
    GRID,
    HAZARDS,
    PEERS,
    PRESENT,
    Outcome,
    Record,
    compare,
    mean_ratio,
    read_records,
)
from probstep.bench.report.numbers.parts import Absence, read_parts

RECORDS = ("hazards.jsonl.gz", "epoch_time.jsonl")
MAY_LACK = ("ordinary.jsonl.gz", "ablations.jsonl.gz")
SCHEDULES = {  # as the records spell them, and as the page does
    "constant": "constant rate",
    "linear": "linear decay",
    "warm-up-cosine": "warm-up and cosine",
}
OPTIMIZERS = ("momentum", "adam", "adamw")
KINDS = {"momentum": ("momentum",), "Adam and AdamW": ("adam", "adamw")}  # of optimizers
SHORT = (100, 200)  # steps
SIZES = (1, 2, 4, 16, 128)  # of batches
ROWS = {"tuning": 30, "kept": 15}  # of a schedule, and of a short length
SIZE_ROWS = {"tuning": 2}  # of a batch size
WORST = 1.3  # the largest ratio of an ordinary training, and of a batch size
SEEDS = 3  # that the bars ask for, on ordinary trainings


@dataclass(frozen=True)
class Study:
    """The records, and what follows from them."""

    ordinary: Sequence[Record]
    hazards: Sequence[Record]
    absences: Sequence[Absence]
    times: Sequence[Mapping[str, Any]]

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """The present rule beside the best fixed rate."""
        return compare(self.ordinary, PRESENT, GRID)

    def of(self, family: str) -> list[Outcome]:
        """Those of a schedule, a length or a batch size."""
        return [one for one in self.outcomes if one.family == family]

    @property
    def whole(self) -> list[Outcome]:
        """Those of 1,000 steps."""
        return [one for schedule in SCHEDULES for one in self.of(f"ordinary, {schedule}")]

    @cached_property
    def bars(self) -> dict[str, list[Bar]]:
        """All bars, by section."""
        return {
            "ordinary": _judge_ordinary(self),
            "short": _judge_short(self),
            "sizes": _judge_sizes(self),
            "hazards": judge_hazards(self.hazards, HAZARDS),
            "peers": judge_peers(
                self._of_1000_steps,
                GRID,
                {half: count * len(SCHEDULES) for half, count in ROWS.items()},
            ),
            "cost": _judge_cost([*self.ordinary, *self.hazards]),
        }

    @property
    def _of_1000_steps(self) -> list[Record]:
        return [r for r in self.ordinary if r["family"].startswith("ordinary")]

    def beside_peers(self) -> Iterator[tuple[str, str, int, float, float]]:
        """Peer, kind of optimizer, rows, our mean ratio to the best fixed rate, and theirs."""
        for peer, name in PEERS.items():
            sides = side_by_side(self._of_1000_steps, peer, GRID)
            for kind, bases in KINDS.items():
                ours, theirs = ([one for one in side if one.base in bases] for side in sides)
                mine, its = mean_ratio(ours), mean_ratio(theirs)
                if mine is not None and its is not None:
                    yield name, kind, len(ours), mine, its


def read_study(records: Path) -> Study:
    """The study in a folder of records."""
    ordinary, ablations = (read_records(records / name) for name in MAY_LACK)
    hazards = read_records(records / RECORDS[0])
    lines = (records / RECORDS[1]).read_text(encoding="utf-8").splitlines()
    return Study(ordinary, hazards, read_parts(ablations, hazards), [*map(json.loads, lines)])


def _judge_ordinary(study: Study) -> list[Bar]:
    bars = []
    for schedule, name in SCHEDULES.items():
        part = study.of(f"ordinary, {schedule}")
        bars += [
            judge(f"{name}: geometric mean", "at most 1.00", part, mean_ratio, ROWS),
            judge(f"{name}: 95th percentile", "at most 1.15", part, ratio_of_95, ROWS),
            judge(f"{name}: worst", f"at most {WORST}", part, worst_ratio, ROWS),
        ]
    rows = {half: count * len(SCHEDULES) for half, count in ROWS.items()}
    what = "test accuracy beside the best fixed rate's, mean of points"
    return [*bars, judge(what, "at least -0.5", study.whole, mean_test_points, rows)]


def _judge_short(study: Study) -> list[Bar]:
    bars = []
    for steps in SHORT:
        part = study.of(f"short, {steps} steps")
        bars += [
            judge(f"{steps} steps: geometric mean", "at most 1.05", part, mean_ratio, ROWS),
            judge(f"{steps} steps: worst", "at most 1.25", part, worst_ratio, ROWS),
        ]
    return bars


def _judge_sizes(study: Study) -> list[Bar]:
    return [
        judge(
            f"batch {size}", f"at most {WORST}", study.of(f"batch {size}"), worst_ratio, SIZE_ROWS
        )
        for size in SIZES
    ]


def _judge_cost(records: Sequence[Record]) -> list[Bar]:
    ours = [r for r in records if (r["way"], r["label"]) == PRESENT]
    return [
        _judge_passes(f"first {EARLY:,} steps: largest", "at most 0.15", ours, early_passes),
        _judge_passes("after them: largest", "at most 0.04", ours, late_passes),
    ]


def _judge_passes(
    what: str, limit: str, runs: Sequence[Record], measure: Callable[[Record], float | None]
) -> Bar:
    findings = {}
    for half in HALVES:
        found = [measure(run) for run in runs if run["half"] == half]
        known = [value for value in found if value is not None]
        findings[half] = Finding("not on record", None)
        if known:
            text = f"{max(known):.3f}, mean {statistics.fmean(known):.3f} ({len(known)} runs)"
            findings[half] = Finding(text, is_within(max(known), limit))
    return Bar(what, limit, findings)
