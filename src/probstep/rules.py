"""The control rules: scalars in, a factor for the scale out. No tensors, no optimizer.

Symbols of docs/algorithm.md: f = loss, f+ = loss_after, phi = slope, s = step_factor, r = ratio.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from .inference import decrease_ratio


@dataclass(frozen=True)
class Observation:
    """What one probe saw: the losses before and after a step, and what the quadratic predicted.

    Args:
        loss: f, the loss before the step.
        slope: phi, the slope of the loss along the optimizer's own step.
        loss_after: f+, the loss of the same batch after the step.
        step_factor: s, how many times the optimizer's own step was taken (1 without bound and noise).
        resolution: The smallest change of the loss that its number format can show.
        gradient: |g|, the norm of the gradient.
        length: |v|, the length of the step.
        rate: The scale of the step, times the multiplier.
        multiplier: What the schedule makes of the rate: lr over the schedule's reference.
        beta: The optimizer's momentum.
        tries: How many lengths of this step have been probed, this one included.
    """

    loss: float
    slope: float
    loss_after: float
    step_factor: float = 1.0
    resolution: float = 0.0
    gradient: float = math.nan
    length: float = math.nan
    rate: float = 1.0
    multiplier: float = 1.0
    beta: float = 0.0
    tries: int = 1


class Decision(NamedTuple):
    """What becomes of scale and step.

    Args:
        factor: What the scale is multiplied with.
        ratio: The ratio that led to it.
        word: One word for the reader.
        again: If not None, the step is not good: change its length by this factor and probe again.
    """

    factor: float
    ratio: float
    word: str
    again: float | None = None


class Rule(Protocol):
    """Anything that turns an observation into a decision."""

    @property
    def exact_noise(self) -> bool:
        """Say whether R enters the step four times, as the posterior has it, or once, as printed."""
        ...

    @property
    def momentum_as_gradient(self) -> bool:
        """Say whether the slope is taken along the momentum instead of the batch gradient."""
        ...

    @property
    def watches(self) -> bool:
        """Say whether the rule wants the loss and gradient norm of every step, a step later."""
        ...

    def init(self) -> dict[str, Any]:
        """Return the rule's memory before the first step: plain numbers under fixed keys."""
        ...

    def is_due(self, memory: dict[str, Any]) -> bool:
        """Say whether the next step is probed, if no schedule says it."""
        ...

    def judge(self, memory: dict[str, Any], seen: Observation) -> tuple[dict[str, Any], Decision]:
        """Return the memory after a probe, and what becomes of step and scale."""
        ...


class WatchingRule(Rule, Protocol):
    """A rule that also watches unprobed steps, searches the first batch and takes bad steps back."""

    def watch(
        self, memory: dict[str, Any], loss: float, gradient: float, scale: float, seen: Observation
    ) -> tuple[dict[str, Any], float]:
        """Return the memory after a step, seen a step later, and a factor for the scale."""
        ...

    def is_searching(self, memory: dict[str, Any]) -> bool:
        """Say whether the order of magnitude is still to be found."""
        ...

    def first_length(self, loss: float, slope: float, resolution: float) -> float:
        """Return the share of a step at rate 1 with which the search begins."""
        ...


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
            outliers (Section 3.2); where no finite rate does, go up.

    >>> PaperRule().decide(Observation(loss=2.0, slope=1.0, loss_after=1.1))
    Decision(factor=1.2, ratio=1.7999999999999998, word='up', again=None)
    """

    up: float = 1.2
    down: float = 0.5
    above: float = 4 / 3
    below: float = 3 / 4
    exact_noise: bool = False
    ratio_of_step_taken: bool = False
    momentum_as_gradient: bool = False
    solve: bool = False

    watches: ClassVar[bool] = False

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

    def init(self) -> dict[str, Any]:
        """Return the memory before the first step: Algorithm 1 remembers the scale and nothing else."""
        return {}

    def is_due(self, memory: dict[str, Any]) -> bool:
        """Say whether the next step is probed, if no schedule says it: Algorithm 1 probes every one."""
        return not memory

    def judge(self, memory: dict[str, Any], seen: Observation) -> tuple[dict[str, Any], Decision]:
        """Return the memory after a probe, and what becomes of step and scale."""
        return memory, self.decide(seen)

    def decide(self, seen: Observation) -> Decision:
        """Return what becomes of the scale (Algorithm 1, lines 18 to 22)."""
        taken = seen.step_factor if self.ratio_of_step_taken else 1.0
        predicted = taken * (2 - taken) * seen.slope / 2
        if math.isfinite(seen.loss) and not math.isfinite(seen.loss_after):
            return Decision(self.down, -math.inf, "down")
        # Not `predicted <= resolution`: a NaN must end here too.
        if not (math.isfinite(seen.loss) and seen.resolution < predicted < math.inf):
            return Decision(1.0, math.nan, "uninformative")
        ratio = decrease_ratio(seen.loss, seen.loss_after, seen.slope, taken)
        return self._solve(ratio) if self.solve else self._vote(ratio)

    def _vote(self, ratio: float) -> Decision:
        if ratio > self.above:
            return Decision(self.up, ratio, "up")
        if ratio < self.below:
            return Decision(self.down, ratio, "down")
        return Decision(1.0, ratio, "keep")

    def _solve(self, ratio: float) -> Decision:
        # On a quadratic 2 - r is proportional to the rate, and r = 1 asks for 2 - r = 1.
        factor = 1 / (2 - ratio) if ratio < 2 else self.up
        word = "up" if factor > 1 else "down" if factor < 1 else "keep"
        return Decision(factor, ratio, word)
