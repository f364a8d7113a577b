"""GeN: the rate at which a parabola along the step of a base optimizer is lowest.

Reference: Z. Bu, S. Xu. Gradient descent with generalized Newton's method. ICLR 2025,
arXiv:2407.02772. Their code: github.com/ShiyunXu/gen-optim (package gen-optim 0.1.1).

With u = eta d the step of the base optimizer, every few steps two more losses of the batch,

    f+ = f(theta - u),    f- = f(theta + u),    f = f(theta)
    curvature = f+ - 2 f + f-,    descent = (f- - f+) / 2
    eta <- 0.9 eta + 0.1 min(max(eta descent / curvature, eta / 2), 2 eta)

if both are positive, and otherwise eta stays; theta -= eta d. Where a loss is not finite, eta is
halved. In exact arithmetic eta descent / curvature is <g, d> / (d'Hd), Newton's step along d.

Differences from the published code: the losses are of the batch whose gradient is at hand, from the
no-trace probe (the publication draws another batch, in training mode); the base optimizer sees each
gradient once (the publication's steps twice where it fits, so its averages count that gradient
twice); eta is `lr * scale`, one scale for all groups, so that groups keep their ratios (the
publication moves all groups towards the rate of the first). It fits by least squares and asks for a
coefficient of determination above 0.99; through three points, one of them the origin, the parabola
is exact and the coefficient is one. How often to fit is the user's choice there, at least every
fourth step by the advice of its README.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.same_batch import SameBatch
from probstep.baselines.stepping import Closure, check_fraction, check_positive, check_within
from probstep.baselines.vaswani2019sls import Line

State = dict[str, Any]


def momentum_direction(p: Tensor, grad: Tensor, state: State, group: dict[str, Any]) -> Tensor:
    """Return the step of torch's SGD at rate one, weight decay in the gradient."""
    buffer: Tensor = state.setdefault("momentum_buffer", torch.zeros_like(p))
    return buffer.mul_(group["momentum"]).add_(grad.add(p, alpha=group["weight_decay"]))


def adamw_direction(p: Tensor, grad: Tensor, state: State, group: dict[str, Any]) -> Tensor:
    """Return the step of torch's AdamW at rate one, weight decay beside it."""
    if not state:
        state.update(step=0, exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
    state["step"] += 1
    mean: Tensor = state["exp_avg"].lerp_(grad, 1 - group["momentum"])
    square: Tensor = state["exp_avg_sq"].lerp_(grad * grad, 1 - group["beta2"])
    root = (square / (1 - group["beta2"] ** state["step"])).sqrt().add(group["eps"])
    direction: Tensor = mean / (1 - group["momentum"] ** state["step"]) / root
    return direction.add(p, alpha=group["weight_decay"])


DIRECTIONS: dict[str, Callable[[Tensor, Tensor, State, dict[str, Any]], Tensor]] = {
    "momentum": momentum_direction,
    "adamw": adamw_direction,
}


def fitted_factor(
    ahead: float, here: float, behind: float, smoothing: float, limit: float
) -> float:
    """Return by what to multiply the rate, from the losses ahead of, at, and behind a point.

    >>> fitted_factor(ahead=9.0, here=4.0, behind=1.0, smoothing=0.9, limit=2.0)  # uphill
    1.0
    >>> fitted_factor(ahead=1.0, here=4.0, behind=9.0, smoothing=0.9, limit=2.0)  # the least at 2
    1.1
    >>> fitted_factor(ahead=math.nan, here=4.0, behind=9.0, smoothing=0.9, limit=2.0)
    0.5
    """
    if not math.isfinite(ahead + here + behind):
        return 1 / limit
    curvature, descent = ahead - 2 * here + behind, (behind - ahead) / 2
    if not (curvature > 0 and descent > 0):
        return 1.0
    best = max(min(descent / curvature, limit), 1 / limit)
    return smoothing + (1 - smoothing) * best


class GeN(Optimizer):
    """SGD or AdamW, its rate from a parabola through three losses of the batch.

    Args:
        params: Parameters or groups of them.
        lr: The first rate.
        direction: The base optimizer: "momentum" (torch's SGD) or "adamw".
        momentum: The base's momentum, Adam's first beta.
        beta2: Adam's second beta.
        eps: Adam's eps.
        weight_decay: The base's weight decay.
        every: Steps from one fit to the next.
        smoothing: The share of the old rate in the new one.
        limit: The largest factor that a fit may ask for, up or down.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = GeN([w], lr=0.3, momentum=0.0, every=1, smoothing=0.0)
        >>> _ = opt.step(lambda: w.square().sum())
        >>> abs(round(w.item(), 6))  # Newton's step
        0.0
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        direction: str = "momentum",
        momentum: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        every: int = 4,
        smoothing: float = 0.9,
        limit: float = 2.0,
    ) -> None:
        check_positive(lr=lr, eps=eps, every=every)
        check_fraction(momentum=momentum, beta2=beta2, smoothing=smoothing)
        check_within(1.0, math.inf, limit=limit)
        if direction not in DIRECTIONS:
            raise ValueError(f"direction must be one of {sorted(DIRECTIONS)}, got {direction!r}.")
        super().__init__(
            params,
            {
                "lr": lr,
                "direction": direction,
                "momentum": momentum,
                "beta2": beta2,
                "eps": eps,
                "weight_decay": weight_decay,
                "every": every,
                "smoothing": smoothing,
                "limit": limit,
                "scale": 1.0,
                "steps": 0,
            },
        )

    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]
        """Find the base's step, fit the parabola if it is time, and take the step."""
        groups = {p: group for group in self.param_groups for p in group["params"]}
        batch = SameBatch(closure, list(groups))
        loss, grads = batch.first_pass()
        moves = [(p, g) for p, g in zip(groups, grads, strict=True) if g is not None]
        line = Line(batch, [p for p, _ in moves], [self._step(p, g, groups[p]) for p, g in moves])
        first = self.param_groups[0]
        steps, factor = first["steps"] + 1, 1.0
        if steps % first["every"] == 0:
            around = line.loss(1.0), loss.item(), line.loss(-1.0)
            factor = fitted_factor(*around, first["smoothing"], first["limit"])
        line.move(factor)
        scale = first["scale"] * factor
        for group in self.param_groups:
            group.update(steps=steps, scale=scale)
        return loss

    @torch.no_grad()
    def _step(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
        """Return what to subtract of a parameter at the present rate."""
        direction = DIRECTIONS[group["direction"]](p, grad, self.state[p], group)
        return direction * float(group["lr"] * group["scale"])
