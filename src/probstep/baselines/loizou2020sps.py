"""The stochastic Polyak step, bounded (SPS_max) and smoothed (SPS).

Reference: N. Loizou, S. Vaswani, I. Laradji, S. Lacoste-Julien. Stochastic Polyak step-size for
SGD: an adaptive learning rate for fast convergence. AISTATS 2021, arXiv:2002.10542. Their code:
github.com/IssamLaradji/sps.

    rate = min(bound, (f - f*) / (c |g|^2 + eps)),    theta -= rate * g

The bound is constant (SPS_max), or follows the rate: gamma^(1/n) times the rate of the step before,
n the number of batches in an epoch (their default, which they call smooth_iter). c = 1/2 gives the
factor 2 of the classic step; their experiments use 0.2.

Differences from the published code: several groups share one gradient length and have their own
bounds; f* is subtracted in the smoothed form too (it is 0 there); where |g| < 1e-8 no step is taken
and the bound is kept (the publication stores the rate 0, from which its smoothed bound never
returns); non-finite parameters are not an error here.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.stepping import (
    Closure,
    check_positive,
    gradient,
    known_loss,
    movable,
    squared_norm,
)

SMALLEST_GRADIENT = 1e-8  # the publication's: below this length no step is taken


def polyak_rate(loss: float, lower_bound: float, slope: float, eps: float) -> float:
    """Return the rate at which the linear model of the loss reaches the lower bound.

    >>> polyak_rate(loss=3.0, lower_bound=1.0, slope=4.0, eps=0.0)
    0.5
    >>> polyak_rate(loss=0.5, lower_bound=1.0, slope=4.0, eps=0.0)
    0.0
    """
    return max(loss - lower_bound, 0.0) / (slope + eps)


class SPS(Optimizer):
    """SGD at the stochastic Polyak rate.

    Args:
        params: Parameters or groups of them.
        lr: The bound of the rate: constant, or its start if `smooth`. `float("inf")` for none.
        c: The factor of the squared gradient.
        smooth: Whether the bound follows the rate.
        gamma: Growth of the bound over an epoch, if `smooth`.
        steps_per_epoch: The number of batches in an epoch, for `gamma`.
        lower_bound: f*, 0 under interpolation.
        eps: Added to the denominator.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = SPS([w], lr=10.0, smooth=False)
        >>> loss = w.square().sum()
        >>> loss.backward()
        >>> _ = opt.step(loss=loss)
        >>> abs(round(w.item(), 6))  # 1 - 1 / (0.5 * 4) * 2
        0.0
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1.0,
        c: float = 0.5,
        smooth: bool = True,
        gamma: float = 2.0,
        steps_per_epoch: int = 500,
        lower_bound: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        check_positive(lr=lr, c=c, gamma=gamma, steps_per_epoch=steps_per_epoch)
        super().__init__(
            params,
            {
                "lr": lr,
                "c": c,
                "smooth": smooth,
                "gamma": gamma,
                "steps_per_epoch": steps_per_epoch,
                "lower_bound": lower_bound,
                "eps": eps,
                "rate": None,
            },
        )

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Closure | None = None, *, loss: Tensor | float | None = None
    ) -> Tensor:
        """Take the bounded Polyak step."""
        value = known_loss(closure, loss)
        slope = squared_norm(self.param_groups)
        if slope < SMALLEST_GRADIENT**2:
            return value
        for group in self.param_groups:
            rate = polyak_rate(value.item(), group["lower_bound"], group["c"] * slope, group["eps"])
            group["rate"] = min(self._bound(group), rate)
            for p in movable(group):
                p.add_(gradient(p), alpha=-group["rate"])
        return value

    @staticmethod
    def _bound(group: dict[str, Any]) -> float:
        """Return the largest rate this step may have."""
        if not group["smooth"]:
            return float(group["lr"])
        last = group["lr"] if group["rate"] is None else group["rate"]
        return float(last * group["gamma"] ** (1 / group["steps_per_epoch"]))
