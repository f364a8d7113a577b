"""Estimators of what Eq. 12 needs beyond the step: the lower bound f* and the noise R of the loss.

A lower bound is None (the implied quadratic's), a number, or one of the estimators below; a noise is a
number, a function of the loss, or SampleNoise. Settings are frozen; what an estimator remembers is
plain data that ProbStep keeps in the optimizer's param_groups.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class LowerBound(Protocol):
    """Anything that can say, step by step, how low the loss might get."""

    def init(self) -> dict[str, Any]:
        """Return the memory before the first step: plain data."""
        ...

    def estimate(self, memory: dict[str, Any], loss: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the bound for this loss and the memory for the next step."""
        ...


@dataclass(frozen=True)
class Interpolation:
    """The bound is zero: right for models that can fit every sample (Section 3.1).

    >>> Interpolation().estimate({}, torch.tensor(2.5))
    (tensor(0.), {})
    """

    def init(self) -> dict[str, Any]:
        """Return the memory before the first step: nothing."""
        return {}

    def estimate(self, memory: dict[str, Any], loss: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the bound for this loss and the memory for the next step."""
        return torch.zeros_like(loss), memory


@dataclass(frozen=True)
class RunningMinimum:
    """L4's bound: a fraction of the smallest loss seen, which is slowly forgotten.

    It reads the loss at every step, probed or not, which on an accelerator waits for the device.

    Args:
        fraction: gamma, the share of the smallest loss that is taken for reachable.
        start: gamma_0, the share of the first loss with which the minimum begins.
        forget: tau, the steps in which the minimum grows by a factor e.

    Reference:
        Rolinek and Martius (2018), L4: Practical loss-based stepsize adaptation for deep learning,
        arXiv:1802.05074.

    >>> bound, memory = RunningMinimum().estimate(RunningMinimum().init(), torch.tensor(2.0))
    >>> round(float(bound), 4), round(memory["lowest"], 4)
    (1.35, 1.5015)
    """

    fraction: float = 0.9
    start: float = 0.75
    forget: float = 1000.0

    def __post_init__(self) -> None:
        for name in ("fraction", "start"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"RunningMinimum({name}=) must lie between 0 and 1.")
        if not self.forget > 0:
            raise ValueError("RunningMinimum(forget=) must be positive: a number of steps.")

    def init(self) -> dict[str, Any]:
        """Return the memory before the first step."""
        return {"lowest": math.inf}

    def estimate(self, memory: dict[str, Any], loss: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the bound for this loss and the memory for the next step."""
        value = loss.item()
        if value < 0:
            raise ValueError(
                f"RunningMinimum needs a loss that is never negative, not {value:.4g}: a fraction of a "
                "negative minimum lies above it. Use a number as lower_bound, or none."
            )
        lowest = min(memory["lowest"], value)
        if math.isinf(memory["lowest"]):
            lowest = self.start * value
        bound = torch.full_like(loss, self.fraction * lowest)
        return bound, {"lowest": lowest * (1 + 1 / self.forget)}


@dataclass(frozen=True)
class KnownBound:
    """A bound that is given: the same at every step.

    >>> KnownBound(0.5).estimate({}, torch.tensor(2.5))
    (tensor(0.5000), {})
    """

    value: float

    def init(self) -> dict[str, Any]:
        """Return the memory before the first step: nothing."""
        return {}

    def estimate(self, memory: dict[str, Any], loss: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Return the bound for this loss and the memory for the next step."""
        return torch.full_like(loss, self.value), memory


@dataclass(frozen=True)
class SampleNoise:
    """The central-limit estimate of R: the variance of the per-sample losses over their number.

    The closure (or `loss=`) must then give the vector of per-sample losses instead of their mean. A
    batch of one sample tells nothing of the variance; its noise counts as zero.

    >>> SampleNoise().variance(torch.tensor([1.0, 3.0]))
    tensor(1.)
    """

    def variance(self, losses: Tensor) -> Tensor:
        """Return the variance of the mean of the losses."""
        if losses.numel() < 2:
            return torch.zeros((), dtype=losses.dtype, device=losses.device)
        return losses.var() / losses.numel()


Noise = float | Callable[[Tensor], Tensor] | SampleNoise
