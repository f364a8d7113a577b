"""The truncated model: the linear model of the loss, cut off at the known lower bound.

Reference: H. Asi, J. C. Duchi. The importance of better models in stochastic optimization. PNAS
2019, arXiv:1903.08619; and Stochastic (approximate) proximal point methods: convergence, optimality,
and adaptivity. SIAM Journal on Optimization 2019, arXiv:1810.05633.

The proximal step on the model max(f + <g, y - theta>, f*) is

    rate = min(lr * k^(-power), (f - f*) / |g|^2),    theta -= rate * g

in step k. Their theory asks for a power between 1/2 and 1; our default 0.6 is a choice within.
With power 0 it is ALI-G without momentum and eps, and SPS_max with c = 1.
"""

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.loizou2020sps import polyak_rate
from probstep.baselines.stepping import (
    Closure,
    check_not_negative,
    check_positive,
    gradient,
    known_loss,
    movable,
    squared_norm,
)


class Truncated(Optimizer):
    """SGD whose step never overshoots the lower bound of its linear model.

    Args:
        params: Parameters or groups of them.
        lr: The rate of the first step, if it does not overshoot.
        power: How fast the rate decays.
        lower_bound: f*, 0 for losses that cannot be negative.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = Truncated([w], lr=10.0)
        >>> loss = w.square().sum()
        >>> loss.backward()
        >>> _ = opt.step(loss=loss)
        >>> w.item()  # 1 - 1 / 4 * 2
        0.5
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1.0,
        power: float = 0.6,
        lower_bound: float = 0.0,
    ) -> None:
        check_positive(lr=lr)
        check_not_negative(power=power)
        super().__init__(
            params,
            {"lr": lr, "power": power, "lower_bound": lower_bound, "step": 0, "rate": None},
        )

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Closure | None = None, *, loss: Tensor | float | None = None
    ) -> Tensor:
        """Take the proximal step on the truncated model."""
        value = known_loss(closure, loss)
        slope = squared_norm(self.param_groups)
        for group in self.param_groups:
            group["step"] += 1
            if not slope:  # a stationary point: no direction to follow
                continue
            reach = polyak_rate(value.item(), group["lower_bound"], slope, eps=0.0)
            group["rate"] = min(group["lr"] * group["step"] ** -group["power"], reach)
            for p in movable(group):
                p.add_(gradient(p), alpha=-group["rate"])
        return value
