"""The search of the first batch for the order of magnitude of the rate.

It begins with a step that changes the loss just visibly. While the loss bends too little the step is
made longer, and where it bends too much shorter. The result does not depend on the user's rate.

A loss may be rough at short lengths and smooth at longer ones: with weights that are rounded to a few
levels it is a staircase, and its gradients are those of a slope over the stairs. So if the very first
step bends too much, longer ones are looked at before that is believed.
"""

import math
from dataclasses import dataclass

from ...plain import refuse_outside
from ..protocol import Observation, Proposal
from .numbers import DOUBLE, HALF_AGAIN, HUNDREDTH, TENTH

VISIBLE = 1 / HUNDREDTH  # roundings of the loss that a step must be able to change to be judged
STRAIGHT = TENTH  # a bend below it says only that the step is far too short
TOO_BENT = HALF_AGAIN  # a bend above it: the step went beyond the minimum, almost to no gain
LONGER, SHORTER = 1 / TENTH, TENTH  # the largest change of a length between two probes
GAP = DOUBLE  # a length is good enough within this factor of one that is too long
AIM = 1 / DOUBLE  # the search ends half way to the minimum along the first step, at the ratio 1.5
UP = DOUBLE  # the most by which the rate may exceed that of the last length probed
BEYOND = DOUBLE  # times the rate at which a step could last be seen: late searches find no more
ROUGH = HUNDREDTH  # of the loss: a step that promises less may bend because the loss is rough there
TRIES = 30  # forward passes, after which the length is taken as it is
TAKEN = TENTH  # of the length found: its batch may be like no other; the next step is probed, too
UNLIKE = TENTH  # of the first loss: where the second is lower, the first batch was like no other


@dataclass(slots=True)
class Search:
    """How far the search has come.

    Args:
        is_done: Whether it is over.
        too_long: The lowest rate that proved too high.
        found: The scale that it found; 0 before. Until the step that is taken has been probed, too, the
            search is not over.
        has_failed: It was made again and saw nothing, as after convergence: the scale stays.
        rough: The first rate, if it bent too much, so that longer steps are looked at; 0 if not.
        has_looked: Whether that look is over.
        is_untried: No step at what it found has been probed yet.
    """

    is_done: bool = False
    too_long: float = math.inf
    found: float = 0.0
    has_failed: bool = False
    rough: float = 0.0
    has_looked: bool = False
    is_untried: bool = False

    def __post_init__(self) -> None:
        not_negative = (0.0, math.inf)
        refuse_outside(self, too_long=not_negative, found=not_negative, rough=not_negative)


def is_visible(step: Proposal) -> bool:
    """Say whether a step can change the loss by so much more than its rounding that it can be judged."""
    return abs(step.slope) > VISIBLE * step.resolution


def first_length(proposal: Proposal) -> float:
    """Return the share of a step at which its predicted change of the loss is just visible.

    >>> first_length(Proposal(loss=1.0, slope=50.0, resolution=1e-3))
    0.002
    """
    slope = proposal.slope
    if not (slope > 0 and math.isfinite(proposal.loss) and math.isfinite(slope)):
        return 0.0
    # The smallest float instead of 0: a length of 0 could never be made longer.
    return VISIBLE * max(proposal.resolution, math.ulp(0.0)) / slope


def next_length(
    search: Search, seen: Observation, bend: float, room: float = math.inf
) -> float | None:
    """Return the factor from this length to the next one to probe; None ends the search.

    Args:
        search: How far the search has come.
        seen: What the probe of this length saw.
        bend: Curvature over slope along it.
        room: How many times longer a step may be at most.

    >>> step = Proposal(loss=1.0, slope=0.5, rate=0.01)
    >>> next_length(Search(), Observation(step, loss_after=0.5), bend=0.0)
    10.0
    """
    rate = seen.step.rate
    if seen.tries == 1:
        search.too_long, search.rough = math.inf, 0.0  # another batch has others
    if seen.tries < TRIES and not search.has_looked:
        again = _look_on(search, seen.step, bend)
        if again is not None:
            return again
    if bend > TOO_BENT:
        search.too_long = min(search.too_long, rate)
    gap = search.too_long / rate
    # Where a loss is a sum of terms that cancel, its rounding is larger than it seems, and the first
    # length bends by nothing else. So it is not believed.
    is_first = seen.tries == 1 and STRAIGHT <= bend < math.inf
    is_short = seen.tries < TRIES and bend < STRAIGHT and gap > GAP
    if is_first or is_short:
        longer = LONGER if is_first else min(LONGER, math.sqrt(gap))
        if room > min(longer, GAP):
            return min(longer, room)
    elif seen.tries < TRIES and bend > TOO_BENT:
        return max(SHORTER, 1 / bend)
    search.is_done = True
    return None


def _look_on(search: Search, step: Proposal, bend: float) -> float | None:
    """Return the factor to the next length in a look beyond rough ground; None where it is smooth.

    It goes on while all steps bend too much and promise little. If none is smooth, it goes back to the
    first.
    """
    if bend > TOO_BENT:
        search.rough = search.rough or step.rate
        if math.isfinite(bend) and 0 < step.slope < ROUGH * abs(step.loss):
            return LONGER
    search.has_looked = True
    return search.rough / step.rate if bend > TOO_BENT and search.rough < step.rate else None


def final_factor(bend: float, beta: float, room: float = math.inf) -> float:
    """Return what makes a good rate of that of the last length; 1 if its bend says nothing.

    With momentum a gradient acts 1/(1-beta) times, but later gradients correct a part of it. The root
    is the geometric mean of counting all of it and counting nothing.

    >>> final_factor(bend=1.0, beta=0.0)
    0.5
    """
    if not math.isfinite(bend) or bend <= 0:
        return min(1.0, room)
    return min(min(AIM / bend, UP) * math.sqrt(1 - beta), room)
