"""L4: a fixed fraction of the step to the linearly predicted minimum of the loss.

Reference: M. Rolinek, G. Martius. L4: Practical loss-based stepsize adaptation for deep learning.
NeurIPS 2018, arXiv:1802.05074. Their code: github.com/martius-lab/l4-optimizer (TensorFlow).

    rate = alpha * (L - gamma * Lmin) / (<g, v> + eps),    theta -= rate * v

with g the bias-corrected average of the gradients over about 10 steps and v either the same
average (L4Mom) or Adam's direction (L4Adam; averages over 10 and 1000 steps, eps 1e-4). Lmin starts
at gamma0 times the first loss, is lowered to each smaller loss before it is used, and grows by a
factor 1 + 1/tau after each step. The method needs losses bounded below by zero and is not invariant
to adding a constant. Its authors call its performance variable (their issues #2, #5), and alpha
0.15 is often too large.

Differences from the published code: alpha is `group["lr"]`, so it may differ between groups and be
scheduled; a parameter without a gradient keeps its averages, and counts its own steps.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.stepping import (
    Closure,
    check_positive,
    check_within,
    gradient,
    inner,
    known_loss,
    movable,
)


def averaged_gradient(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """Return the bias-corrected average of the gradients: L4Mom's direction."""
    decay = 1 - 1 / group["grad_time"]
    average: Tensor = state["exp_avg"] / (1 - decay ** state["step"])
    return average


def adam_direction(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    """Return Adam's direction: L4Adam's."""
    decay = 1 - 1 / group["square_time"]
    square: Tensor = state["exp_avg_sq"] / (1 - decay ** state["step"])
    spread: Tensor = square.sqrt() + group["adam_eps"]
    return averaged_gradient(state, group) / spread


DIRECTIONS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Tensor]] = {
    "momentum": averaged_gradient,
    "adam": adam_direction,
}


class L4(Optimizer):
    """The L4 rate along the momentum direction (L4Mom) or along Adam's (L4Adam).

    Args:
        params: Parameters or groups of them.
        lr: The fraction alpha.
        direction: "momentum" or "adam".
        gamma: The fraction of the smallest loss that counts as reachable.
        gamma0: The fraction of the first loss that starts Lmin.
        tau: Steps over which Lmin is forgotten.
        grad_time: Steps of the gradient's average.
        square_time: Steps of the squared gradient's average.
        adam_eps: Added to the root of that average.
        eps: Added to <g, v>.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = L4([w])
        >>> loss = w.square().sum()
        >>> loss.backward()
        >>> _ = opt.step(loss=loss)
        >>> round(w.item(), 6)  # 1 - 0.15 * (1 - 0.9 * 0.75) / 4 * 2
        0.975625
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.15,
        direction: str = "momentum",
        gamma: float = 0.9,
        gamma0: float = 0.75,
        tau: float = 1000.0,
        grad_time: float = 10.0,
        square_time: float = 1000.0,
        adam_eps: float = 1e-4,
        eps: float = 1e-12,
    ) -> None:
        check_positive(lr=lr, gamma=gamma, gamma0=gamma0, tau=tau, eps=eps)
        check_within(1.0, math.inf, grad_time=grad_time, square_time=square_time)
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {sorted(DIRECTIONS)}, got {direction!r}.")
        super().__init__(
            params,
            {
                "lr": lr,
                "direction": direction,
                "gamma": gamma,
                "gamma0": gamma0,
                "tau": tau,
                "grad_time": grad_time,
                "square_time": square_time,
                "adam_eps": adam_eps,
                "eps": eps,
                "lowest": None,
                "rate": None,
            },
        )

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Closure | None = None, *, loss: Tensor | float | None = None
    ) -> Tensor:
        """Take the fraction of the predicted step to gamma * Lmin."""
        value = known_loss(closure, loss)
        moves = [(p, group) for group in self.param_groups for p in movable(group)]
        for p, group in moves:
            self._observe(p, group)
        averages = [averaged_gradient(self.state[p], group) for p, group in moves]
        directions = [DIRECTIONS[group["direction"]](self.state[p], group) for p, group in moves]
        slope = inner(averages, directions)
        for group in self.param_groups:
            self._choose_rate(group, value.item(), slope)
        for (p, group), direction in zip(moves, directions, strict=True):
            p.add_(direction, alpha=-group["rate"])
        return value

    def _observe(self, p: Tensor, group: dict[str, Any]) -> None:
        """Update the averages of the gradient and of its square."""
        state, grad = self.state[p], gradient(p)
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        state["step"] += 1
        state["exp_avg"].lerp_(grad, 1 / group["grad_time"])
        state["exp_avg_sq"].lerp_(grad * grad, 1 / group["square_time"])

    @staticmethod
    def _choose_rate(group: dict[str, Any], loss: float, slope: float) -> None:
        """Start Lmin or lower it to a smaller loss, set the rate, let Lmin grow."""
        lowest = group["lowest"]
        lowest = group["gamma0"] * loss if lowest is None else min(lowest, loss)
        gap = loss - group["gamma"] * lowest
        group["rate"] = group["lr"] * gap / (slope + group["eps"])
        group["lowest"] = lowest * (1 + 1 / group["tau"])
