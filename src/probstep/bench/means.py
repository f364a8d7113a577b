"""Means and quantiles of a few numbers, as everything in the bench takes them."""

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean; numbers near the largest float do not overflow.

    >>> mean([1.0, 3.0]), mean([1.7e308, 1.7e308])
    (2.0, 1.7e+308)
    """
    return sum(value / len(values) for value in values)


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean; infinite if one of the values is, zero if one of them is.

    >>> geometric_mean([1.0, 4.0]), geometric_mean([1.0, math.inf]), geometric_mean([0.0, 4.0])
    (2.0, inf, 0.0)

    Raises:
        ValueError: A value is negative.
    """
    if any(value < 0 for value in values):
        raise ValueError(f"Negative numbers have no geometric mean: {min(values)} is one.")
    if min(values) == max(values):  # exactly, where a logarithm would round
        return values[0]
    if math.inf in values or 0.0 in values:
        return math.inf if math.inf in values else 0.0
    return math.exp(mean([math.log(value) for value in values]))


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value below which a share of the values lies, linear between neighbours.

    >>> quantile([3.0, 1.0, 2.0], 0.5), quantile([0.0, 1.0], 0.25), quantile([], 0.5)
    (2.0, 0.25, None)
    """
    if not values:
        return None
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
    return low if low == high else low + (position % 1) * (high - low)
