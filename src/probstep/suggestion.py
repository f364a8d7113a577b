"""A rate that is suggested: a posterior of its decimal logarithm, its middle and its interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from .sparkline import spark

GRID = 61  # points of a posterior that is shown
ENDS = 4.0  # deviations on either side that are shown
HALVINGS = 40  # of an interval, until a quantile is as exact as numbers are
BARS = 21  # of a posterior in one line of text


@dataclass(frozen=True)
class Suggestion:
    """A rate for an optimizer, as a posterior of its decimal logarithm.

    Args:
        rate: The rate suggested, for the first group that moves: the middle of the posterior.
        low: The rate below which the best one lies in one of ten cases.
        high: The rate above which it lies in one of ten cases.
        scale: The factor by which it differs from the optimizer's own rate: for all its groups.
        grid: Decimal logarithms of rates.
        density: The posterior there; its integral over the grid is 1.
        steps: The steps that were taken in silence.
        forwards: The forward passes that were made, beside those of the steps.

    >>> print(Suggestion.mixture([-2.0], [1.0], deviation=0.25, lr=0.1))
    The rate 0.01 is suggested (between 0.0048 and 0.021).
    """

    rate: float
    low: float
    high: float
    scale: float
    grid: tuple[float, ...]
    density: tuple[float, ...]
    steps: int = 0
    forwards: int = 0

    @classmethod
    def mixture(
        cls,
        places: Sequence[float],
        shares: Sequence[float],
        deviation: float,
        lr: float,
        steps: int = 0,
        forwards: int = 0,
    ) -> "Suggestion":
        """Return the suggestion of a posterior of the decimal logarithm that is a mixture of Gaussians.

        Args:
            places: Their means.
            shares: The share of each; they sum to 1.
            deviation: Their common standard deviation.
            lr: The optimizer's own rate.
            steps: The steps that were taken in silence.
            forwards: The forward passes that were made, beside those of the steps.
        """
        parts = [NormalDist(place, deviation) for place in places]
        mean = _average(places, shares)
        spread = _average([(place - mean) ** 2 for place in places], shares)
        reach = ENDS * math.sqrt(spread + deviation**2)

        def quantile(share: float) -> float:
            low, high = mean - 2 * reach, mean + 2 * reach
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                is_below = _average([part.cdf(middle) for part in parts], shares) < share
                low, high = (middle, high) if is_below else (low, middle)
            return math.pow(10.0, (low + high) / 2)

        grid = tuple(mean + reach * (2 * k / (GRID - 1) - 1) for k in range(GRID))
        rate = quantile(0.5)
        return cls(
            rate=rate,
            low=quantile(0.1),
            high=quantile(0.9),
            scale=rate / lr,
            grid=grid,
            density=tuple(_average([part.pdf(x) for part in parts], shares) for x in grid),
            steps=steps,
            forwards=forwards,
        )

    def sparkline(self) -> str:
        """Return the posterior in one line of text, between its ends.

        >>> Suggestion.mixture([-2.0], [1.0], deviation=0.25, lr=0.1).sparkline()
        '0.001 ▁▁▁▁▂▂▃▄▆▇█▇▆▄▃▂▂▁▁▁▁ 0.1'
        """
        bars = spark(self.density, BARS)
        return f"{10 ** self.grid[0]:.2g} {bars} {10 ** self.grid[-1]:.2g}"

    def plot(self, axes: Any = None) -> Any:
        """Draw the posterior, and return the axes; without matplotlib return it in one line of text.

        Args:
            axes: Where to draw; None makes a new figure.
        """
        try:
            from matplotlib import pyplot as plt
        except ImportError:
            return self.sparkline()
        if axes is None:
            axes = plt.figure(layout="constrained").subplots()
        rates = [10**x for x in self.grid]
        is_likely = [self.low <= rate <= self.high for rate in rates]
        axes.plot(rates, self.density, color="C0")
        axes.fill_between(rates, self.density, where=is_likely, alpha=0.3, color="C0")
        axes.axvline(self.rate, color="C1")
        axes.set(xscale="log", xlabel="rate", ylabel="posterior of log10 rate", title=str(self))
        return axes

    def __str__(self) -> str:
        return (
            f"The rate {self.rate:.2g} is suggested (between {self.low:.2g} and {self.high:.2g})."
        )


def _average(values: Sequence[float], shares: Sequence[float]) -> float:
    return math.fsum(value * share for value, share in zip(values, shares, strict=True))
