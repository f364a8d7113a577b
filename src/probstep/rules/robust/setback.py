"""The way back after a setback: steps that were shortened, and a scale that is too low since then.

A rate that was too high for some steps throws training far away, to where slopes are thousands of times
steeper. There steps are shortened, rightly. But then training comes back, and the scale still fits the
steep place: it may be a hundredth of what was good before. The averages hold the steep slopes and allow
no rise, and the forward passes are spent. So the rule remembers the scale. When the losses are as
before, it looks again and believes what it sees. After an explosion to a million times they may never be
as before, because the weights are elsewhere. There a hundredth of the highest loss is enough.
"""

import math
from dataclasses import dataclass

from ...plain import FINITE, refuse_outside
from .alarm import LOSS_WEIGHT, Alarm
from .numbers import DOUBLE, FEW, HUNDREDTH, TENTH

KNOWN_AFTER = 1 / LOSS_WEIGHT  # losses: fewer do not tell what is usual
BACK = 1 / DOUBLE  # of the scale before the setback, which was too high: there the way back ends
FAR = TENTH  # of it: a scale that is not lower needs no way back
QUIET = float(FEW)  # times 1/(1-beta) steps with losses as before: then training has come back


@dataclass(slots=True)
class Setback:
    """What the scale was before a step had to be shortened, and whether training has come back.

    Args:
        scale: The scale of that step; 0 if there was none.
        loss: Up to it a loss is as before.
        highest: The highest loss since then; 0 before there is one.
        quiet: How many late losses were as low as that, less how many were not; one counts 1 - beta.
        is_over: Whether training has come back, but the scale has not.
    """

    scale: float = 0.0
    loss: float = 0.0
    highest: float = 0.0
    quiet: float = 0.0
    is_over: bool = False

    def __post_init__(self) -> None:
        positive = (0.0, FINITE[1])
        refuse_outside(self, scale=positive, loss=FINITE, highest=positive, quiet=positive)


def begin(setback: Setback, scale: float, alarm: Alarm, count: int) -> None:
    """Remember the scale of a step that is shortened, and the usual loss, of which `count` are known.

    Further steps that are shortened belong to the same setback.

    >>> setback = Setback()
    >>> begin(setback, 0.5, Alarm(mean=1.0, spread=0.25), count=100)
    >>> setback.scale, setback.loss
    (0.5, 1.5)
    """
    if not setback.scale and count > KNOWN_AFTER:
        setback.scale, setback.loss = scale, alarm.mean + math.sqrt(alarm.spread)


def ends(setback: Setback, loss: float, scale: float, beta: float) -> bool:
    """Count a loss after a setback; say once that training has come back, and the scale has not.

    >>> setback = Setback(scale=0.5, loss=1.0)
    >>> [ends(setback, 0.9, scale=0.01, beta=0.0) for _ in range(4)]
    [False, False, True, False]
    >>> setback = Setback(scale=0.5, loss=1.0)
    >>> [ends(setback, loss, scale=0.01, beta=0.0) for loss in (1e6, 5e3, 5e3, 5e3)]
    [False, False, False, True]
    """
    if not setback.scale:
        return False
    if scale >= BACK * setback.scale:
        forget(setback)
        return False
    setback.highest = max(setback.highest, loss)
    is_quiet = loss <= max(setback.loss, HUNDREDTH * setback.highest)
    setback.quiet = max(0.0, setback.quiet + (1 - beta) * (1 if is_quiet else -1))
    if setback.quiet < QUIET or setback.is_over:
        return False
    if scale < FAR * setback.scale:
        setback.is_over = True
    else:
        forget(setback)
    return setback.is_over


def is_way_back(setback: Setback, scale: float) -> bool:
    """Say whether a scale is on its way back.

    >>> is_way_back(Setback(scale=0.5, is_over=True), scale=0.01)
    True
    """
    return setback.is_over and scale < BACK * setback.scale


def forget(setback: Setback) -> None:
    """Look back no more."""
    setback.scale = setback.loss = setback.highest = setback.quiet = 0.0
    setback.is_over = False
