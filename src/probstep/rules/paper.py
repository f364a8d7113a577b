"""PaperRule: the paper's rule for the scale, Algorithm 1, lines 18 to 22. Scalars in, a factor out.

Symbols of docs/algorithm.md: f = loss, f+ = loss_after, phi = slope, s = step_factor, r = ratio.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..plain import restored
from ..theory.inference import decrease_ratio
from .protocol import Decision, Observation, Proposal, Setting

FARTHEST = 100.0  # the largest factor, up or down, that one probe may ask for with solve=True


@dataclass
class PaperState:
    """What Algorithm 1 remembers beside the scale: nothing."""


@dataclass(frozen=True)
class PaperRule:
    """Algorithm 1: up by 1.2 when the loss fell by more than predicted, down by 1/2 when by less.

    The scale stays where Algorithm 1 is not defined: where the predicted decrease phi/2 is not above
    the rounding of the loss (the literal rule halves for ever there), or the loss itself is not finite.
    A loss after the step that is not finite counts as "too large a step".

    Args:
        up: Factor after a ratio above `above`.
        down: Factor after a ratio below `below`.
        above: Ratio above which the rate counts as too small.
        below: Ratio below which the rate counts as too large.
        exact_noise: Use 4R in the step factor, the exact posterior mean, instead of the printed R.
        ratio_of_step_taken: Compare with s(2-s)phi/2, the prediction for the step really taken when a
            bound or noise stretches it by s, instead of phi/2.
        momentum_as_gradient: Take the slope along the momentum, the paper's other reading of momentum
            (Section 2.3). The base optimizer must keep one.
        solve: Choose the rate that would have made the ratio 1, which the paper found sensitive to
            outliers (Section 3.2). The factor is kept between 1/100 and 100; a ratio of 2 or more says
            that no finite rate has the ratio 1, and then the factor is `up`.

    >>> PaperRule().decide(Observation(Proposal(loss=2.0, slope=1.0), loss_after=1.1))
    Decision(factor=1.2, ratio=1.7999999999999998, word='up', again=None, limit='')
    """

    up: float = 1.2
    down: float = 0.5
    above: float = 4 / 3
    below: float = 3 / 4
    exact_noise: bool = False
    ratio_of_step_taken: bool = False
    momentum_as_gradient: bool = False
    solve: bool = False

    chooses_lengths: ClassVar[bool] = False
    only_watches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 1 <= self.up < math.inf:
            raise ValueError(f"PaperRule(up=) must be at least 1 and finite, not {self.up!r}.")
        if not 0 < self.down <= 1:
            raise ValueError(
                f"PaperRule(down=) must lie above 0 and at most at 1, not {self.down!r}."
            )
        if not self.below <= self.above:
            raise ValueError(
                f"PaperRule(below={self.below!r}, above={self.above!r}): below must not exceed above."
            )

    def init(self) -> PaperState:
        """Return the state before the first step, which is empty."""
        return PaperState()

    def restore(self, plain: Mapping[str, Any]) -> PaperState:
        """Return the state that a checkpoint carries; raise ValueError for another rule's."""
        return restored(PaperState, plain)

    def is_due(self, state: PaperState) -> bool:  # noqa: ARG002
        """Say that the next step is probed: Algorithm 1 probes every one."""
        return True

    def is_searching(self, state: PaperState) -> bool:  # noqa: ARG002
        """Say that there is no search: Algorithm 1 begins at the user's rate."""
        return False

    def search_again(self, state: PaperState) -> None:
        """Do nothing: there is no search."""

    def first_length(self, proposal: Proposal) -> float:  # noqa: ARG002
        """Return the whole step: Algorithm 1 probes no other length."""
        return 1.0

    def judge(self, state: PaperState, seen: Observation) -> Decision:  # noqa: ARG002
        """Return what becomes of the scale; the step is always kept."""
        return self.decide(seen)

    def notice(self, state: PaperState, loss: float, scale: float, setting: Setting) -> float:  # noqa: ARG002
        """Return 1: Algorithm 1 learns from probes alone."""
        return 1.0

    def part_to_take(self, state: PaperState, loss: float, *, is_probed: bool) -> float:  # noqa: ARG002
        """Return 1: Algorithm 1 takes whole steps."""
        return 1.0

    def is_new_level(self, state: PaperState) -> bool:  # noqa: ARG002
        """Say no: Algorithm 1 is told no losses."""
        return False

    def complaint(self, state: PaperState) -> str:
        """Say nothing: the rule judges single steps."""
        del state
        return ""

    def metrics(self, state: PaperState) -> dict[str, float]:  # noqa: ARG002
        """Return nothing: the state is empty."""
        return {}

    def decide(self, seen: Observation) -> Decision:
        """Return what becomes of the scale (Algorithm 1, lines 18 to 22)."""
        step, loss_after = seen.step, seen.loss_after
        taken = step.step_factor if self.ratio_of_step_taken else 1.0
        predicted = taken * (2 - taken) * step.slope / 2
        if math.isfinite(step.loss) and not math.isfinite(loss_after):
            return Decision(self.down, -math.inf, "down")
        # Not `predicted <= resolution`: a NaN must end here too.
        if not (math.isfinite(step.loss) and step.resolution < predicted < math.inf):
            return Decision(1.0, math.nan, "uninformative")
        ratio = decrease_ratio(step.loss, loss_after, step.slope, taken)
        return self._solve(ratio) if self.solve else self._vote(ratio)

    def _vote(self, ratio: float) -> Decision:
        if ratio > self.above:
            return Decision(self.up, ratio, "up")
        if ratio < self.below:
            return Decision(self.down, ratio, "down")
        return Decision(1.0, ratio, "keep")

    def _solve(self, ratio: float) -> Decision:
        # On a quadratic 2 - r is proportional to the rate, and r = 1 asks for 2 - r = 1.
        factor = min(max(1 / (2 - ratio), 1 / FARTHEST), FARTHEST) if ratio < 2 else self.up
        word = "up" if factor > 1 else "down" if factor < 1 else "keep"
        return Decision(factor, ratio, word)
