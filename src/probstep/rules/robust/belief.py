"""What probes say about slope and curvature, averaged, and how sure that is.

The averages are those of a Kalman filter on the logarithm of the scale: the less is known, the more a
probe counts. Slope and curvature are averaged apart and divided afterwards, because the ratio of one
probe is noisy and has no mean. Of curvature the root is averaged: one step into a wall, with a
curvature a thousand times the usual, is forgotten after some probes instead of hundreds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...plain import FINITE, refuse_outside
from ..protocol import Observation
from .numbers import DOUBLE, LEAST_WEIGHT, SETTLED, TENTH

UNKNOWN = 1.0  # the variance of log scale at which nothing is known
DRIFT, CALM_AFTER = TENTH, SETTLED / DOUBLE  # it grows by 0.1 / min(t, 500) per step

# The size of the gradients changes all the time: a probe never counts less for it than this.
FLOORS = {"log_gradient_per_length": LEAST_WEIGHT}

# Of the usual loss: a batch with hardly any would make the slope relative to it arbitrarily large.
LEAST_LOSS = TENTH

TINY, HUGE = 1e-100, 1e100  # between them a norm is trusted: products and differences stay finite


@dataclass(slots=True)
class Belief:
    """Averages over probes, all of steps at rate 1.

    Args:
        variance: Of log scale.
        probes: How many probes are in the averages.
        cosine: Of the angle between gradient and step.
        root_curvature: The root of v'Hv / |v|^2, along the step, with its sign.
        slope: phi.
        steepness: |phi|.
        relative_slope: phi / f, with at least a tenth of the usual loss for f.
        log_gradient_per_length: log(|g| / |v|), which for SGD is 0.
    """

    variance: float = UNKNOWN
    probes: int = 0
    cosine: float = 0.0
    root_curvature: float = 0.0
    slope: float = 0.0
    steepness: float = 0.0
    relative_slope: float = 0.0
    log_gradient_per_length: float = 0.0

    def __post_init__(self) -> None:
        refuse_outside(
            self,
            variance=(0.0, UNKNOWN),
            probes=(0, math.inf),
            cosine=(-1.0, 1.0),
            root_curvature=FINITE,
            slope=FINITE,
            steepness=(0.0, FINITE[1]),
            relative_slope=FINITE,
            log_gradient_per_length=FINITE,
        )


def renewed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return a belief of version 0.2.0, as plain numbers, in today's form.

    >>> renewed({"curvature": 4.0})
    {'root_curvature': 2.0}
    """
    told = dict(told)
    curvature = told.pop("curvature")
    if isinstance(curvature, float):  # what is no number is refused with the others
        curvature = math.copysign(math.sqrt(abs(curvature)), curvature)
    return told | {"root_curvature": curvature}


def drift(belief: Belief, t: int) -> None:
    """Be less sure at step t than at the step before."""
    belief.variance = min(UNKNOWN, belief.variance + DRIFT / min(t, CALM_AFTER))


def doubt(belief: Belief, variance: float = UNKNOWN) -> None:
    """Keep the averages, but let the next probes count more: by default as much as the first ones."""
    belief.variance = max(belief.variance, variance)


def learn(belief: Belief, news: Mapping[str, float], floors: Mapping[str, float] = FLOORS) -> None:
    """Average what a probe measured, with the weight that a Kalman filter gives a variance of 1.

    >>> belief = Belief()
    >>> learn(belief, {"slope": 3.0})
    >>> belief.slope, belief.variance
    (3.0, 0.5)
    """
    kalman = belief.variance / (1 + belief.variance)
    belief.variance *= 1 - kalman
    belief.probes += 1
    for name, value in news.items():
        weight = max(kalman, 1 / belief.probes, floors.get(name, 0.0))
        average = getattr(belief, name)
        setattr(belief, name, average + weight * (value - average))


def replace(belief: Belief, news: Mapping[str, float]) -> None:
    """Take what a probe measured in place of averages that are of another place.

    >>> belief = Belief(slope=9.0, probes=5)
    >>> replace(belief, {"slope": 3.0})
    >>> belief.slope
    3.0
    """
    for name, value in news.items():
        setattr(belief, name, value)


def measure(
    seen: Observation, *, with_curvature: bool, usual_loss: float = 0.0
) -> dict[str, float]:
    """Return what one probe says about the averaged quantities, by their names.

    Without norms, or with one out of range, it says nothing; a quotient out of range is left out.

    Args:
        seen: What the probe saw.
        with_curvature: Whether its curvature counts.
        usual_loss: The mean of the losses of late; 0 if there are none.

    >>> from probstep.rules import Norms, Proposal
    >>> step = Proposal(loss=2.0, slope=1.0, rate=0.5, norms=Norms(gradient=2.0, length=1.0))
    >>> measure(Observation(step, loss_after=1.5), with_curvature=True)["root_curvature"]
    1.0
    """
    step = seen.step
    if step.norms is None:
        return {}
    gradient, whole_length = step.norms
    slope, length = step.slope / step.rate, whole_length / step.rate
    if not (TINY < gradient < HUGE and TINY < length < HUGE and abs(slope) < HUGE**2):
        return {}
    news = {
        "cosine": max(-1.0, min(1.0, slope / gradient / length)),
        "slope": slope,
        "steepness": abs(slope),
        "log_gradient_per_length": math.log(gradient / length),
    }
    if step.loss > 0:
        news["relative_slope"] = slope / max(step.loss, LEAST_LOSS * usual_loss)
    if with_curvature and whole_length > TINY:
        bent = 2 * (step.slope - (step.loss - seen.loss_after))  # v'Hv, on a quadratic
        news["root_curvature"] = math.copysign(math.sqrt(abs(bent)) / whole_length, bent)
    return {name: value for name, value in news.items() if abs(value) < HUGE**2}


def aimed_factor(belief: Belief, target: float, scale: float) -> float:
    """Return the factor that brings the averaged bend to its target; infinite without curvature.

    >>> aimed_factor(Belief(cosine=1.0, root_curvature=2.0), target=1.0, scale=0.25)
    1.0
    """
    if belief.cosine <= 0:  # the momentum goes uphill, which no rate can change
        return 1.0
    if belief.root_curvature <= 0:
        return math.inf
    slope_per_length = belief.cosine * math.exp(belief.log_gradient_per_length)
    return target * (slope_per_length / belief.root_curvature / belief.root_curvature) / scale


def slope_at(belief: Belief, loss: float) -> float:
    """Return the slope to expect at this loss: in proportion to a positive one, as far as is known."""
    is_relative = loss > 0 and belief.relative_slope != 0
    return belief.relative_slope * loss if is_relative else belief.slope
