"""ALI-G: the Polyak step of an interpolating model, capped, with Nesterov momentum.

Reference: L. Berrada, A. Zisserman, M. P. Kumar. Training neural networks for and by
interpolation. ICML 2020, arXiv:1906.05661. Their code: github.com/oval-group/ali-g.

    rate = min(max_lr, f / (|g|^2 + eps)),    theta -= rate * g
    standard momentum:   b = mu b - rate g,    theta += mu b
    adjusted momentum:   b = mu b - g,         theta += rate mu b
    then theta is projected on the ball of radius max_norm

It assumes that the loss can be brought close to zero (the README says 0.01 or less), therefore
without an L2 term: the ball replaces it.

Differences from the published code: the cap is `group["lr"]`; the projection is a radius instead of
a function, so that a checkpoint holds it; eps is a setting of the group.
"""

import math

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.loizou2020sps import polyak_rate
from probstep.baselines.stepping import (
    Closure,
    Group,
    check_fraction,
    check_positive,
    gradient,
    inner,
    known_loss,
    movable,
    squared_norm,
)


class AliG(Optimizer):
    """SGD at the Polyak rate for a smallest loss of zero, capped at `lr`.

    Args:
        params: Parameters or groups of them.
        lr: The largest rate, their max_lr; `float("inf")` for none.
        momentum: Nesterov momentum.
        adjusted_momentum: Whether the buffer holds gradients (torch's way) instead of steps.
        max_norm: The radius of the ball; `float("inf")` for none.
        eps: Added to the squared length of the gradient.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = AliG([w], lr=10.0, eps=0.0)
        >>> loss = w.square().sum()
        >>> loss.backward()
        >>> _ = opt.step(loss=loss)
        >>> w.item()  # 1 - 1 / 4 * 2
        0.5
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.1,
        momentum: float = 0.0,
        adjusted_momentum: bool = False,
        max_norm: float = math.inf,
        eps: float = 1e-5,
    ) -> None:
        check_positive(lr=lr, max_norm=max_norm)
        check_fraction(momentum=momentum)
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "adjusted_momentum": adjusted_momentum,
                "max_norm": max_norm,
                "eps": eps,
                "rate": None,
            },
        )

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Closure | None = None, *, loss: Tensor | float | None = None
    ) -> Tensor:
        """Take the capped Polyak step, then momentum's, then project."""
        value = known_loss(closure, loss)
        slope = squared_norm(self.param_groups)
        for group in self.param_groups:
            group["rate"] = min(group["lr"], polyak_rate(value.item(), 0.0, slope, group["eps"]))
            for p in movable(group):
                p.add_(gradient(p), alpha=-group["rate"])
                self._apply_momentum(p, group)
        self._project()
        return value

    def _apply_momentum(self, p: Tensor, group: Group) -> None:
        """Move on along the buffer."""
        momentum, rate = group["momentum"], group["rate"]
        if not momentum:
            return
        buffer = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
        into, out_of = (1.0, rate) if group["adjusted_momentum"] else (rate, 1.0)
        buffer.mul_(momentum).add_(gradient(p), alpha=-into)
        p.add_(buffer, alpha=momentum * out_of)

    def _project(self) -> None:
        """Scale each group's parameters back onto its ball."""
        for group in self.param_groups:
            if math.isinf(group["max_norm"]):
                continue
            norm = math.sqrt(inner(group["params"], group["params"]))
            if norm > group["max_norm"]:
                torch._foreach_mul_(group["params"], group["max_norm"] / norm)
