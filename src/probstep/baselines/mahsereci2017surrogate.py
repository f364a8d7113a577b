"""The Gaussian process of the probabilistic line search, and the probability it gives to a step.

Reference: as in `mahsereci2017probls`. Pure functions of small float64 tensors; no optimizer.

The loss along a line has the once-integrated Wiener process as prior, started at t = -10, so that
its posterior mean is a cubic spline. Values and slopes are observed with Gaussian noise. Units: the
line search measures t in trial steps and losses in |slope at 0| times that step.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

OFFSET = 10.0
SMALLEST_VARIANCE = 1e-9  # below it a condition is decided by the mean alone
WIDEST = 8.0  # standard deviations; beyond lies less than 1e-15
FLAT = 1e-9  # a quadratic's leading coefficient below this counts as zero


def wiener_covariance(s: Tensor, s_slopes: Tensor, t: Tensor, t_slopes: Tensor) -> Tensor:
    """Return the prior covariance between values or slopes at the times s and t.

    Args:
        s: Times of the rows.
        s_slopes: Which rows are slopes rather than values.
        t: Times of the columns.
        t_slopes: Which columns are slopes.
    """
    s, t = s[:, None] + OFFSET, t[None, :] + OFFSET
    early = torch.minimum(s, t)
    value = early**3 / 3 + (s - t).abs() * early**2 / 2
    slope_of_t = torch.where(s < t, s**2 / 2, s * t - t**2 / 2)
    slope_of_s = torch.where(t < s, t**2 / 2, s * t - s**2 / 2)
    rows, columns = s_slopes[:, None], t_slopes[None, :]
    mixed = torch.where(rows, slope_of_s, torch.where(columns, slope_of_t, value))
    return torch.where(rows & columns, early, mixed)


@functools.cache
def gauss_legendre(count: int = 32) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of Gauss-Legendre quadrature on [-1, 1] (Golub and Welsch, 1969).

    >>> nodes, weights = gauss_legendre(4)
    >>> round((weights * nodes**6).sum().item(), 12) == round(2 / 7, 12)
    True
    """
    k = torch.arange(1, count, dtype=torch.float64)
    beside = k / torch.sqrt(4 * k * k - 1)
    nodes, vectors = torch.linalg.eigh(torch.diag(beside, 1) + torch.diag(beside, -1))
    return nodes, 2 * vectors[0] ** 2


def box_probability(rho: float, a_low: float, b_low: float, b_high: float) -> float:
    """Return P(A >= a_low, b_low <= B <= b_high) of two standard normals with correlation rho.

    Integrates density(b) * P(A >= a_low | b) over b, with breaks where the second factor is steep.

    >>> round(box_probability(0.0, 0.0, -math.inf, 0.0), 6)
    0.25
    >>> round(box_probability(0.5, 0.0, 0.0, math.inf), 6)  # 1/4 + arcsin(rho) / (2 pi)
    0.333333
    """
    low, high = max(b_low, -WIDEST), min(b_high, WIDEST)
    if low >= high:
        return 0.0
    rho = max(-1 + 1e-12, min(1 - 1e-12, rho))
    spread = math.sqrt(1 - rho**2)
    steep, width = (a_low / rho, WIDEST * spread / abs(rho)) if rho else (0.0, 0.0)
    inner = (min(max(b, low), high) for b in (steep - width, steep, steep + width))
    breaks = torch.tensor([low, *inner, high], dtype=torch.float64)
    nodes, weights = gauss_legendre()
    half = (breaks[1:] - breaks[:-1])[:, None] / 2
    b = breaks[:-1, None] + half * (1 + nodes)
    density = torch.exp(-(b**2) / 2) / math.sqrt(2 * math.pi)
    tail = torch.special.ndtr((rho * b - a_low) / spread)
    probability: float = (half * weights * density * tail).sum().item()
    return min(max(probability, 0.0), 1.0)


def rising_root(a: float, b: float, c: float) -> float | None:
    """Return the root of a t^2 + b t + c at which it rises, if there is one.

    >>> rising_root(1.0, 0.0, -4.0)
    2.0
    >>> rising_root(-1.0, 0.0, -4.0) is None
    True
    """
    if abs(a) < FLAT:
        return -c / b if b > FLAT else None
    discriminant = b * b - 4 * a * c
    if discriminant <= 0:
        return None
    return (-b + math.sqrt(discriminant)) / (2 * a)  # there the derivative is the root, positive


@dataclass(frozen=True)
class Surrogate:
    """The posterior of the loss along the line.

    Args:
        times: Where it was observed.
        values: What was observed there.
        slopes: The slopes observed there.
        value_noise: The variance of every value.
        slope_noise: The variance of every slope.
    """

    times: Sequence[float]
    values: Sequence[float]
    slopes: Sequence[float]
    value_noise: float
    slope_noise: float

    @functools.cached_property
    def _observed(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return times, slope marks, factorised Gram matrix and weights of the observations."""
        count = len(self.times)
        times = torch.tensor([*self.times, *self.times], dtype=torch.float64)
        marks = torch.arange(2 * count) >= count
        noise = torch.where(marks, self.slope_noise, self.value_noise).to(torch.float64)
        gram = wiener_covariance(times, marks, times, marks) + torch.diag(noise)
        seen = torch.tensor([*self.values, *self.slopes], dtype=torch.float64)
        return times, marks, gram, torch.linalg.solve(gram, seen)

    def posterior(
        self, times: Sequence[float], are_slopes: Sequence[bool]
    ) -> tuple[Tensor, Tensor]:
        """Return mean and covariance of values or slopes at some times."""
        seen, seen_marks, gram, weights = self._observed
        at, marks = torch.tensor(times, dtype=torch.float64), torch.tensor(are_slopes)
        cross = wiener_covariance(at, marks, seen, seen_marks)
        prior = wiener_covariance(at, marks, at, marks)
        return cross @ weights, prior - cross @ torch.linalg.solve(gram, cross.T)

    def slope(self, time: float) -> float:
        """Return the posterior mean of the slope.

        >>> round(Surrogate([0.0], [0.0], [-1.0], 0.0, 0.0).slope(0.0), 6)
        -1.0
        """
        return self.posterior([time], [True])[0].item()

    def wolfe_probability(self, time: float, c1: float, slope_range: tuple[float, float]) -> float:
        """Return the probability that a step satisfies the (adjusted) Wolfe conditions.

        These are: a = f(0) + c1 t f'(0) - f(t) >= 0, and b = f'(t) within `slope_range`.
        """
        mean, covariance = self.posterior([0.0, 0.0, time, time], [False, True, False, True])
        conditions = torch.tensor([[1, c1 * time, -1, 0], [0, 0, 0, 1]], dtype=torch.float64)
        a, b = (conditions @ mean).tolist()
        (var_a, cov), (_, var_b) = (conditions @ covariance @ conditions.T).tolist()
        if min(var_a, var_b) < SMALLEST_VARIANCE:
            return float(a >= 0 and b >= 0)
        sd_a, sd_b = math.sqrt(var_a), math.sqrt(var_b)
        low, high = slope_range
        return box_probability(cov / (sd_a * sd_b), -a / sd_a, (low - b) / sd_b, (high - b) / sd_b)

    def times_of_slope(self, target: float) -> list[float]:
        """Return where, between observations, the mean slope rises through a target.

        The mean slope is quadratic between neighbours, hence known from three of its points.
        """
        ends = sorted(self.times)
        cells = [(left, right) for left, right in pairwise(ends) if left < right]
        roots = [(left, right, self._root_in(left, right, target)) for left, right in cells]
        return [
            left + (right - left) * u for left, right, u in roots if u is not None and 0 < u < 1
        ]

    def _root_in(self, left: float, right: float, target: float) -> float | None:
        """Return the rising root in a cell, in units of the cell."""
        times = [left, (left + right) / 2, right]
        at0, at_half, at1 = (self.posterior(times, [True] * 3)[0] - target).tolist()
        return rising_root(2 * (at0 - 2 * at_half + at1), 4 * at_half - 3 * at0 - at1, at0)
