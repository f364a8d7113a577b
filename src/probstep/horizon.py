"""The end of training, if it is known: by how much the rate has come down in each step.

    factor = min(1, (horizon - t) / (END * horizon)),    in step t = 0, 1, ..., horizon - 1

It multiplies whatever a schedule makes of the rate. The first steps are left alone; the last step has a
small rate that is not zero, and so have those after it.
"""

import operator
from typing import SupportsIndex

END = 0.2  # the share of the steps in which the rate comes down


def decay(step: int, horizon: int) -> float:
    """Return the factor of the rate in step number `step`, counted from 0.

    >>> [decay(step, horizon=10) for step in (0, 8, 9, 10, 11)]
    [1.0, 1.0, 0.5, 0.5, 0.5]
    """
    left = max(horizon - step, 1)
    return min(1.0, left / (END * horizon))


def checked_horizon(steps: int | None, *, taken: int = 0) -> int | None:
    """Return a horizon if it is one, and not over yet.

    Args:
        steps: How many steps training has, from its first; None if that is not known.
        taken: How many have been taken.
    """
    if steps is None:
        return None
    if isinstance(steps, bool) or not isinstance(steps, SupportsIndex) or operator.index(steps) < 1:
        raise ValueError(
            f"horizon is a number of steps: a whole number of at least 1, or None, not {steps!r}."
        )
    if operator.index(steps) < taken:
        raise ValueError(
            f"horizon={steps}, and {taken} steps have been taken already. It counts all steps from the "
            "first of training, those before a checkpoint included: set opt.horizon to a larger number, "
            "or to None."
        )
    return operator.index(steps)
