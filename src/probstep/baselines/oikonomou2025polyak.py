"""Polyak's rate for schedule-free SGD and Adam: no rate and no schedule to choose.

Reference: D. Oikonomou, M. Buchholz, Y.-M. Pun, R. M. Gower, N. Loizou. Taking the road less
scheduled with adaptive Polyak steps. arXiv:2511.07767, version 2 of 2026.

Three sequences: z takes the steps, x is the mean of all z and is what training delivers, and the
gradient g and the loss f are those of a point between them,

    y = (1 - beta) z + beta x
    rate = max(f - f* + beta <g, z - x>, 0) / max(<g, D^-1 g>, M)
    z -= rate D^-1 g,    x += (z - x) / t    in step t = 1, 2, ...

with D = I, or Adam's diagonal (the root of the bias-corrected average of squared gradients, plus
eps). By convexity f + <g, z - y> bounds from below, up to f*, how far a step along g brings z
closer to a minimum; z - y is beta (z - x), and at beta = 0 the rate is SPS of Loizou et al. The
safeguard M keeps the rate finite where f* is only a lower bound.

What the paper leaves to the user is chosen here: f* = 0, beta = 0.9 as in schedule-free SGD, and an
M of 1e-8, which only excludes a division by zero. There is no package of it to compare with; weight
decay is the problem's own L2 term.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.stepping import (
    Closure,
    check_fraction,
    check_positive,
    gradient,
    inner,
    known_loss,
    movable,
)

State = dict[str, Any]


def identity_metric(_: State, grad: Tensor, __: dict[str, Any]) -> Tensor:
    """Return D of SGD."""
    return torch.ones_like(grad)


def adam_metric(state: State, grad: Tensor, group: dict[str, Any]) -> Tensor:
    """Return D of Adam, having seen this gradient."""
    square: Tensor = state.setdefault("exp_avg_sq", torch.zeros_like(grad))
    square.lerp_(grad * grad, 1 - group["beta2"])
    state["seen"] = state.get("seen", 0) + 1
    unbiased: Tensor = square / (1 - float(group["beta2"]) ** state["seen"])
    return unbiased.sqrt().add(group["eps"])


METRICS: dict[str, Callable[[State, Tensor, dict[str, Any]], Tensor]] = {
    "sgd": identity_metric,
    "adam": adam_metric,
}


class ScheduleFreePolyak(Optimizer):
    """Schedule-free SGD or Adam at Polyak's rate.

    While training the parameters are y; `eval()` puts them at x, `train()` back at y.

    Args:
        params: Parameters or groups of them.
        metric: "sgd" or "adam".
        beta: Where between z and x gradients are taken.
        beta2: The decay of Adam's average of squared gradients.
        eps: Added to the root of that average.
        lower_bound: f*, 0 under interpolation.
        safeguard: M, the least denominator of the rate.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = ScheduleFreePolyak([w])
        >>> loss = w.square().sum()
        >>> loss.backward()
        >>> _ = opt.step(loss=loss)
        >>> w.item()  # 1 - 1 / 4 * 2, the first mean too
        0.5
    """

    def __init__(
        self,
        params: ParamsT,
        metric: str = "sgd",
        beta: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        lower_bound: float = 0.0,
        safeguard: float = 1e-8,
    ) -> None:
        check_fraction(beta=beta, beta2=beta2)
        check_positive(eps=eps, safeguard=safeguard)
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {sorted(METRICS)}, got {metric!r}.")
        super().__init__(
            params,
            {
                "metric": metric,
                "beta": beta,
                "beta2": beta2,
                "eps": eps,
                "lower_bound": lower_bound,
                "safeguard": safeguard,
                "steps": 0,
                "rate": None,
            },
        )

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Closure | None = None, *, loss: Tensor | float | None = None
    ) -> Tensor:
        """Move z by Polyak's step, x to the mean of all z, and the parameters between them."""
        value = known_loss(closure, loss)
        moves = [(p, group) for group in self.param_groups for p in movable(group)]
        metrics = [self._observe(p, group) for p, group in moves]
        grads = [gradient(p) for p, _ in moves]
        directions = [grad / metric for grad, metric in zip(grads, metrics, strict=True)]
        gaps = [group["beta"] * (self.state[p]["z"] - self.state[p]["x"]) for p, group in moves]
        ahead, slope = inner(grads, gaps), inner(grads, directions)
        for group in self.param_groups:
            gain = value.item() - group["lower_bound"] + ahead
            rate = max(gain, 0.0) / max(slope, group["safeguard"])
            group.update(steps=group["steps"] + 1, rate=rate)
        for (p, group), direction in zip(moves, directions, strict=True):
            state = self.state[p]
            state["z"].add_(direction, alpha=-group["rate"])
            state["x"].lerp_(state["z"], 1 / group["steps"])
        self.train()
        return value

    def eval(self) -> None:
        """Put the parameters at the mean x."""
        self._place(lambda state, _: state["x"])

    def train(self) -> None:
        """Put the parameters where the next gradient is taken."""
        self._place(lambda state, group: state["z"].lerp(state["x"], group["beta"]))

    @torch.no_grad()
    def _place(self, point: Callable[[State, dict[str, Any]], Tensor]) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p in self.state:
                    p.copy_(point(self.state[p], group))

    def _observe(self, p: Tensor, group: dict[str, Any]) -> Tensor:
        """Return the metric of a parameter; before its first step x, y and z are one."""
        state = self.state[p]
        if not state:
            state.update(z=p.detach().clone(), x=p.detach().clone())
        return METRICS[group["metric"]](state, gradient(p), group)
