"""RobustRule: any initial rate, any momentum, few probes. Scalars in, a scale out; no tensors.

A belief about the scale is kept as a few averages and one variance. The first batch is searched for
the order of magnitude, from below, so that nothing later depends on the initial rate. A probe is due
when the variance has grown too large, and no step is kept that a probe has shown to be bad. In between,
the losses of the steps, which cost nothing, bound the scale from above.

Symbols of docs/algorithm.md; e = c * scale is the rate of a step (c: the schedule's multiplier), and
s = phi/e, u = |v|/e are slope and length of the step at rate 1.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .rules import Decision, Observation

Memory = dict[str, Any]

VISIBLE = 100.0  # roundings of the loss: what a step must change to be judged by
FIRST = 0.5  # the search ends half way to the first batch's line minimum: r = 1.5
DOWN, LEAST = 0.5, 0.1  # smallest factor per probe, and where a step is taken back
SLOW, FAST = 3.0, 12.0  # exponents of the two power-law averages of the loss
FALL = 2.0  # the bound lowers the scale at most like t^-2
REJECTED = 2.0  # a step is taken back if the loss rose by twice what is usually predicted
SURPRISE = 5.0  # standard deviations above the mean loss
JUMP, ALERT = 3.0, 0.2  # a gradient three times as long as usual leaves at least this variance
DRIFT, FLOOR = 0.1, 2e-4  # the variance of log scale grows by max(.1/t, 2e-4) per step
WEIGHT = {"cosine": 0.5, "curvature": 0.5}  # of a probe, where it is noisier than of the slope
FLOORS = {"log_ratio": 0.3}  # its least weight, where the mean follows the size of the gradients
TRIES, SEARCH_TRIES = 20, 30  # forward passes on one batch


@dataclass(frozen=True)
class RobustRule:
    """Find, hold and defend a good rate: a filter on the logarithm of the scale.

    Args:
        target: 2 - r*, the curvature over slope that is aimed at, and the largest share of the loss
            that a step may be predicted to gain. Smaller is more cautious; 1 aims at the minimum along
            the step, 2 at no gain.
        up: Largest factor per probe. Larger is faster after a plateau and more dangerous on leaving it.
        doubt: The variance of log scale at which a probe is due. Smaller means more probes.
        budget: The probes allowed: so many at once, and so many per step.

    >>> rule = RobustRule()
    >>> rule.is_due(rule.init())
    True
    """

    target: float = 4 / 3
    up: float = 1.2
    doubt: float = 0.09
    budget: tuple[float, float] = (40.0, 0.04)

    exact_noise: ClassVar[bool] = False
    momentum_as_gradient: ClassVar[bool] = False
    watches: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.target < 2:
            raise ValueError(f"RobustRule(target=) must lie between 0 and 2, not {self.target!r}.")
        if not 1 < self.up < math.inf:
            raise ValueError(f"RobustRule(up=) must be above 1 and finite, not {self.up!r}.")
        if not 0 < self.doubt < 1:
            raise ValueError(f"RobustRule(doubt=) must lie between 0 and 1, not {self.doubt!r}.")
        if len(self.budget) != 2 or min(self.budget) < 0:
            raise ValueError(
                f"RobustRule(budget=) holds two numbers of at least 0, not {self.budget!r}."
            )

    def init(self) -> Memory:
        """Return the memory before the first step: plain numbers."""
        return {
            "found": 0,  # 1 once the first batch was searched
            "too_long": math.inf,  # the shortest rate that the search found too long
            "t": 1,  # the step that comes
            "probes": 0,  # that taught something
            "forwards": 0,
            "variance": 1.0,  # of log scale
            "peak": 0.0,  # the schedule's largest multiplier so far
            "lent": 0.0,  # the scale before surprises halved it; 0: nothing to give back
            "ceiling": math.inf,  # the scale after the last surprise, if it was no false alarm
            "surprised_at": 1,  # its step
            # Averages over probes
            "cosine": 0.0,  # s / (|g| u)
            "curvature": 0.0,  # v'Hv / |v|^2
            "slope": 0.0,  # s
            "steepness": 0.0,  # |s|
            "relative_slope": 0.0,  # s / f
            "log_ratio": 0.0,  # log |g|/u
            # Averages over steps
            "recent": 0.0,  # of the loss, with weight FAST/t
            "older": 0.0,  # of the loss, with weight SLOW/t
            "spread": 0.0,  # variance around `recent`
            "mean": 0.0,  # of the loss, over about 20 steps
            "mean_spread": 0.0,  # variance around `mean`
            "log_gradient": math.nan,  # of log |g|
        }

    def is_due(self, memory: Memory) -> bool:
        """Say whether the next step is probed: in doubt, and within the budget."""
        at_once, per_step = self.budget
        is_paid = memory["forwards"] < at_once + per_step * memory["t"]
        return not memory["found"] or (memory["variance"] >= self.doubt and is_paid)

    def is_searching(self, memory: Memory) -> bool:
        """Say whether the order of magnitude is still to be found."""
        return not memory["found"]

    # Every step, a step later

    def watch(
        self, memory: Memory, loss: float, gradient: float, scale: float, seen: Observation
    ) -> tuple[Memory, float]:
        """Take note of a step's loss and gradient norm; return the memory and a factor for the scale."""
        memory = {**memory, "t": memory["t"] + 1, "peak": max(memory["peak"], seen.multiplier)}
        surprised = _note_loss(memory, loss)
        jumped = _note_gradient(memory, gradient)
        t = memory["t"]
        memory["variance"] = min(1.0, memory["variance"] + max(DRIFT / t, FLOOR))
        if surprised:
            memory |= {"lent": max(memory["lent"], scale), "ceiling": scale / 2, "surprised_at": t}
            memory["variance"] = 1.0
        if jumped:
            memory["variance"] = max(memory["variance"], ALERT)
        factor = 0.5 if surprised else 1.0
        if memory["relative_slope"] > 0 and t > 3:
            allowed = _bound(memory, seen, self.target) / (scale * factor)
            factor *= min(1.0, max(allowed, 1 - FALL / t, DOWN))
        return memory, factor

    # A probed step

    def first_length(self, loss: float, slope: float, resolution: float) -> float:
        """Return the share of a step at rate 1 with which the search begins: just visible."""
        if not (slope > 0 and math.isfinite(loss) and math.isfinite(slope)):
            return 0.0
        return VISIBLE * max(resolution, math.ulp(0.0)) / slope

    def judge(self, memory: Memory, seen: Observation) -> tuple[Memory, Decision]:
        """Return what the probe taught, and what becomes of step and scale."""
        memory = {**memory, "forwards": memory["forwards"] + 1}
        if not math.isfinite(seen.loss) or not seen.slope * seen.slope > 0:
            return memory, Decision(1.0, math.nan, "uninformative")
        ratio = 2 * (seen.loss - seen.loss_after) / seen.slope
        if not math.isfinite(seen.loss_after):
            ratio = -math.inf
        if not memory["found"]:
            return self._search(memory, seen, ratio)
        if seen.tries < TRIES and self._is_bad(memory, seen):
            return self._reject(memory, seen, ratio)
        if not math.isfinite(seen.loss_after):
            return memory, Decision(DOWN, ratio, "down")
        visible = abs(seen.slope) > VISIBLE * seen.resolution
        _learn(memory, seen, with_curvature=visible)
        factor = min(max(self._aim(memory, seen), DOWN), self._largest(memory, seen, ratio))
        memory["lent"] = 0.0
        return memory, Decision(factor, ratio, _word(factor) if visible else "uninformative")

    def _search(self, memory: Memory, seen: Observation, ratio: float) -> tuple[Memory, Decision]:
        bend = 2 - ratio  # curvature over slope: proportional to the rate
        if bend > 1.5:
            memory["too_long"] = min(memory["too_long"], seen.rate)
        gap = memory["too_long"] / seen.rate
        if seen.tries < SEARCH_TRIES and bend < 0.1 and gap > 2:
            return memory, Decision(1.0, ratio, "search", again=min(10.0, math.sqrt(gap)))
        if seen.tries < SEARCH_TRIES and bend > 1.5:
            return memory, Decision(1.0, ratio, "search", again=max(LEAST, 1 / bend))
        memory["found"] = 1
        if not math.isfinite(bend) or bend <= 0:
            return memory, Decision(1.0, ratio, "search")
        _learn(memory, seen)
        factor = min(FIRST / bend, 2.0) * math.sqrt(1 - seen.beta)
        return memory, Decision(factor, ratio, "search")

    def _is_bad(self, memory: Memory, seen: Observation) -> bool:
        # Momentum may point uphill: what the slope itself predicts is no reason to shorten a step.
        rise = seen.loss_after - seen.loss - max(-seen.slope, 0.0)
        usual = seen.rate * memory["steepness"]
        return not math.isfinite(rise) or rise > REJECTED * usual + VISIBLE * seen.resolution

    def _reject(self, memory: Memory, seen: Observation, ratio: float) -> tuple[Memory, Decision]:
        memory["variance"], memory["lent"] = 1.0, 0.0
        if not math.isfinite(seen.loss_after):
            return memory, Decision(1.0, ratio, "reject", again=LEAST)
        _learn(memory, seen)
        memory["variance"] = 1.0
        shorter = min(max(self._aim(memory, seen), LEAST), DOWN)
        return memory, Decision(1.0, ratio, "reject", again=shorter)

    def _aim(self, memory: Memory, seen: Observation) -> float:
        """Return the factor that brings the averaged curvature over slope to its target."""
        if memory["cosine"] <= 0:  # the momentum goes uphill, which no rate can change
            return 1.0
        if memory["curvature"] <= 0:
            return math.inf
        per_length = memory["cosine"] * math.exp(memory["log_ratio"])
        return float(self.target * (per_length / memory["curvature"]) / _scale(seen))

    def _largest(self, memory: Memory, seen: Observation, ratio: float) -> float:
        """Return the largest factor of a probe: nothing that itself went too far may raise the scale."""
        if seen.slope > 0 and 2 - ratio > self.target:
            return 1.0
        scale, up = _scale(seen), self.up
        if memory["lent"] and seen.loss <= memory["mean"]:  # a false alarm
            up, memory["ceiling"] = max(up, memory["lent"] / scale), math.inf
        # What blew up once may come back when the time has doubled.
        up = min(up, max(memory["ceiling"] * memory["t"] / memory["surprised_at"] / scale, 1.0))
        if memory["relative_slope"] > 0 and memory["t"] > 3:
            up = min(up, max(_bound(memory, seen, self.target) / scale, 1.0))
        return float(up)


def _scale(seen: Observation) -> float:
    return seen.rate / seen.multiplier


def _word(factor: float) -> str:
    return "up" if factor > 1 else "down" if factor < 1 else "keep"


def _bound(memory: Memory, seen: Observation, target: float) -> float:
    """Return the largest scale whose steps promise no more than there is to gain.

    With momentum a gradient acts 1/(1-beta) times. Noise does so in full; of what is no noise later
    gradients take back a part, so that the root of it has to do.
    """
    slope, allowed = memory["slope"], _gain(memory, seen)
    if memory["recent"] > 0:
        slope = memory["relative_slope"] * memory["recent"]
        allowed = min(allowed, _polyak(memory, seen, target))
    if slope <= 0:
        return math.inf
    # The noise comes from the step as scheduled, but a schedule's end must not raise the scale at will.
    return float(max(allowed, 1e-30) / (max(seen.multiplier, 0.05) * slope))


def _gain(memory: Memory, seen: Observation) -> float:
    """Return what the next e-fold of time may gain, -d(mean loss)/d(log t), as phi may use it.

    Two averages of the loss tell it up to a standard error; within that error all may be noise.
    """
    stretch = 1 / (1 / SLOW - 1 / FAST)
    fallen = stretch * (memory["older"] - memory["recent"])
    error = 2 * stretch * math.sqrt(memory["spread"] / memory["t"])
    damping = 1 - seen.beta
    gain = math.sqrt(damping) * max(fallen - error, 0.0) + damping * error
    # Of a decay to zero, what is left is half of what is now, on average.
    return float(2 * gain if seen.multiplier < memory["peak"] else gain)


def _polyak(memory: Memory, seen: Observation, target: float) -> float:
    """Return the share of the loss that phi may promise: Polyak's step is 1, without momentum."""
    return float(target * math.sqrt(1 - seen.beta) * memory["recent"])


def _note_loss(memory: Memory, loss: float) -> bool:
    """Average a loss; say whether it was surprisingly high."""
    if not abs(loss) < 1e100:  # as good as infinite, and its square would be
        return True
    k = memory["t"] - 1  # losses seen, this one included
    if k == 1:
        memory.update(mean=loss, recent=loss, older=loss)
    limit = SURPRISE * math.sqrt(memory["mean_spread"])
    surprised = bool(k > 4 and loss > memory["mean"] + limit + 1e-6 * abs(memory["mean"]))
    if surprised:  # one outlier must not pass for a rise, nor for noise that allows more
        loss = memory["mean"] + limit
    weight, error = max(1 / k, 0.05), loss - memory["mean"]
    memory["mean"] += weight * error
    memory["mean_spread"] = (1 - weight) * (memory["mean_spread"] + weight * error**2)
    weight, error = min(1.0, FAST / k), loss - memory["recent"]
    memory["spread"] = (1 - weight) * (memory["spread"] + weight * error**2) if k > 2 else error**2
    memory["recent"] += weight * error
    memory["older"] += min(1.0, SLOW / k) * (loss - memory["older"])
    return surprised


def _note_gradient(memory: Memory, gradient: float) -> bool:
    """Average the log of a gradient's norm; say whether it was far longer than usual."""
    if not (gradient > 0 and math.isfinite(gradient)):
        return False
    usual = math.log(gradient) if math.isnan(memory["log_gradient"]) else memory["log_gradient"]
    excess = math.log(gradient) - usual
    memory["log_gradient"] = usual + 0.2 * excess
    return excess > math.log(JUMP)


def _learn(memory: Memory, seen: Observation, *, with_curvature: bool = True) -> None:
    """Average what a probe saw, with a Kalman filter's gain for an observation of variance 1."""
    gain = memory["variance"] / (1 + memory["variance"])
    memory["variance"] *= 1 - gain
    memory["probes"] += 1
    for name, value in _news(seen, with_curvature=with_curvature).items():
        weight = max(gain * WEIGHT.get(name, 1.0), 1 / memory["probes"], FLOORS.get(name, 0.0))
        memory[name] += weight * (value - memory[name])


def _news(seen: Observation, *, with_curvature: bool) -> dict[str, float]:
    """Return what a probe says about the averaged quantities; nothing where a number is out of range."""
    s, u = seen.slope / seen.rate, seen.length / seen.rate
    if not (1e-100 < seen.gradient < 1e100 and 1e-100 < u < 1e100 and abs(s) < 1e200):
        return {}
    news = {
        "cosine": max(-1.0, min(1.0, s / seen.gradient / u)),
        "slope": s,
        "steepness": abs(s),
        "log_ratio": math.log(seen.gradient / u),
    }
    if seen.loss > 0 and math.isfinite(s / seen.loss):
        news["relative_slope"] = s / seen.loss
    bend = 2 * (seen.slope - (seen.loss - seen.loss_after))
    if with_curvature and seen.length > 1e-100 and math.isfinite(bend):
        news["curvature"] = bend / seen.length / seen.length
    return {name: value for name, value in news.items() if math.isfinite(value)}
