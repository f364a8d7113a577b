"""What each part of the robust rule is for: the rule without it, from benchmarks/ablations.py.

Hazards stand beside the plain optimizer, as always, and beside the whole rule; ordinary trainings
beside the whole rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from probstep.bench.report.numbers.hazards import Outcome, Record, Way, compare, mean_ratio
from probstep.rules.robust.rule import PARTS

WHOLE: Way = ("ours", "whole")
ABLATED = "0.14.0"  # the version of which benchmarks/records/ablations.jsonl.gz is
VISIBLE = 1.01  # a mean ratio below it is no effect


@dataclass(frozen=True)
class Absence:
    """The rule without a part.

    Args:
        part: The part's name; empty for the whole rule.
        ordinary: The ordinary rows, beside the whole rule.
        hazards: The hazards beside plain, of the rows that the whole rule has, too.
        moved: The same hazards beside the whole rule.
        failed_anyway: The hazards that the whole rule fails.
    """

    part: str
    ordinary: Sequence[Outcome]
    hazards: Sequence[Outcome]
    moved: Sequence[Outcome]
    failed_anyway: frozenset[str]

    @property
    def failed(self) -> set[str]:
        """The hazards that fail."""
        return {one.name for one in self.hazards if one.is_too_bad}

    @property
    def newly_failed(self) -> list[str]:
        """Those that the whole rule does not fail."""
        return sorted(self.failed - self.failed_anyway)

    @property
    def saved(self) -> list[str]:
        """Those that only the whole rule fails."""
        named = {one.name for one in self.hazards}
        return sorted((self.failed_anyway & named) - self.failed)

    @property
    def is_on_record(self) -> bool:
        """Whether it has been run on both kinds of trainings."""
        return bool(self.ordinary and self.hazards)

    @property
    def is_missed(self) -> bool:
        """Whether something ends worse without the part."""
        means = (mean_ratio(self.ordinary), mean_ratio(self.moved))
        return bool(self.newly_failed) or any(mean is not None and mean > VISIBLE for mean in means)


def read_parts(ablations: Sequence[Record], hazards: Sequence[Record]) -> list[Absence]:
    """The whole rule and the rule without each of its present parts; nothing if none has been run.

    Args:
        ablations: The records of benchmarks/ablations.py.
        hazards: Those of the hazards, for the plain optimizer.
    """
    plain = [r for r in hazards if r["way"] == "plain"]
    unusual = [r for r in ablations if r["suite"] == "hazards"]
    ordinary = [r for r in ablations if r["suite"] == "ordinary"]
    whole = compare([*plain, *unusual], WHOLE)
    failed = frozenset(one.name for one in whole if one.is_too_bad)
    names = {one.name for one in whole}
    found = []
    for part in ("", *PARTS):
        way = without(part)
        beside_plain = compare([*plain, *unusual], way)
        found.append(
            Absence(
                part,
                compare(ordinary, way, WHOLE),
                [one for one in beside_plain if one.name in names],
                compare(unusual, way, WHOLE),
                failed,
            )
        )
    return found if ablations else []


def without(part: str) -> Way:
    """How a rule without a part is labelled; with nothing left out it is the whole one.

    >>> without("surprise")
    ('ours', 'without surprise')
    """
    return ("ours", f"without {part}") if part else WHOLE
