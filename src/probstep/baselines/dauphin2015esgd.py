"""Equilibrated SGD: precondition by the row norms of the Hessian, estimated by random products.

Reference: Y. N. Dauphin, H. de Vries, Y. Bengio. Equilibrated adaptive learning rates for non-convex
optimization. NeurIPS 2015, arXiv:1502.04390.

    every 20 steps:  D += (H z)^2, z ~ N(0, I), n += 1;    theta -= lr * g / (sqrt(D / n) + damping)

H z comes from a second backward pass. The random directions z are drawn from generators of the
method's own, seeded by `seed` and the number of the draw: the training's random streams are not
touched, and a resumed run draws the same ones.

The paper tunes lr and damping. The defaults here, 0.01 each, are choices: with a damping of 1e-4 this
rate lets small convolutional networks diverge while D rests on its first product.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.same_batch import SameBatch
from probstep.baselines.stepping import Closure, check_positive


def random_direction(like: Tensor, seed: int) -> Tensor:
    """Return standard normal numbers that depend on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(like.shape, generator=generator, dtype=like.dtype)
    return drawn.to(like.device)


class ESGD(Optimizer):
    """SGD preconditioned by the equilibration of the Hessian.

    Args:
        params: Parameters or groups of them.
        lr: The rate.
        damping: Added to the estimated row norms.
        every: Steps between two Hessian-vector products.
        seed: Of the random directions.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = ESGD([w], lr=0.1)
        >>> _ = opt.step(lambda: w.square().sum())
        >>> state = opt.state[w]
        >>> torch.allclose(state["equilibration"], (2 * random_direction(w, 0)) ** 2)
        True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        damping: float = 1e-2,
        every: int = 20,
        seed: int = 0,
    ) -> None:
        check_positive(lr=lr, damping=damping, every=every)
        super().__init__(
            params,
            {"lr": lr, "damping": damping, "every": every, "seed": seed, "step": 0, "draws": 0},
        )

    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]
        """Update the preconditioner when it is due, then the parameters."""
        first = self.param_groups[0]
        is_due = first["step"] % first["every"] == 0
        params = [p for group in self.param_groups for p in group["params"]]
        loss, grads = SameBatch(closure, params).first_pass(create_graph=is_due)
        if is_due:
            self._equilibrate(params, grads, first)
        self._move()
        counts = {"step": first["step"] + 1, "draws": first["draws"] + is_due}
        for group in self.param_groups:
            group.update(counts)
        return loss

    def _equilibrate(
        self, params: list[Tensor], grads: list[Tensor | None], first: dict[str, Any]
    ) -> None:
        """Add one squared random Hessian-vector product."""
        # A seed for every pair of draw and tensor, so that no two directions agree.
        seeds = [first["seed"] + first["draws"] * len(params) + i for i in range(len(params))]
        pairs = [
            (g, random_direction(p, s))
            for p, g, s in zip(params, grads, seeds, strict=True)
            if g is not None and g.requires_grad
        ]
        if not pairs:  # a linear loss has no curvature
            return
        moving = [p for p, g in zip(params, grads, strict=True) if g is not None]
        products = torch.autograd.grad(
            [g for g, _ in pairs], moving, [z for _, z in pairs], allow_unused=True
        )
        for p, product in zip(moving, products, strict=True):
            if product is not None:
                state = self.state[p]
                state.setdefault("equilibration", torch.zeros_like(p)).addcmul_(product, product)
                state["products"] = state.get("products", 0) + 1

    @torch.no_grad()
    def _move(self) -> None:
        """Take the preconditioned step."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                mean = state["equilibration"] / state["products"] if state else torch.zeros_like(p)
                p.addcdiv_(p.grad, mean.sqrt() + group["damping"], value=-group["lr"])
