"""The bound on the scale by what is left to gain, from the losses of all steps.

In a stationary state the excess of the loss that a rate causes is proportional to phi: it is derived in
docs/robust-rule.md. So phi must not promise more than training can still gain. What it can gain is read
from two averages of the loss over time, with the standard error of what they say.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from ...plain import FINITE, refuse_outside
from ..protocol import Setting
from .numbers import DOUBLE, FEW, HEAD_START, HUNDREDTH, NOISE, QUARTER, TENTH, TWENTIETH

SLOW, FAST = float(FEW), FEW / QUARTER  # exponents of the power laws that weight the losses
KNOWN_AFTER = FEW  # losses: fewer show no trend
PAST = DOUBLE * NOISE  # of G, which is that of the past: losses fall ever more slowly
LEAST_HOPE = TENTH  # of the size of the loss: what is certain to be left, though the loss rises
LEAST_SHARE = TENTH  # of that size, however much losses scatter: they may hover about zero
HARMLESS = TENTH * QUARTER  # of the loss: always hoped for; noise then costs a hundredth of it
HOPE = 1 / DOUBLE  # of the size of the loss: what there is to gain as long as nothing is known
CAUTIOUS, CERTAIN = -1 / DOUBLE, 1.0  # standard errors of the gain: for a rise, for a fall at once
SURE = float(FEW)  # standard errors by which losses must rise before the user is told
SPEED = DOUBLE  # where the gain is uncertain the bound moves the scale no faster than t^-2 and t^2
DECAY = float(FEW)  # what noise does under a decay, later and lower rates undo for the most part
DECAY_OF_ALL = DOUBLE  # the same for the bound by the loss itself
EARLY = 1 / HUNDREDTH  # losses of a training: so long noise may cost more, there is time to mend it
LEAST_MULTIPLIER = TWENTIETH  # the end of a schedule must not raise the scale without limit
LEAST_SLOPE = 1e-30  # what is always allowed, so that the scale stays above 0
DEVIATIONS = 1.25  # standard deviations in a mean absolute error of normal numbers: sqrt(pi / 2)


@dataclass(slots=True)
class Bound:
    """Averages of the loss over steps, and of the logarithm of time with the same weights.

    Args:
        recent: With the weight FAST / time of the newest loss.
        older: With the weight SLOW / time of the newest loss.
        recent_time: Of log time, weighted as `recent`.
        older_time: Of log time, weighted as `older`.
        error: The mean absolute difference of a loss from `recent`.
        recent_squares: The sum of the squared weights in `recent`.
        older_squares: The sum of the squared weights in `older`.
        products: The sum of the products of both weights.
        peak: The schedule's largest multiplier so far.
        lowered_scale: The scale from which the bound has lowered it; it may come back up to this.
        lowered_multiplier: What the schedule made of it then.
    """

    recent: float = 0.0
    older: float = 0.0
    recent_time: float = 0.0
    older_time: float = 0.0
    error: float = 0.0
    recent_squares: float = 1.0
    older_squares: float = 1.0
    products: float = 1.0
    peak: float = 0.0
    lowered_scale: float = 0.0
    lowered_multiplier: float = 1.0

    def __post_init__(self) -> None:
        positive = (0.0, FINITE[1])
        refuse_outside(
            self,
            recent=FINITE,
            older=FINITE,
            recent_time=FINITE,
            older_time=FINITE,
            error=positive,
            recent_squares=positive,
            older_squares=positive,
            products=positive,
            peak=(0.0, math.inf),
            lowered_scale=(0.0, math.inf),
            lowered_multiplier=(0.0, math.inf),
        )


def average(bound: Bound, loss: float, count: int) -> None:
    """Average a loss, the `count`-th of its level."""
    time = count + HEAD_START
    now = math.log(time)
    if count == 1:
        bound.recent = bound.older = loss
        bound.recent_time = bound.older_time = now
        bound.recent_squares = bound.older_squares = bound.products = 1.0
        bound.error = 0.0
        return
    fast, slow, error = FAST / time, SLOW / time, loss - bound.recent
    bound.error += max(fast, 1 / (count - 1)) * (abs(error) - bound.error)
    bound.recent += fast * error
    bound.older += slow * (loss - bound.older)
    bound.recent_time += fast * (now - bound.recent_time)
    bound.older_time += slow * (now - bound.older_time)
    bound.recent_squares += fast * (fast - (2 - fast) * bound.recent_squares)
    bound.older_squares += slow * (slow - (2 - slow) * bound.older_squares)
    bound.products += fast * slow - (fast + slow - fast * slow) * bound.products


def gain(bound: Bound, count: int) -> tuple[float, float]:
    """Return G = -d(mean loss)/d(log time), and its standard error; 0 and infinity before it is known.

    The averages differ by what the loss has fallen between their mean times. The error is that of
    losses which are independent of each other.
    """
    if count < KNOWN_AFTER:
        return 0.0, math.inf
    between = max(bound.recent_time - bound.older_time, math.ulp(1.0))  # above 0, but for rounding
    squares = max(bound.recent_squares + bound.older_squares - 2 * bound.products, 0.0)
    deviation = DEVIATIONS * bound.error
    return (bound.older - bound.recent) / between, deviation * math.sqrt(squares) / between


def size(bound: Bound) -> float:
    """Return how large losses are: their mean, or how much they differ where that is more.

    >>> size(Bound(recent=-3.0)), size(Bound())
    (3.0, 0.0)
    """
    return math.hypot(bound.recent, DEVIATIONS * bound.error)


def excess(slope: float, setting: Setting) -> float:
    """Return N = phi / (4 (1 - beta)), the excess of the loss that noise causes at a step's rate.

    With Nesterov's momentum the step of a batch moves more of what its gradient moves in all.

    >>> round(excess(slope=0.2, setting=Setting(beta=0.9)), 3)
    0.5
    """
    return slope / (4 * setting.own_share)


class Allowed(NamedTuple):
    """The largest phi that noise allows, or the scales that belong to it.

    Args:
        cautious: With a little less than the gain that is seen: for rises, and for slow falls.
        certain: With all that the gain may be, for falls at once; infinite if nothing is certain.
    """

    cautious: float
    certain: float


UNBOUNDED = Allowed(math.inf, math.inf)


def allowed(
    bound: Bound,
    count: int,
    setting: Setting,
    *,
    is_early: bool = False,
    heeds_scatter: bool = True,
    heeds_plateaus: bool = True,
) -> Allowed:
    """Return the largest phi that noise allows: N = NOISE * PAST * G for N = phi / (4 (1 - beta)).

    N is the excess of the loss that noise causes at this rate, G what the next e-fold of time gains. A
    lower rate would lose progress, a higher one gain noise. Where G is not known, what there is to gain
    is a part of the loss, and no more than the error: no evidence, hardly a bound. Where losses differ
    by more than their mean, that part is less. On a plateau nothing is gained, and a lower rate would
    only make it longer: so a little is always hoped for, within what single losses differ by. It is
    never more than the loss itself, if that is above zero; early it is up to twice the loss, less where
    the loss falls fast. After the peak of a schedule N is that of the step at the peak, and G counts
    more.

    Args:
        bound: The averages.
        count: How many losses they hold.
        setting: What the optimizer's settings say of the step.
        is_early: Whether training has just begun.
        heeds_scatter: Less is hoped for where losses differ by more than their mean.
        heeds_plateaus: A little is always hoped for.
    """
    fallen, error = gain(bound, count)
    recent, older, deviation = bound.recent, bound.older, DEVIATIONS * bound.error
    whole = size(bound)
    if heeds_scatter and 0 < recent < deviation:
        # A gain, or a rate that is too high, is seen only after many more losses, by this square.
        whole *= max((recent / deviation) ** 2, LEAST_SHARE)
    kept, weight, above = 1.0, PAST, 1.0
    if setting.multiplier < bound.peak:
        kept = _scheduled(setting) / bound.peak  # what a decay has left of the rate
        weight, above = DECAY * kept, DECAY_OF_ALL
    elif is_early and older > 0:
        above = 1 + min(recent / older, 1.0)
    hope, most = min(error, HOPE * whole), math.inf
    if recent > 0:
        most = recent * above
        if heeds_plateaus:
            hope = max(hope, kept * min(HARMLESS * recent, deviation))
    unit = 4 * setting.own_share * NOISE
    if error == math.inf:
        return Allowed(unit * min(max(weight * fallen, hope), most), math.inf)
    cautious = max(weight * (fallen + CAUTIOUS * error), hope)
    certain = max(weight * (fallen + CERTAIN * error), hope, LEAST_HOPE * whole)
    return Allowed(unit * min(cautious, most), unit * min(certain, most))


def _scheduled(setting: Setting) -> float:
    return max(setting.multiplier, LEAST_MULTIPLIER)


def is_rising(bound: Bound, count: int, errors: float = CERTAIN) -> bool:
    """Say whether the loss rises by more than so many standard errors."""
    fallen, error = gain(bound, count)
    return fallen + errors * error < 0


def first_slope(loss: float, setting: Setting) -> float:
    """Return how much of the first loss phi may promise: as if there was that hope to gain.

    >>> round(first_slope(2.0, Setting(beta=0.9)), 3)
    0.16
    """
    return 4 * setting.own_share * NOISE * HOPE * abs(loss)


def largest_scales(allowed: Allowed, slope: float, setting: Setting) -> Allowed:
    """Return the scales at which a step of this slope at rate 1 promises what is allowed.

    >>> largest_scales(Allowed(1.0, 2.0), slope=4.0, setting=Setting())
    Allowed(cautious=0.25, certain=0.5)
    """
    # The step as scheduled is what brings the noise.
    slope = _scheduled(setting) * slope
    if not slope > 0:
        return UNBOUNDED
    cautious, certain = allowed
    return Allowed(max(cautious, LEAST_SLOPE) / slope, max(certain, LEAST_SLOPE) / slope)


def slowed(factor: float, t: int, least: float) -> float:
    """Return the part of a lowering by this factor that one step may make; 1 is the most."""
    return min(1.0, max(factor, 1 - SPEED / t, least))


def remember(bound: Bound, scale: float, setting: Setting) -> None:
    """Remember a scale before the bound lowers it, unless it has lowered one of a larger rate."""
    if scale * setting.multiplier > bound.lowered_scale * bound.lowered_multiplier:
        bound.lowered_scale, bound.lowered_multiplier = scale, setting.multiplier


def confine(bound: Bound, scale: float) -> None:
    """Let nothing above this scale be given back: a probe has shown what curvature allows.

    >>> bound = Bound(lowered_scale=3.0)
    >>> confine(bound, 2.0)
    >>> bound.lowered_scale
    2.0
    """
    if scale < bound.lowered_scale:
        bound.lowered_scale, bound.lowered_multiplier = scale, 1.0


def given_back(bound: Bound, scale: float, largest: float, t: int, setting: Setting) -> float:
    """Return the factor by which one step gives back what the bound took; 1 is the least.

    Args:
        bound: The averages, and what the bound took.
        scale: The present scale.
        largest: The largest scale that the bound allows.
        t: How many losses the averages hold.
        setting: What the optimizer's settings say of the step.

    >>> round(given_back(Bound(lowered_scale=4.0), 1.0, 2.0, t=70, setting=Setting()), 2)
    1.02
    """
    # A warm-up that has gone on makes longer steps of the same scale.
    part = min(1.0, bound.lowered_multiplier / _scheduled(setting))
    most = min(largest, part * bound.lowered_scale) / scale
    return max(1.0, min(1 + SPEED / (t + HEAD_START), most))
