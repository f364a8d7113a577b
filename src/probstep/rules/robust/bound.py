"""The bound on the scale by what is left to gain, from the losses of all steps.

In a stationary state the excess of the loss that a rate causes is proportional to phi (docs/robust.md
derives it), so phi must not promise more than training can still gain. What it can gain is read from
two averages of the loss; and it is never more than the loss itself, if that is positive.
"""

import math
from dataclasses import dataclass

from ...plain import FINITE, refuse_outside
from ..protocol import Setting

SLOW, FAST = 3.0, 12.0  # exponents of the two power laws in t that weight the averages of the loss
KNOWN_AFTER = 3  # losses: fewer show no trend
NOISE = 0.5  # N / G; 0.4 to 0.9 at the best fixed rates that were measured, less with small batches
FALL = 2.0  # the bound lowers the scale no faster than t^-2
DECAY = 2.0  # under a decay to zero the rate to come is half of the present one, on average
LEAST_MULTIPLIER = 0.05  # the end of a schedule must not raise the scale without limit
STRETCH = 1 / (1 / SLOW - 1 / FAST)  # from the averages to a fall per e-fold of time
LEAST_SLOPE = 1e-30  # what is always allowed, so that the scale stays above 0


@dataclass(slots=True)
class Bound:
    """Averages of the loss over steps.

    Args:
        recent: With the weight FAST/t of the newest loss.
        older: With the weight SLOW/t of the newest loss.
        spread: The variance of the loss around `recent`.
        peak: The schedule's largest multiplier so far.
    """

    recent: float = 0.0
    older: float = 0.0
    spread: float = 0.0
    peak: float = 0.0

    def __post_init__(self) -> None:
        refuse_outside(
            self, recent=FINITE, older=FINITE, spread=(0.0, FINITE[1]), peak=(0.0, math.inf)
        )


def average(bound: Bound, loss: float, count: int) -> None:
    """Average a loss, the `count`-th of its level."""
    if count == 1:
        bound.recent = bound.older = loss
    weight, error = min(1.0, FAST / count), loss - bound.recent
    if count > 2:
        bound.spread = (1 - weight) * (bound.spread + weight * error**2)
    else:
        bound.spread = error**2
    bound.recent += weight * error
    bound.older += min(1.0, SLOW / count) * (loss - bound.older)


def progress(bound: Bound, count: int, setting: Setting) -> float:
    """Return the largest phi that noise allows: N = NOISE * G for N = phi / (4 (1 - beta)).

    N is the excess of the loss that noise causes at this rate, G = -d(mean loss)/d(log t) what the next
    e-fold of time gains. A lower rate would lose progress, a higher one gain noise. G is known up to a
    standard error, and counts at least as much: where there is no evidence there is hardly a bound.
    """
    fallen = STRETCH * (bound.older - bound.recent)
    error = 2 * STRETCH * math.sqrt(bound.spread / count)
    allowed = 4 * (1 - setting.beta) * NOISE * max(fallen, error)
    return DECAY * allowed if setting.multiplier < bound.peak else allowed


def loss_share(loss: float, target: float, setting: Setting) -> float:
    """Return how much of the loss phi may promise; Polyak's step promises all, without momentum.

    With momentum it is less: N, the excess that noise causes, may be NOISE times all that is left.

    >>> round(loss_share(2.0, target=1.0, setting=Setting(beta=0.9)), 3)
    0.4
    """
    return min(target, 4 * (1 - setting.beta) * NOISE) * loss


def largest_scale(allowed: float, slope: float, setting: Setting) -> float:
    """Return the scale at which a step of this slope at rate 1 promises what is allowed.

    >>> largest_scale(allowed=1.0, slope=4.0, setting=Setting())
    0.25
    """
    # The step as scheduled is what brings the noise.
    slope = max(setting.multiplier, LEAST_MULTIPLIER) * slope
    return max(allowed, LEAST_SLOPE) / slope if slope > 0 else math.inf


def slowed(factor: float, t: int, least: float) -> float:
    """Return the part of a lowering by this factor that one step may make; 1 is the most."""
    return min(1.0, max(factor, 1 - FALL / t, least))
