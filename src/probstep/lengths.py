"""One step tried at several lengths until a rule keeps one. No model, no optimizer, no ranks.

Not in the paper, whose Algorithm 1 keeps every step: the first step is searched for the order of
magnitude of the rate, and a later one that proves bad is shortened.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from .displacement import Step
from .rules import Decision, Observation

FAITHFUL = 0.95  # of its slope a step must keep in numbers that the parameters can hold
UNPAIRED = Decision(1.0, math.nan, "unpaired")


@dataclass(frozen=True)
class Trial:
    """A step whose length is open; 1 is that of the optimizer's own step, which has been taken.

    Args:
        step: That step.
        whole: What is known of it; slope, length and rate are those of the whole step.
        measure: Returns the slope of the step as it is now, in numbers that the parameters can hold.
        probe: Returns the loss after the step as it is now, and whether that is unpaired (1) or not (0).
        judge: Returns what the rule makes of an observation.
    """

    step: Step
    whole: Observation
    measure: Callable[[], float]
    probe: Callable[[], list[float]]
    judge: Callable[[Observation], Decision]

    def shorten(self) -> tuple[Observation, Decision]:
        """Probe the step, and as long as it is bad a shorter one."""
        return self._probe_from(1.0)

    def search(self, first: float, blind: float) -> tuple[Observation, Decision]:
        """Probe lengths from the first on, both ways; take the blind one if a probe is unpaired."""
        free = replace(self, step=self.step.keeping_direction())
        seen, decision = free._probe_from(free._first_faithful(first))
        if decision is UNPAIRED:
            free.step.resize(blind, was=1.0)
        return seen, decision

    def _first_faithful(self, length: float) -> float:
        """Lengthen the step tenfold until the rounding of the parameters leaves it its slope."""
        self.step.resize(length, was=1.0)
        while length < 1.0 and self.measure() < FAITHFUL * self.whole.slope * length:
            length *= 10.0
            self.step.resize(length, was=1.0)
        return length

    def _probe_from(self, length: float) -> tuple[Observation, Decision]:
        for tries in itertools.count(1):
            loss_after, is_unpaired = self.probe()
            seen = self._at(length, loss_after, tries)
            decision = UNPAIRED if is_unpaired else self.judge(seen)
            if decision.again is None:
                break
            length, was = length * decision.again, length
            self.step.resize(length, was)
        if decision is not UNPAIRED and _is_ruinous(seen):  # at any length
            self.step.resize(0.0, was=length)
        return seen, decision

    def _at(self, length: float, loss_after: float, tries: int) -> Observation:
        whole = self.whole
        return replace(
            whole,
            slope=whole.slope * length,
            loss_after=loss_after,
            length=whole.length * length,
            rate=whole.rate * length,
            tries=tries,
        )


def _is_ruinous(seen: Observation) -> bool:
    return math.isfinite(seen.loss) and not math.isfinite(seen.loss_after)
