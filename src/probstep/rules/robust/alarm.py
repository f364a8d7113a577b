"""The alarm: a loss far above its mean halves the scale, before any probe has seen why.

If the next probe finds the loss back at its mean, the alarm was false, and the probe may raise the scale
to where it was. If not, the scale may return there only slowly.
"""

import math
from dataclasses import dataclass

from ...plain import FINITE, refuse_outside

SURPRISE = 5.0  # standard deviations above the mean loss
ROUNDING = 1e-6  # relative; a loss that has stood still has no deviation, only rounding
HUGE = 1e100  # a loss that is as good as infinite, and whose square is
KNOWN_AFTER = 4  # losses: fewer have no deviation to speak of
LEAST_WEIGHT = 0.05  # of a loss in the mean: it is taken over about 20 steps
HALF = 0.5  # what becomes of the scale


@dataclass
class Alarm:
    """The usual loss, and what the last surprise did.

    Args:
        mean: Of the loss, over about 20 steps.
        spread: The variance of the loss around it.
        scale_before: The scale before surprises lowered it; 0 once a probe has seen to it.
        ceiling: The scale after the last surprise; infinite if that was a false alarm.
        surprised_at: The step of the last surprise.
    """

    mean: float = 0.0
    spread: float = 0.0
    scale_before: float = 0.0
    ceiling: float = math.inf
    surprised_at: int = 1

    def __post_init__(self) -> None:
        refuse_outside(
            self,
            mean=FINITE,
            spread=(0.0, FINITE[1]),
            scale_before=(0.0, FINITE[1]),
            ceiling=(0.0, math.inf),
            surprised_at=(1, math.inf),
        )


def unsurprising(alarm: Alarm, loss: float, count: int) -> float:
    """Return the loss, the `count`-th, or if it is a surprise the highest that would not have been one.

    >>> unsurprising(Alarm(mean=1.0, spread=0.01), loss=9.0, count=20)
    1.5
    """
    limit = SURPRISE * math.sqrt(alarm.spread)
    is_surprise = loss > alarm.mean + limit + ROUNDING * abs(alarm.mean)
    return alarm.mean + limit if is_surprise and count > KNOWN_AFTER else loss


def average(alarm: Alarm, loss: float, count: int) -> None:
    """Average a loss, the `count`-th."""
    if count == 1:
        alarm.mean = loss
    weight, error = max(1 / count, LEAST_WEIGHT), loss - alarm.mean
    alarm.mean += weight * error
    alarm.spread = (1 - weight) * (alarm.spread + weight * error**2)


def sound(alarm: Alarm, scale: float, t: int) -> None:
    """Take note that the loss was a surprise at step t, which halves this scale."""
    alarm.scale_before = max(alarm.scale_before, scale)
    alarm.ceiling = scale * HALF
    alarm.surprised_at = t


def is_false(alarm: Alarm, loss: float) -> bool:
    """Say whether a probe that sees this loss shows that the last surprise meant nothing."""
    return alarm.scale_before > 0 and loss <= alarm.mean


def largest_scale(alarm: Alarm, t: int) -> float:
    """Return how high the scale may be at step t: where it blew up when the time has doubled."""
    return alarm.ceiling * t / alarm.surprised_at
