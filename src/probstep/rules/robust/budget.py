"""The account of forward passes: what probes may cost.

A budget holds so many passes at once, and so many for every step. Beside it there is a reserve for what
cannot wait: surprises and great doubt, because what blows up grows at every step.
"""

from .numbers import HALF_AGAIN, SETTLED, TENTH

Budget = tuple[float, float]  # forward passes at once, and for every step

RESERVE = HALF_AGAIN  # times the budget per step, for as many steps as training takes to settle
LOOKS = int(1 / TENTH)  # forward passes for a scale that is to come back, whatever was spent before


def allowed(budget: Budget, t: int) -> float:
    """Return the forward passes that a budget allows up to step t.

    >>> allowed((40.0, 0.5), t=10)
    45.0
    """
    at_once, per_step = budget
    return at_once + per_step * t


def reserve(budget: Budget, t: int) -> float:
    """Return the forward passes beside the budget up to step t: none once training has settled.

    From then on regular probes need less than the budget allows, and what they leave is the reserve.

    >>> reserve((40.0, 0.5), t=10), reserve((40.0, 0.5), t=1000)
    (7.5, 0.0)
    """
    _, per_step = budget
    return RESERVE * per_step * t if t < SETTLED else 0.0


def spent_before_looks(budget: Budget, t: int, spent: int, *, with_reserve: bool) -> int:
    """Return what counts as spent, so that ten passes are left in great doubt, and none without it.

    >>> spent_before_looks((40.0, 0.5), t=10, spent=999, with_reserve=True)
    42
    """
    most = allowed(budget, t) + (reserve(budget, t) if with_reserve else 0.0)
    return min(spent, max(0, int(most) - LOOKS))
