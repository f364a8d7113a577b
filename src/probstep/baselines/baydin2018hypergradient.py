"""Hypergradient descent: the rate follows its own gradient.

Reference: A. G. Baydin, R. Cornish, D. Martinez Rubio, M. Schmidt, F. Wood. Online learning rate
adaptation with hypergradient descent. ICLR 2018, arXiv:1703.04782. Their code:
github.com/gbaydin/hypergradient-descent.

With u the direction of the last update, theta -= lr * u, the derivative of the present loss by the
rate of the last step is -<g, u>; hence, before each step, lr += hypergrad_lr * <g, u>. The rate is
`group["lr"]` itself, as published: a scheduler that overwrites `lr` erases what was learned.

Differences from the published code: several groups are allowed, each with the hypergradient of its
own rate (the publication refuses them for SGD); `p.grad` is not changed by weight decay; a
parameter without a gradient is left where it is.
"""

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.stepping import (
    check_fraction,
    check_not_negative,
    check_positive,
    decayed_gradient,
    inner,
    movable,
    optional_loss,
)


class SGDHD(Optimizer):
    """SGD, with momentum or Nesterov's, whose rate follows its hypergradient.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = SGDHD([w], lr=0.1, hypergrad_lr=0.01)
        >>> for _ in range(2):
        ...     opt.zero_grad()
        ...     w.square().sum().backward()
        ...     _ = opt.step()
        >>> round(opt.param_groups[0]["lr"], 4)  # 0.1 + 0.01 * (2 * 0.8) * 2
        0.132
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        hypergrad_lr: float = 1e-6,
    ) -> None:
        check_positive(lr=lr)
        check_not_negative(hypergrad_lr=hypergrad_lr, weight_decay=weight_decay)
        check_fraction(momentum=momentum)
        if nesterov and not momentum:
            raise ValueError("nesterov=True needs a momentum: pass momentum=0.9, for example.")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "nesterov": nesterov,
                "weight_decay": weight_decay,
                "hypergrad_lr": hypergrad_lr,
            },
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the rates along their hypergradients, then the parameters."""
        loss = optional_loss(closure)
        for group in self.param_groups:
            params = movable(group)
            grads = [decayed_gradient(p, group["weight_decay"]) for p in params]
            previous = [self.state[p].get("direction", torch.zeros_like(p)) for p in params]
            group["lr"] += group["hypergrad_lr"] * inner(grads, previous)
            for p, grad in zip(params, grads, strict=True):
                direction = self._direction(p, grad, group)
                p.add_(direction, alpha=-group["lr"])
                self.state[p]["direction"] = direction.clone()
        return loss

    def _direction(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
        """Return torch's SGD direction: the gradient, the buffer, or Nesterov's mixture."""
        if not group["momentum"]:
            return grad
        state = self.state[p]
        buffer = state.setdefault("momentum_buffer", torch.zeros_like(p))
        buffer.mul_(group["momentum"]).add_(grad)
        return grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer


class AdamHD(Optimizer):
    """Adam whose rate follows its hypergradient.

    From the second step on, h = <g, m / (sqrt(v) + eps)> * sqrt(1 - b2^(t-1)) / (1 - b1^(t-1))
    with the moments of the step before; eps is added to the uncorrected sqrt(v), as published.

    Args:
        params: Parameters or groups of them.
        lr: The initial rate.
        betas: Decay of the two moments.
        eps: Added to the root of the second moment.
        weight_decay: Coupled decay.
        hypergrad_lr: The rate of the rate.
        per_tensor: True as published: each tensor adds its h to the rate when its turn comes, so
            that later tensors step with another rate than earlier ones. False: first the sum over
            all tensors of the group, which is the derivative the paper derives.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = AdamHD([w], lr=0.1, hypergrad_lr=0.01)
        >>> for _ in range(2):
        ...     opt.zero_grad()
        ...     w.square().sum().backward()
        ...     _ = opt.step()
        >>> round(opt.param_groups[0]["lr"], 4)  # 0.1 + 0.01 * (2 * 0.9) * 1
        0.118
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        hypergrad_lr: float = 1e-8,
        per_tensor: bool = True,
    ) -> None:
        check_positive(lr=lr, eps=eps)
        check_not_negative(hypergrad_lr=hypergrad_lr, weight_decay=weight_decay)
        check_fraction(beta1=betas[0], beta2=betas[1])
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "hypergrad_lr": hypergrad_lr,
                "per_tensor": per_tensor,
            },
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the rates along their hypergradients, then the parameters."""
        loss = optional_loss(closure)
        for group in self.param_groups:
            params = movable(group)
            grads = [decayed_gradient(p, group["weight_decay"]) for p in params]
            rates = self._rates(group, params, grads)
            for p, grad, rate in zip(params, grads, rates, strict=True):
                self._observe(self.state[p], grad, group["betas"])
                p.add_(self._direction(self.state[p], group), alpha=-rate)
            group["lr"] = rates[-1] if rates else group["lr"]
        return loss

    def _rates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> list[float]:
        """Return the rate of each tensor's step."""
        changes = [
            group["hypergrad_lr"] * self._hypergradient(self.state[p], grad, group)
            for p, grad in zip(params, grads, strict=True)
        ]
        if group["per_tensor"]:
            return list(accumulate(changes, initial=group["lr"]))[1:]
        return [group["lr"] + sum(changes)] * len(params)

    def _hypergradient(self, state: dict[str, Any], grad: Tensor, group: dict[str, Any]) -> float:
        return inner([grad], [self._direction(state, group)]) if state else 0.0

    @staticmethod
    def _observe(state: dict[str, Any], grad: Tensor, betas: tuple[float, float]) -> None:
        """Update the two moments."""
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(grad), exp_avg_sq=torch.zeros_like(grad))
        state["step"] += 1
        state["exp_avg"].mul_(betas[0]).add_(grad, alpha=1 - betas[0])
        state["exp_avg_sq"].mul_(betas[1]).addcmul_(grad, grad, value=1 - betas[1])

    @staticmethod
    def _direction(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        """Return Adam's bias-corrected direction from the moments in `state`."""
        beta1, beta2 = group["betas"]
        correction = math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        direction: Tensor = state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])
        return direction.mul_(correction)
