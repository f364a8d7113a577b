"""RobustRule: the parts composed. `notice` is told of every step, `judge` of every probe."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..protocol import Decision, Observation, Proposal, Setting
from . import alarm, belief, bound, search
from .state import RobustState, restore

DOWN = 0.5  # the smallest factor for the scale, per step and per probe
LEAST_SCALE = 1e-200  # a scale below it is not lowered between probes: it must not become 0
REJECTED = (
    2.0  # a step is shortened if the loss rose by twice what it is usually predicted to change
)
SHORTER = (0.1, 0.5)  # the smallest and the largest factor by which it is shortened
TRIES = 20  # forward passes on one step, after which it is kept as it is

# Parts that can be left out, to measure what they are for (benchmarks/ablations.py).
PARTS = {
    "progress": "the bound by what the next e-fold of time may gain",
    "loss_share": "the bound by a share of the loss",
    "curvature": "the aim at a bend: without it the bounds alone limit the scale",
    "shortening": "a step that raises the loss is shortened (without it, only an infinite one)",
    "restraint": "a step that went too far does not raise the scale",
    "surprise": "a high loss sounds the alarm (without it, only an infinite one)",
    "shares": "cosine and curvature are averaged over more probes than the slope",
    "floors": "the size of the gradients is averaged over fewer probes than the slope",
}


@dataclass(frozen=True)
class RobustRule:
    """Find, hold and defend a good rate: a filter on the logarithm of the scale.

    The first batch is searched for the order of magnitude, from below, so that nothing depends on the
    initial rate. Later a step is probed when the scale has become too uncertain, and shortened when
    the probe shows that it was bad. Between probes the losses of the steps bound the scale.

    Args:
        target: 2 - r*, the curvature over slope that is aimed at, and the largest share of the loss
            that a step may be predicted to gain. Smaller is more cautious; 1 aims at the minimum along
            the step, 2 at no gain.
        up: Largest factor per probe. Larger is faster after a plateau and more dangerous on leaving it.
        doubt: The variance of log scale at which a probe is due. Smaller means more probes.
        budget: The probes allowed: so many at once, and so many per step.
        without: Names of parts to leave out, for ablations; `rule.PARTS` says what each one does.

    >>> rule = RobustRule()
    >>> rule.is_due(rule.init())
    True
    """

    target: float = 4 / 3
    up: float = 1.2
    doubt: float = 0.09
    budget: tuple[float, float] = (40.0, 0.04)
    without: frozenset[str] = frozenset()

    exact_noise: ClassVar[bool] = False
    momentum_as_gradient: ClassVar[bool] = False
    chooses_lengths: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.target < 2:
            raise ValueError(f"RobustRule(target=) must lie between 0 and 2, not {self.target!r}.")
        if not 1 < self.up < math.inf:
            raise ValueError(f"RobustRule(up=) must be above 1 and finite, not {self.up!r}.")
        if not 0 < self.doubt < 1:
            raise ValueError(f"RobustRule(doubt=) must lie between 0 and 1, not {self.doubt!r}.")
        if len(self.budget) != 2 or not min(self.budget) >= 0:
            raise ValueError(
                f"RobustRule(budget=) holds two numbers of at least 0, not {self.budget!r}."
            )
        if not set(self.without) <= PARTS.keys():
            raise ValueError(
                f"RobustRule(without=) holds names of parts, not {self.without!r}. "
                f"The parts are: {', '.join(PARTS)}."
            )

    def init(self) -> RobustState:
        """Return the state before the first step."""
        return RobustState()

    def restore(self, plain: Mapping[str, Any]) -> RobustState:
        """Return the state that a checkpoint carries, also one of 0.1.0; raise ValueError for others."""
        return restore(plain)

    def is_due(self, state: RobustState) -> bool:
        """Say whether the next step is probed: the scale is uncertain, and the budget allows it."""
        if not state.search.is_done:
            return True
        at_once, per_step = self.budget
        is_uncertain = state.belief.variance >= self.doubt
        return is_uncertain and state.forwards < at_once + per_step * state.t

    def is_searching(self, state: RobustState) -> bool:
        """Say whether the order of magnitude is still to be found."""
        return not state.search.is_done

    def search_again(self, state: RobustState) -> None:
        """Forget everything that is measured in units of the rate; the losses stay known."""
        state.forwards = 0  # a new search, a new budget
        state.search, state.belief = search.Search(), belief.Belief()
        state.bound.peak = 0.0
        state.alarm.scale_before, state.alarm.ceiling = 0.0, math.inf

    def metrics(self, state: RobustState) -> dict[str, float]:
        """Return the standard deviation of log scale."""
        return {"log_scale_deviation": math.sqrt(state.belief.variance)}

    # Every step, told one step later

    def notice(self, state: RobustState, loss: float, scale: float, setting: Setting) -> float:
        """Learn from the loss of a step; return a factor of at most 1 for the scale."""
        state.t = t = state.t + 1
        state.bound.peak = max(state.bound.peak, setting.multiplier)
        is_surprise = self._average_loss(state, loss)
        belief.drift(state.belief, t)
        factor = 1.0
        if is_surprise:
            alarm.sound(state.alarm, scale, t)
            belief.doubt(state.belief)
            factor = alarm.HALF
        if scale < LEAST_SCALE:
            return 1.0
        allowed = self._bound(state, setting) / (scale * factor)
        return factor * bound.slowed(allowed, t, DOWN)

    def _average_loss(self, state: RobustState, loss: float) -> bool:
        """Average a loss; say whether it was surprisingly high."""
        if not abs(loss) < alarm.HUGE:
            return True
        count = state.t - 1  # of losses, this one included
        usual = loss
        if "surprise" not in self.without:
            # One outlier must pass neither for a rise of the loss nor for noise.
            usual = alarm.unsurprising(state.alarm, loss, count)
        alarm.average(state.alarm, usual, count)
        bound.average(state.bound, usual, count)
        return usual < loss

    def _bound(self, state: RobustState, setting: Setting) -> float:
        """Return the largest scale whose steps promise no more than there is to gain."""
        loss = state.bound.recent
        slope = belief.slope_at(state.belief, loss)
        if state.t <= bound.KNOWN_AFTER or not slope > 0:
            return math.inf
        allowed = math.inf
        if "progress" not in self.without:
            allowed = bound.progress(state.bound, state.t, setting)
        if "loss_share" not in self.without and loss > 0:
            allowed = min(allowed, bound.loss_share(state.bound, self.target, setting))
        return bound.largest_scale(allowed, slope, setting)

    # A probed step

    def first_length(self, proposal: Proposal) -> float:
        """Return the share of a step at rate 1 with which the search begins: just visible."""
        return search.first_length(proposal)

    def judge(self, state: RobustState, seen: Observation) -> Decision:
        """Learn from a probe, and say what becomes of step and scale."""
        state.forwards += 1
        step = seen.step
        if not math.isfinite(step.loss) or not step.slope * step.slope > 0:
            return Decision(1.0, math.nan, "uninformative")
        ratio = 2 * (step.loss - seen.loss_after) / step.slope
        if not math.isfinite(seen.loss_after):
            ratio = -math.inf
        if not state.search.is_done:
            return self._search(state, seen, ratio)
        if seen.tries < TRIES and self._is_bad(state, seen):
            return self._shorten(state, seen, ratio)
        if not math.isfinite(seen.loss_after):
            return Decision(DOWN, ratio, "down")
        is_visible = abs(step.slope) > search.VISIBLE * step.resolution
        self._learn(state, seen, with_curvature=is_visible)
        aimed = belief.aimed_factor(state.belief, self.target, _scale(step))
        factor = min(max(aimed, DOWN), self._largest_factor(state, step, ratio))
        state.alarm.scale_before = 0.0
        return Decision(factor, ratio, _word(factor) if is_visible else "uninformative")

    def _search(self, state: RobustState, seen: Observation, ratio: float) -> Decision:
        bend = 2 - ratio
        again = search.next_length(state.search, seen, bend)
        if again is not None:
            return Decision(1.0, ratio, "search", again)
        if math.isfinite(bend) and bend > 0:
            self._learn(state, seen)
        factor = search.final_factor(bend, seen.step.setting.beta)
        return Decision(factor, ratio, "search")

    def _is_bad(self, state: RobustState, seen: Observation) -> bool:
        """Say whether the loss rose by far more than a step is usually predicted to change it."""
        step = seen.step
        # Momentum may point uphill: what the slope itself predicts is no reason to shorten a step.
        rise = seen.loss_after - step.loss - max(-step.slope, 0.0)
        if not math.isfinite(rise):
            return True
        usual = step.rate * state.belief.steepness
        is_high = rise > REJECTED * usual + search.VISIBLE * step.resolution
        return is_high and "shortening" not in self.without

    def _shorten(self, state: RobustState, seen: Observation, ratio: float) -> Decision:
        least, most = SHORTER
        again = least
        if math.isfinite(seen.loss_after):
            belief.doubt(state.belief)
            self._learn(state, seen)
            aimed = belief.aimed_factor(state.belief, self.target, _scale(seen.step))
            again = min(max(aimed, least), most)
        belief.doubt(state.belief)
        state.alarm.scale_before = 0.0  # the alarm was no false one
        return Decision(1.0, ratio, "reject", again)

    def _learn(self, state: RobustState, seen: Observation, *, with_curvature: bool = True) -> None:
        with_curvature = with_curvature and "curvature" not in self.without
        belief.learn(
            state.belief,
            belief.measure(seen, with_curvature=with_curvature),
            shares={} if "shares" in self.without else belief.SHARES,
            floors={} if "floors" in self.without else belief.FLOORS,
        )

    def _largest_factor(self, state: RobustState, step: Proposal, ratio: float) -> float:
        """Return the largest factor of a probe, after taking note of a false alarm."""
        went_too_far = step.slope > 0 and 2 - ratio > self.target
        if went_too_far and "restraint" not in self.without:
            return 1.0
        scale, up = _scale(step), self.up
        if alarm.is_false(state.alarm, step.loss):
            up = max(up, state.alarm.scale_before / scale)
            state.alarm.ceiling = math.inf
        up = min(up, max(alarm.largest_scale(state.alarm, state.t) / scale, 1.0))
        return min(up, max(self._bound(state, step.setting) / scale, 1.0))


def _scale(step: Proposal) -> float:
    return step.rate / step.setting.multiplier


def _word(factor: float) -> str:
    return "up" if factor > 1 else "down" if factor < 1 else "keep"
