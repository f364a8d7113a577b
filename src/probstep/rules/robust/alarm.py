"""The alarm: a loss far above its mean makes the next step a probed one.

A surprise is a question, and the probe is the answer: nothing moves before it. Several surprises in
short order say that the loss has another level: a new task, a loss that counts more, other data. Then
the statistics of the loss begin anew. (A version that lowered the scale at every surprise died of a
new task: a lasting change was a surprise for ten or twenty steps.)
"""

import math
from dataclasses import dataclass

from ...plain import FINITE, refuse_outside

SURPRISE = 5.0  # standard deviations above the mean loss
ROUNDING = 1e-6  # relative; a loss that has stood still has no deviation, only rounding
HUGE = 1e100  # a loss that is as good as infinite, and whose square is
KNOWN_AFTER = 4  # losses: fewer have no deviation to speak of
LEAST_WEIGHT = 0.05  # of a loss in the mean: it is taken over about 20 steps
KNOWN_SAFE = 0.5  # of the scale at which a confirmed surprise came: what may be returned to at once
FADE = 0.9  # what a step leaves of the count of surprises
NEW_LEVEL = 2.4  # that count, which three surprises within five steps reach


@dataclass(slots=True)
class Alarm:
    """The usual loss, and the surprises of late.

    Args:
        mean: Of the loss, over about 20 steps.
        spread: The variance of the loss around it.
        surprises: How many there were, older ones counting less.
        is_asking: Whether no probe has answered the last one yet.
        suspect: The scale at which the last one came.
        ceiling: How high the scale was let at the last one that a probe confirmed; infinite before.
        confirmed_at: The step of that probe.
    """

    mean: float = 0.0
    spread: float = 0.0
    surprises: float = 0.0
    is_asking: bool = False
    suspect: float = 0.0
    ceiling: float = math.inf
    confirmed_at: int = 1

    def __post_init__(self) -> None:
        refuse_outside(
            self,
            mean=FINITE,
            spread=(0.0, FINITE[1]),
            surprises=(0.0, FINITE[1]),
            suspect=(0.0, FINITE[1]),
            ceiling=(0.0, math.inf),
            confirmed_at=(1, math.inf),
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
    """Average a loss, the `count`-th of its level."""
    if count == 1:
        alarm.mean, alarm.spread = loss, 0.0
    weight, error = max(1 / count, LEAST_WEIGHT), loss - alarm.mean
    alarm.mean += weight * error
    alarm.spread = (1 - weight) * (alarm.spread + weight * error**2)


def ask(alarm: Alarm, scale: float) -> None:
    """Ask for a probe after a surprise at this scale."""
    if not alarm.is_asking:
        alarm.is_asking, alarm.suspect = True, scale


def answer(alarm: Alarm, scale: float, t: int, *, is_confirmed: bool) -> None:
    """Take note of the first probe after a surprise, which leaves this scale at step t.

    It confirms the surprise if it finds the loss still high, or had to shorten its step. What is then
    known to be too much is the scale of the surprise, not the one to which the probe came down.
    """
    if alarm.is_asking and is_confirmed:
        alarm.ceiling, alarm.confirmed_at = max(scale, KNOWN_SAFE * alarm.suspect), t
    alarm.is_asking = False


def largest_scale(alarm: Alarm, t: int) -> float:
    """Return how high the scale may be at step t: what blew up may come back when time has doubled.

    >>> largest_scale(Alarm(ceiling=0.1, confirmed_at=100), t=200)
    0.2
    """
    return alarm.ceiling * t / alarm.confirmed_at


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
    alarm.ceiling = math.inf  # it was not the rate
    return True
