"""The alarm: a loss far above its mean, or one that keeps rising, makes the next step a probed one.

A surprise is a question, and the probe is the answer: nothing moves before it. Several surprises in
short order say that the loss has another level: a new task, a loss that counts more, other data. Then
the statistics of the loss begin anew. (A version that lowered the scale at every surprise died of a
new task: a lasting change was a surprise for ten or twenty steps.)
"""

import math
from dataclasses import dataclass

from ...plain import FINITE, refuse_outside
from .numbers import DOUBLE, FEW, HUNDREDTH, RARE, TENTH, TWENTIETH

SURPRISE = float(RARE)  # standard deviations above the mean loss
ROUNDING = 1e-6  # relative; a loss that has stood still has no deviation, only rounding
FIRST_PART = TENTH  # of the way from losses that have stood still to one that has not
HUGE = 1e100  # a loss that is as good as infinite, and whose square is
KNOWN_AFTER = FEW + 1  # losses: fewer have no deviation to speak of
LOSS_WEIGHT = TWENTIETH  # of a loss in the mean: it is taken over about 20 steps
FADE = 1 - TENTH  # what a step leaves of the count of surprises
NEW_LEVEL = 2.4  # that count, which three surprises within five steps reach
EXPLOSION = 1 / TENTH  # times a usual loss, or the last low one: the next may be ten times this
RISES = RARE  # in a row: of losses that noise alone makes, one in 720 ends such a row
OWN_AND_NEXT = int(DOUBLE)  # losses: of a step held back, and the one that shows its harm
LENIENCE = 1 / TENTH  # times: so much more of the next such step is taken if that one did no harm
TRUST = float(RARE)  # probes beyond the budget that may be for nothing; later one more in 100 steps


@dataclass(slots=True)
class Alarm:
    """The usual loss, and the surprises of late.

    Args:
        mean: Of the loss, over about 20 steps.
        spread: The variance of the loss around it.
        surprises: How many there were, older ones counting less.
        last: The last loss; infinite before there is one.
        rises: How many losses in a row were higher than the one before.
        low: The loss before these.
        is_asking: Whether no probe has answered the last one yet.
        is_exploding: Whether the next probe must not wait for a budget.
        trust: How many such probes may still be for nothing.
        held: How many losses are to be told until the one after a step that was held back.
        held_loss: The loss of that step.
        lenience: How many times more of such a step is taken than of the first one.
    """

    mean: float = 0.0
    spread: float = 0.0
    surprises: float = 0.0
    last: float = math.inf
    rises: int = 0
    low: float = 0.0
    is_asking: bool = False
    is_exploding: bool = False
    trust: float = TRUST
    held: int = 0
    held_loss: float = 0.0
    lenience: float = 1.0

    def __post_init__(self) -> None:
        refuse_outside(
            self,
            mean=FINITE,
            spread=(0.0, FINITE[1]),
            surprises=(0.0, FINITE[1]),
            last=(-math.inf, math.inf),
            rises=(0, math.inf),
            low=(-math.inf, math.inf),
            trust=(0.0, TRUST),
            held=(0, OWN_AND_NEXT),
            held_loss=FINITE,
            lenience=(1.0, FINITE[1]),
        )


def unsurprising(alarm: Alarm, loss: float, count: int) -> float:
    """Return the loss, the `count`-th, or if it is a surprise the highest that would not have been one.

    Losses that have stood still, as those of batches without labels at zero, say nothing of how far
    one may be. Then a tenth of the way counts: with none of it no later loss would ever count.

    >>> unsurprising(Alarm(mean=1.0, spread=0.01), loss=9.0, count=20)
    1.5
    >>> unsurprising(Alarm(), loss=2.0, count=20)
    0.2
    """
    limit = SURPRISE * math.sqrt(alarm.spread)
    is_surprise = loss > alarm.mean + limit + ROUNDING * abs(alarm.mean)
    if not is_surprise or count <= KNOWN_AFTER:
        return loss
    return alarm.mean + (limit or FIRST_PART * (loss - alarm.mean))


def average(alarm: Alarm, loss: float, count: int) -> None:
    """Average a loss, the `count`-th of its level."""
    if alarm.trust < TRUST:
        alarm.trust = min(TRUST, alarm.trust + HUNDREDTH)
    if count == 1:
        alarm.mean, alarm.spread = loss, 0.0
    weight, error = max(1 / count, LOSS_WEIGHT), loss - alarm.mean
    alarm.mean += weight * error
    alarm.spread = (1 - weight) * (alarm.spread + weight * error**2)


def is_rising(alarm: Alarm, loss: float) -> bool:
    """Count a rise, if it is one; say once of a row whether the losses keep rising.

    They do so at a rate that is unstable only across a valley: steps along its floor do not show it.
    The losses grow by some factor at every step, and their deviation with them: none is a surprise.

    >>> alarm = Alarm()
    >>> [is_rising(alarm, loss) for loss in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6)]
    [False, False, False, False, False, True, False]
    """
    if loss > alarm.last:
        alarm.rises += 1
    else:
        alarm.rises, alarm.low = 0, loss
    alarm.last = loss
    return alarm.rises == RISES


def has_jumped(alarm: Alarm, loss: float) -> bool:
    """Say whether losses have risen to ten times the last low one, which may be far below the mean.

    >>> has_jumped(Alarm(mean=1.0, low=0.01), loss=0.2)
    True
    """
    return 0 < EXPLOSION * alarm.low < loss


def ask(alarm: Alarm, *, is_exploding: bool) -> None:
    """Make the next step a probed one, at any cost if the losses explode.

    >>> alarm = Alarm()
    >>> ask(alarm, is_exploding=False)
    >>> alarm.is_asking, alarm.is_exploding
    (True, False)
    """
    alarm.is_asking = True
    alarm.is_exploding = alarm.is_exploding or is_exploding


def is_free(alarm: Alarm) -> bool:
    """Say whether the next probe need not wait for a budget.

    >>> is_free(Alarm(is_exploding=True)), is_free(Alarm(is_exploding=True, trust=0.5))
    (True, False)
    """
    return alarm.is_exploding and alarm.trust >= 1


def is_believed(alarm: Alarm) -> bool:
    """Say whether a weak sign of an explosion is enough: there must be trust left for a strong one.

    >>> is_believed(Alarm()), is_believed(Alarm(trust=3.0))
    (True, False)
    """
    return alarm.trust >= 1 + FEW


def answer(alarm: Alarm, *, was_right: bool, was_paid: bool) -> None:
    """Learn whether a probe of an explosion was right: small batches look like explosions, too.

    One that was not costs trust, unless the budget paid for it.

    >>> alarm = Alarm()
    >>> answer(alarm, was_right=False, was_paid=False)
    >>> alarm.trust
    4.0
    """
    if was_right:
        alarm.trust = TRUST
    elif not was_paid:
        alarm.trust = max(0.0, alarm.trust - 1)


def spend_trust(alarm: Alarm, price: float, *, leaving: float = 0.0) -> bool:
    """Say whether there is trust enough for several probes at any cost, and spend it on them.

    Args:
        alarm: Whose trust it is.
        price: The trust that they cost.
        leaving: The trust that must be left for something else.

    >>> alarm = Alarm()
    >>> spend_trust(alarm, price=3.0), alarm.trust, spend_trust(alarm, price=3.0)
    (True, 2.0, False)
    """
    if alarm.trust - price < leaving:
        return False
    alarm.trust -= price
    return True


def hold_back(alarm: Alarm, loss: float, usual: float) -> float:
    """Return the part to take of a step whose loss explodes; the loss after it shows what that did.

    What was learnt from such steps holds up to twice their loss.

    >>> alarm = Alarm()
    >>> for loss in (50.0, 50.0, 50.0, 200.0):
    ...     print(hold_back(alarm, loss, usual=1.0))
    ...     for told in (loss, 2.0):  # its own loss, and the next one
    ...         learn_from_held_back(alarm, told)
    0.02
    0.2
    1.0
    0.005
    """
    if loss > DOUBLE * alarm.held_loss:
        alarm.lenience = 1.0
    alarm.held, alarm.held_loss = OWN_AND_NEXT, loss
    return min(1.0, alarm.lenience * usual / loss)


def learn_from_held_back(alarm: Alarm, loss: float) -> None:
    """Take more of the next step that is held back if the last one did no harm; else less.

    It did none if the loss after it is less than half of its own. That may still be a surprise: a batch
    of another kind cannot be learnt without any loss for others.
    """
    if alarm.held:
        alarm.held -= 1
        if not alarm.held:
            more, less = alarm.lenience * LENIENCE, alarm.lenience / LENIENCE
            is_harmless = DOUBLE * loss < alarm.held_loss
            alarm.lenience = min(more, HUGE) if is_harmless else max(1.0, less)


def is_new_level(alarm: Alarm, *, is_surprise: bool) -> bool:
    """Count a step's surprise, if it was one; say whether the loss has another level.

    >>> alarm = Alarm()
    >>> [is_new_level(alarm, is_surprise=True) for _ in range(3)]
    [False, False, True]
    """
    alarm.surprises = FADE * alarm.surprises + is_surprise
    if alarm.surprises < NEW_LEVEL:
        return False
    alarm.surprises = 0.0
    return True
