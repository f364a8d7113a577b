"""SASA+: a constant rate until the iterates are stationary by a statistical test, then a tenth of it.

Reference: P. Zhang, H. Lang, Q. Liu, L. Xiao. Statistical adaptive stochastic gradient methods.
2020, arXiv:2002.10597. Their code: github.com/microsoft/statopt (package statopt 0.2).

Quasi-hyperbolic momentum, and the quantity whose mean is zero once theta is stationary:

    h = (1 - beta) g + beta h,    d = (1 - nu) g + nu h,    theta -= rate * d
    s = <theta, d> + (rate / 2) |d|^2, with theta after the step

The last eighth of all s since the last change of the rate is kept. Every hundred steps, once more
than a thousand are kept, their mean m is tested: with w the half-width of its confidence interval,
theta counts as stationary if [m - w, m + w] contains zero and the means of both halves have one
sign. Before the first change the interval of each half must contain zero. Then the rate is divided
by ten, h is set to zero and the samples are forgotten. w is by Student's t and the variance of a
mean of correlated samples, from the means of batches of about sqrt(N) of them.

At these settings the first test comes after 8,000 steps: a shorter training has a constant rate. The
line search by which SALSA, of the same paper, finds its first rate is left out.

Differences from the published code: samples are kept in double precision; Student's quantile is by
an expansion (Abramowitz and Stegun 26.7.5), right to three digits from four degrees of freedom on;
groups each have their own rate in s; the variance is that of batch means, which the published code
means by its default but calls by a name ("mb") that it does not know, so that it takes samples for
independent; weight decay does not change the gradient in place.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.stepping import (
    Closure,
    check_fraction,
    check_not_negative,
    check_positive,
    check_within,
    decayed_gradient,
    inner,
    movable,
    optional_loss,
)


def student_quantile(probability: float, freedom: float) -> float:
    """Return the quantile of Student's t, by its expansion in the inverse degrees of freedom.

    >>> round(student_quantile(0.975, 30), 4)
    2.0423
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


def batch_means_spread(samples: Tensor) -> tuple[float, float]:
    """Return sqrt(N) standard deviations of the mean, and degrees of freedom, by batches."""
    size = math.isqrt(len(samples))
    means = samples.unfold(0, size, size).mean(1)
    spread = (means - samples.mean()).norm() * math.sqrt(size / (len(means) - 1))
    return spread.item(), size - 1


def overlapping_spread(samples: Tensor) -> tuple[float, float]:
    """Return the same by overlapping batches."""
    size, count = math.isqrt(len(samples)), len(samples)
    means = samples.unfold(0, size, 1).mean(1)
    share = size * count / (len(means) * (len(means) - 1))
    return ((means - samples.mean()).norm() * math.sqrt(share)).item(), count - size


def independent_spread(samples: Tensor) -> tuple[float, float]:
    """Return the same for samples without correlation."""
    return samples.std().item(), len(samples) - 1


SPREADS: dict[str, Callable[[Tensor], tuple[float, float]]] = {
    "batch_means": batch_means_spread,
    "overlapping": overlapping_spread,
    "independent": independent_spread,
}


def is_stationary(samples: Tensor, significance: float, variance: str, by_halves: bool) -> bool:
    """Say whether samples of a correlated sequence may have the mean zero.

    Args:
        samples: The sequence.
        significance: Of the test.
        variance: A key of SPREADS.
        by_halves: Whether each half must pass, not only the whole.

    >>> samples = torch.tensor([1.0, -0.8] * 50)
    >>> is_stationary(samples, 0.05, "independent", False)
    True
    >>> is_stationary(samples + 1, 0.05, "independent", False)
    False
    """
    spread, freedom = SPREADS[variance](samples)
    width = spread * student_quantile(1 - significance / 2, freedom) / math.sqrt(len(samples))
    half = len(samples) // 2
    means = samples[:half].mean().item(), samples[half:].mean().item()
    tested = means if by_halves else (samples.mean().item(),)
    return means[0] * means[1] > 0 and all(abs(mean) < width for mean in tested)


class SASA(Optimizer):
    """SGD with momentum whose rate drops when a test finds the iterates stationary.

    Args:
        params: Parameters or groups of them.
        lr: The first rate; with nu = 1 it corresponds to (1 - momentum) lr of torch's SGD.
        momentum: beta, the decay of the average of gradients.
        nu: The share of that average in the direction; 0 for SGD, `momentum` for Nesterov's.
        weight_decay: L2, added to the gradient.
        warmup: Steps before the first drop.
        drop: What the rate is divided by.
        significance: Of the test.
        variance: "batch_means", "overlapping" or "independent".
        leak: One of so many samples is kept.
        min_samples: Kept samples that a test must exceed.
        test_every: Steps from one test to the next.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = SASA([w], lr=0.5, momentum=0.0)
        >>> w.square().sum().backward()
        >>> _ = opt.step()
        >>> w.item()
        0.0
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.1,
        momentum: float = 0.9,
        nu: float = 1.0,
        weight_decay: float = 0.0,
        warmup: int = 1000,
        drop: float = 10.0,
        significance: float = 0.05,
        variance: str = "batch_means",
        leak: int = 8,
        min_samples: int = 1000,
        test_every: int = 100,
    ) -> None:
        check_positive(lr=lr, leak=leak, test_every=test_every)
        check_fraction(momentum=momentum)
        check_not_negative(nu=nu, weight_decay=weight_decay, warmup=warmup)
        check_within(1.0, math.inf, drop=drop)
        check_within(0.0, 1.0, significance=significance)
        check_within(8, math.inf, min_samples=min_samples)  # three batches, and halves of them
        if variance not in SPREADS:
            raise ValueError(f"variance must be one of {sorted(SPREADS)}, got {variance!r}.")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "nu": nu,
                "weight_decay": weight_decay,
                "warmup": warmup,
                "drop": drop,
                "significance": significance,
                "variance": variance,
                "leak": leak,
                "min_samples": min_samples,
                "test_every": test_every,
                "scale": 1.0,
            },
        )
        # One test for all groups: the first group holds what it remembers.
        self.param_groups[0].update(steps=0, seen=0, samples=[], is_first=True)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Tensor | None:  # type: ignore[override]
        """Step along the average of gradients, then test whether the rate should drop."""
        loss = optional_loss(closure)
        first, sample = self.param_groups[0], 0.0
        for group in self.param_groups:
            sample += self._move(group)
        first["steps"] += 1
        self._remember(first, sample)
        is_time = len(first["samples"]) > first["min_samples"]
        if is_time and first["steps"] % first["test_every"] == 0:
            self._test(first)
        return loss

    def _move(self, group: dict[str, Any]) -> float:
        """Step with one group and return its share of s."""
        params, rate = movable(group), float(group["lr"] * group["scale"])
        directions = [self._direction(p, group) for p in params]
        for p, direction in zip(params, directions, strict=True):
            p.add_(direction, alpha=-rate)
        return inner(params, directions) + 0.5 * rate * inner(directions, directions)

    def _direction(self, p: Tensor, group: dict[str, Any]) -> Tensor:
        """Return the quasi-hyperbolic momentum of a parameter."""
        grad = decayed_gradient(p, group["weight_decay"])
        average: Tensor = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
        average.lerp_(grad, 1 - group["momentum"])
        return grad.lerp(average, group["nu"])

    @staticmethod
    def _remember(first: dict[str, Any], sample: float) -> None:
        """Keep a sample, and of all that were seen the last share."""
        first["samples"].append(sample)
        first["seen"] += 1
        del first["samples"][: -math.ceil(first["seen"] / first["leak"])]

    def _test(self, first: dict[str, Any]) -> None:
        """Drop the rate if the iterates are stationary."""
        samples = torch.tensor(first["samples"], dtype=torch.float64)
        is_still = is_stationary(
            samples, first["significance"], first["variance"], first["is_first"]
        )
        if first["steps"] <= first["warmup"] or not is_still:
            return
        first.update(seen=0, samples=[], is_first=False)
        for group in self.param_groups:
            group["scale"] /= group["drop"]
            for p in group["params"]:
                if p in self.state:
                    self.state[p]["momentum_buffer"].zero_()
