"""Gaussian inference on the minimiser of a local quadratic: the paper's Section 2, as functions.

Nothing here knows about optimizers, steps or training loops. The scalar functions take floats or
tensors alike; the distributions are for small problems, with a covariance that is a dense matrix or
an operator of `probstep.theory.covariance` (anything with `@`).

Symbols of docs/algorithm.md: f = loss, f* = bound, R = noise, g = gradient, phi = slope = g'(eta W)g,
theta = where the loss was observed, theta* = the minimiser that is inferred. Equation numbers are the
paper's.
"""

import math
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

Scalar = TypeVar("Scalar", float, Tensor)


class Covariance(Protocol):
    """A symmetric matrix that is known by its products: a dense tensor is one."""

    def __matmul__(self, vector: Tensor, /) -> Tensor:
        """Return the product with a vector."""
        ...


def implied_bound(loss: Scalar, slope: Scalar) -> Scalar:
    """Minimum of the quadratic that the optimizer's own step implies: f - phi/2 (Section 3.2).

    Algorithm 1 prints `f - phi/2` for the *decrease*; the text, and the authors' code, mean the bound.

    >>> implied_bound(3.0, slope=1.0)
    2.5
    """
    return loss - slope / 2


def step_factor(
    loss: Scalar, bound: Scalar, slope: Scalar, noise: Scalar, *, exact: bool = False
) -> Scalar:
    """Factor 2(f - f*)/(phi + R) by which the posterior mean stretches the step (Eq. 12).

    Args:
        loss: f, the observed loss.
        bound: f*, the value at the minimum.
        slope: phi, the slope along the step.
        noise: R, the variance of the observed loss.
        exact: use 4R, which is what Eqs. 7 and 11 really give; the paper prints R.

    >>> step_factor(3.0, bound=1.0, slope=4.0, noise=0.0)
    1.0
    >>> step_factor(3.0, bound=1.0, slope=4.0, noise=1.0, exact=True)
    0.5
    """
    return 2 * (loss - bound) / (slope + (4 * noise if exact else noise))


def decrease_ratio(loss: float, loss_after: float, slope: float, step_factor: float = 1.0) -> float:
    """Observed decrease over the decrease that the implied quadratic predicts (Algorithm 1, line 18).

    The quadratic predicts `s(2 - s) phi/2` for `s` times the optimizer's step, and phi/2 for the step
    itself. On a quadratic loss the ratio is `2 - v'Hv/phi`: 2 says that no curvature was seen, 1 that
    the step ended at the minimum along it, 0 that nothing was gained.

    >>> decrease_ratio(3.0, loss_after=2.0, slope=2.0)
    1.0
    """
    return (loss - loss_after) / (step_factor * (2 - step_factor) * slope / 2)


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution over theta*.

    >>> Gaussian(torch.zeros(2), 4 * torch.eye(2)).log_density(torch.zeros(2))  # doctest: +ELLIPSIS
    -3.224...
    """

    mean: Tensor
    covariance: Covariance

    def log_density(self, point: Tensor) -> float:
        """Logarithm of the density at a point (the covariance must be a dense matrix)."""
        if not isinstance(self.covariance, Tensor):
            raise TypeError("log_density needs a dense covariance: use the operator's dense().")
        error = point - self.mean
        mahalanobis = float(error @ torch.linalg.solve(self.covariance, error))
        return -(mahalanobis + float(torch.logdet(2 * math.pi * self.covariance))) / 2


@dataclass(frozen=True)
class Likelihood:
    """The observed loss given the minimiser: N(f; g'(theta - theta*)/2 + f*, R) (Eqs. 10 and 11).

    >>> at = Likelihood(torch.zeros(1), torch.tensor([2.0]), bound=1.0, noise=0.0)
    >>> at.expected_loss(torch.tensor([-3.0]))
    4.0
    """

    theta: Tensor
    gradient: Tensor
    bound: float
    noise: float = 0.0

    def expected_loss(self, minimiser: Tensor) -> float:
        """Mean of the observed loss if the minimiser were this point (Eq. 10)."""
        return float(self.gradient @ (self.theta - minimiser)) / 2 + self.bound

    def log_density(self, loss: float, minimiser: Tensor) -> float:
        """Logarithm of Eq. 11; the noise must be positive."""
        return _log_normal(loss, self.expected_loss(minimiser), self.noise)


def log_evidence(prior: Gaussian, likelihood: Likelihood, loss: float) -> float:
    """Logarithm of p(f), the denominator of Bayes' rule (Eq. 6).

    >>> prior = Gaussian(torch.zeros(1), 4 * torch.eye(1))
    >>> log_evidence(prior, Likelihood(torch.zeros(1), torch.ones(1), bound=0.0), 0.0)
    -0.9189385332046727
    """
    g = likelihood.gradient
    variance = float(g @ (prior.covariance @ g)) / 4 + likelihood.noise
    return _log_normal(loss, likelihood.expected_loss(prior.mean), variance)


def posterior(prior: Gaussian, likelihood: Likelihood, loss: float) -> Gaussian:
    """What is known of theta* once the loss was seen: Bayes' rule (Eq. 6) in closed form.

    For the prior of Eq. 7, centred where the loss was observed, the mean is Eq. 12 with 4R: the
    observation is g'(theta - theta*)/2, so its variance g'Wg/4 + R brings R in four times. The
    covariance is W - Wgg'W/(g'Wg + 4R); the paper's footnote writes `Sigma A A' Sigma` for
    `Sigma A' A Sigma`.

    >>> prior = Gaussian(torch.zeros(2), torch.eye(2))
    >>> seen = Likelihood(torch.zeros(2), torch.tensor([2.0, 0.0]), bound=0.0)
    >>> after = posterior(prior, seen, loss=1.0)
    >>> after.mean, after.covariance
    (tensor([-1.,  0.]), tensor([[0., 0.],
            [0., 1.]]))
    """
    g = likelihood.gradient
    product = prior.covariance @ g
    total = g @ product + 4 * likelihood.noise
    surprise = loss - likelihood.expected_loss(prior.mean)
    mean = prior.mean - product * (2 * surprise / total)
    return Gaussian(mean, _minus_rank_one(prior.covariance, product / total.sqrt()))


def predict(belief: Gaussian, drift: Tensor) -> Gaussian:
    """Belief after theta* may have moved: the Chapman-Kolmogorov prediction of a random walk.

    The paper names this step (Section 2.2) and leaves it out; `drift` is the covariance of one move.

    >>> predict(Gaussian(torch.zeros(1), torch.zeros(1, 1)), drift=torch.eye(1)).covariance
    tensor([[1.]])
    """
    if not isinstance(belief.covariance, Tensor):
        raise TypeError("predict needs a dense covariance: use the operator's dense().")
    return Gaussian(belief.mean, belief.covariance + drift)


@dataclass(frozen=True)
class Downdated:
    """A covariance less a rank-one term, known by its products: W - u u'."""

    covariance: Covariance
    vector: Tensor

    def __matmul__(self, vector: Tensor) -> Tensor:
        """Return (W - u u') times a vector."""
        return self.covariance @ vector - self.vector * (self.vector @ vector)

    def dense(self) -> Tensor:
        """Return the matrix itself, column by column."""
        columns = torch.eye(len(self.vector), dtype=self.vector.dtype, device=self.vector.device)
        return torch.stack([self @ column for column in columns], dim=1)


@dataclass(frozen=True)
class Filter:
    """Repeated updates on one batch, the covariance carried along.

    On an N-dimensional quadratic with its true bound and no noise, N updates find the minimiser: each
    is one more linear equation for it, and the covariance remembers those already solved.

    >>> def bowl(theta):
    ...     return (theta @ theta) / 2, theta
    >>> start = Filter(Gaussian(torch.tensor([3.0]), torch.eye(1)), bound=0.0)
    >>> start.update(*bowl(start.belief.mean)).belief.mean
    tensor([0.])
    """

    belief: Gaussian
    bound: float
    noise: float = 0.0

    def update(self, loss: Tensor | float, gradient: Tensor) -> Self:
        """Condition on the loss and gradient observed at the present mean."""
        seen = Likelihood(self.belief.mean, gradient, self.bound, self.noise)
        return type(self)(posterior(self.belief, seen, float(loss)), self.bound, self.noise)


def _minus_rank_one(covariance: Covariance, vector: Tensor) -> Covariance:
    if isinstance(covariance, Tensor):
        return covariance - torch.outer(vector, vector)
    return Downdated(covariance, vector)


def _log_normal(value: float, mean: float, variance: float) -> float:
    return -((value - mean) ** 2) / (2 * variance) - math.log(2 * math.pi * variance) / 2
