"""WatchRule: say how far the user's rate is from the rate allowed, and move nothing.

A probe first looks at the step that was taken. Where that step bends too little or too much to judge,
other lengths of it are looked at and put back. The length whose bend is the target is what curvature
allows. Noise is asked only whether the present rate is too high: the losses of all steps tell whether
steps promise more than there is to gain, as they do for RobustRule. They cannot tell by how
much a rate is too low.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..plain import FINITE, refuse_outside, restored
from .gauge import Gauge, History, Reading
from .protocol import Decision, Observation, Proposal, Setting
from .robust import belief, bound, search
from .robust.rule import RobustRule
from .robust.state import RobustState, completed

CLEAR = (0.2, search.TOO_BENT)  # a bend between them says what rate bends by the target
TRIES = 8  # forward passes of one probe; the first may take as many as a search
PROBE_WEIGHT = 0.1  # of a probe in the averages
DEVIATIONS = 1.645  # on either side: nine of ten cases
# What the theory leaves open, as a standard deviation of the logarithm of the rate allowed, by what
# limits it. Measured: docs/watch.md. Where a rate is too high the losses hardly fall, so that the noise
# seems to leave less to gain than there is.
OPEN = {"curvature": 1.4, "noise": 1.7}
NOISE_AFTER = 50  # losses, before which nothing is stationary
UNKNOWN = 1.0  # the variance of one probe's logarithm before there are several


@dataclass
class Limit:
    """The rate that curvature allows, as probes have it: a mean of logarithms.

    Args:
        mean: Of the logarithm of the rate.
        spread: The variance of a single probe around it.
        probes: How many there were.
        last: What the last of them said.
    """

    mean: float = 0.0
    spread: float = UNKNOWN
    probes: int = 0
    last: float = 0.0

    def __post_init__(self) -> None:
        refuse_outside(
            self, mean=FINITE, spread=(0.0, FINITE[1]), probes=(0, math.inf), last=FINITE
        )

    def learn(self, log_rate: float) -> None:
        """Average what one probe says."""
        self.last, error = log_rate, log_rate - self.mean
        if self.probes:
            weight = max(1 / (self.probes + 1), PROBE_WEIGHT)
            self.spread = (1 - weight) * (self.spread + weight * error**2)
        self.probes += 1
        self.mean += max(1 / self.probes, PROBE_WEIGHT) * error

    @property
    def variance(self) -> float:
        """Of the mean."""
        return self.spread * max(1 / max(self.probes, 1), PROBE_WEIGHT / 2)


@dataclass
class WatchState:
    """What WatchRule remembers; its history is not part of a checkpoint.

    Args:
        robust: What RobustRule would remember: the losses, the slope, the budget.
        limit: What probes said of the curvature.
        factor: The last reading.
    """

    robust: RobustState = field(default_factory=RobustState)
    limit: Limit = field(default_factory=Limit)
    factor: float = 0.0

    def __post_init__(self) -> None:
        refuse_outside(self, factor=(0.0, math.inf))
        self.history = History()


@dataclass(frozen=True)
class WatchRule:
    """Observe only: the optimizer steps at its own rates, and `ProbStep.gauge` says what they are like.

    `watch(optimizer)` uses it. With a trainer it is given like any rule:
    `LearningRateAdaptation(rule=probstep.WatchRule())`.

    Args:
        robust: Its settings say what is aimed at (`target`) and how often to probe (`budget`, `doubt`).

    >>> rule = WatchRule()
    >>> rule.is_due(rule.init()), str(rule.gauge(rule.init(), Setting(), rate=0.1))[:16]
    (True, 'Nothing is known')
    """

    robust: RobustRule = field(default_factory=RobustRule)

    exact_noise: ClassVar[bool] = False
    momentum_as_gradient: ClassVar[bool] = False
    chooses_lengths: ClassVar[bool] = True
    only_watches: ClassVar[bool] = True

    def init(self) -> WatchState:
        """Return the state before the first step."""
        return WatchState()

    def restore(self, plain: Mapping[str, Any]) -> WatchState:
        """Return the state that a checkpoint carries; raise ValueError for another rule's."""
        robust = plain.get("robust")
        if isinstance(robust, Mapping):
            plain = {**plain, "robust": completed(robust)}
        return restored(WatchState, plain)

    def is_due(self, state: WatchState) -> bool:
        """Say whether the next step is probed: the rate is uncertain, and the budget allows it."""
        return self.robust.is_due(state.robust)

    def is_searching(self, state: WatchState) -> bool:
        """Say no: a step that is watched is the user's own."""
        del state
        return False

    def search_again(self, state: WatchState) -> None:
        """Forget what was measured in units of a rate that no longer holds."""
        self.robust.search_again(state.robust)
        state.limit = Limit()

    def first_length(self, proposal: Proposal) -> float:
        """Return 1: the step that was taken is looked at first."""
        del proposal
        return 1.0

    def part_to_take(self, state: WatchState, loss: float, *, is_probed: bool) -> float:
        """Return 1: a step that is watched is the user's own."""
        del state, loss, is_probed
        return 1.0

    def complaint(self, state: WatchState) -> str:
        """Say what the robust rule says of the losses."""
        return self.robust.complaint(state.robust)

    def metrics(self, state: WatchState) -> dict[str, float]:
        """Return the last reading: the rate over the rate allowed; NaN before there is one."""
        return {"rate_factor": state.factor or math.nan}

    def notice(self, state: WatchState, loss: float, scale: float, setting: Setting) -> float:
        """Learn from the loss of a step; the scale stays."""
        self.robust.notice(state.robust, loss, scale, setting)
        state.robust.alarm.is_exploding = False  # nothing is shortened, so a look can wait
        return 1.0

    def is_new_level(self, state: WatchState) -> bool:
        """Say whether the averages of the loss began anew with the last loss."""
        return self.robust.is_new_level(state.robust)

    def judge(self, state: WatchState, seen: Observation) -> Decision:
        """Learn from a look at one length, and say whether to look at another."""
        robust, step = state.robust, seen.step
        robust.forwards += 1
        robust.alarm.is_asking = False  # this look is the answer
        if seen.tries == 1:
            # Where earlier probes have found the limit, a bend is no roughness.
            robust.search = search.Search(has_looked=state.limit.probes > 0)
        ratio, again = math.nan, None
        if math.isfinite(step.loss) and step.slope * step.slope > 0:
            ratio = 2 * (step.loss - seen.loss_after) / step.slope
            if not math.isfinite(seen.loss_after):
                ratio = -math.inf
            again = self._next_length(state, seen, 2 - ratio)
        if again is None:
            self._learn(state, seen, 2 - ratio)
        return Decision(1.0, ratio, "watched", again)

    def _next_length(self, state: WatchState, seen: Observation, bend: float) -> float | None:
        """Return the factor from this length to the next one to look at; None if there is enough."""
        low, high = CLEAR
        is_known = state.limit.probes > 0
        if seen.step.slope < 0 or (is_known and (seen.tries >= TRIES or low < bend < high)):
            return None
        if is_known and seen.tries == 1:
            # To where earlier probes have found the limit: one more look is often enough.
            return math.exp(state.limit.mean) / self.robust.target / seen.step.rate
        return search.next_length(state.robust.search, seen, bend)

    def _learn(self, state: WatchState, seen: Observation, bend: float) -> None:
        state.robust.search.is_done = True
        news = {}
        if math.isfinite(seen.loss_after):
            usual = state.robust.bound.recent
            news = belief.measure(seen, with_curvature=False, usual_loss=usual)
        belief.learn(state.robust.belief, news)
        if seen.step.slope > 0 and 0 < bend < math.inf:
            state.limit.learn(math.log(seen.step.rate * self.robust.target / bend))
        gauge = self.gauge(state, seen.step.setting, rate=math.nan)
        if gauge.probes:
            state.factor = gauge.factor
            reading = Reading(state.robust.t, gauge.factor, gauge.low, gauge.high)
            state.history.add(reading)

    def gauge(self, state: WatchState, setting: Setting, rate: float) -> Gauge:
        """Return what is known of a rate.

        Args:
            state: What was learnt.
            setting: What the optimizer's settings say of the next step.
            rate: Its rate.
        """
        if not state.limit.probes:
            return Gauge(rate=rate, history=tuple(state.history.readings))
        # With momentum the best rates lie lower by this root (docs/suggest.md).
        allowed = math.sqrt(1 - setting.beta) * math.exp(state.limit.mean)
        by_curvature = setting.multiplier / allowed
        by_noise = _excess_by_noise(state.robust, setting)
        limit = "noise" if by_noise > max(by_curvature, 1.0) else "curvature"
        factor = by_noise if limit == "noise" else by_curvature
        low, high = interval(factor, state.limit.variance, limit)
        return Gauge(
            factor=factor,
            low=low,
            high=high,
            rate=rate,
            limit=limit,
            probes=state.limit.probes,
            history=tuple(state.history.readings),
        )


def interval(factor: float, variance: float, limit: str) -> tuple[float, float]:
    """Return the ends of the interval of a factor.

    Args:
        factor: The present rate over the rate allowed.
        variance: Of its logarithm, as far as probes scatter; what the theory leaves open is added.
        limit: What limits the rate allowed, a key of `OPEN`.
    """
    width = math.exp(DEVIATIONS * math.sqrt(variance + OPEN[limit] ** 2))
    return factor / width, factor * width


def _excess_by_noise(robust: RobustState, setting: Setting) -> float:
    """Return how many times more the steps promise than there is to gain; 0 if it is not known."""
    if robust.losses < NOISE_AFTER:
        return 0.0
    allowed = bound.allowed(robust.bound, robust.losses, setting).cautious
    return setting.multiplier * robust.belief.slope / max(allowed, bound.LEAST_SLOPE)
