"""vSGD: a rate for every parameter from the signal, the noise and the curvature of its gradients.

References: T. Schaul, S. Zhang, Y. LeCun. No more pesky learning rates. ICML 2013,
arXiv:1206.1106; with the curvature by finite differences of T. Schaul, Y. LeCun. Adaptive learning
rates and parallelization for stochastic, sparse, non-smooth gradients. ICLR 2013, arXiv:1301.3764
(vSGD-fd). Their code: github.com/schaul/py-optim.

Elementwise, with averages over a memory of tau steps (a -> (1 - 1/tau) a + (1/tau) new):

    g, v: of the gradient and its square;    h, w: of the curvature and its square
    curvature = |(grad(theta) - grad(theta + g)) / g|, on the same batch
    rate = (g^2 / v) (h / w),    tau = (1 - g^2 / v) tau + 1,    theta -= rate * grad

Where a gradient or a curvature lies more than one standard deviation from its average, tau is first
raised by one. The first ten steps only gather the averages, v overestimated by a factor 2, and do
not move. It has no rate to choose. The first paper computes the curvature by bbprop, the diagonal
Gauss-Newton pass, which torch has not.

Differences from the published code: the mean gradient of a mini-batch counts as one sample, so that
no per-sample gradients are needed (v then measures the noise of the batch's gradient itself); in the
first ten steps each batch is shifted by its own gradient, where theirs are one large batch.
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.same_batch import SameBatch
from probstep.baselines.stepping import Closure, check_positive

AVERAGES = ("g", "v", "h", "w")


class VSGD(Optimizer):
    """SGD with a rate of its own for every parameter, and none to choose.

    Args:
        params: Parameters or groups of them.
        slow_start: The factor by which the first v is overestimated.
        initial_steps: Steps that gather averages without moving.
        outlier: Standard deviations beyond which a sample counts as an outlier.
        eps: Against division by zero.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
        >>> opt = VSGD([w], initial_steps=1, slow_start=1.0)
        >>> for _ in range(2):
        ...     _ = opt.step(lambda: w.square().sum())
        >>> round(w.item(), 6)  # without noise it is Newton's step
        0.0
    """

    def __init__(
        self,
        params: ParamsT,
        slow_start: float = 2.0,
        initial_steps: int = 10,
        outlier: float = 1.0,
        eps: float = 1e-9,
    ) -> None:
        check_positive(slow_start=slow_start, initial_steps=initial_steps, outlier=outlier, eps=eps)
        super().__init__(
            params,
            {
                "slow_start": slow_start,
                "initial_steps": initial_steps,
                "outlier": outlier,
                "eps": eps,
            },
        )

    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]
        """Observe gradient and curvature, then step, once the averages are there."""
        groups = {p: group for group in self.param_groups for p in group["params"]}
        params = list(groups)
        batch = SameBatch(closure, params)
        loss, grads = batch.first_pass()
        shifts = [self._shift(p, g, groups[p]) for p, g in zip(params, grads, strict=True)]
        shifted = self._gradients_at(batch, params, shifts)
        for p, grad, shift, other in zip(params, grads, shifts, shifted, strict=True):
            if grad is None or other is None:
                continue
            self._observe_and_move(p, grad, ((grad - other) / shift).abs(), groups[p])
        return loss

    @torch.no_grad()
    def _shift(self, p: Tensor, grad: Tensor | None, group: dict[str, Any]) -> Tensor:
        """Return the displacement of the finite difference: the average gradient."""
        if grad is None:
            return torch.zeros_like(p)
        state = self.state[p]
        is_started = state.get("step", 0) >= group["initial_steps"]
        return (state["g"] if is_started else grad) + group["eps"]  # type: ignore[no-any-return]

    @staticmethod
    def _gradients_at(
        batch: SameBatch, params: list[Tensor], shifts: list[Tensor]
    ) -> list[Tensor | None]:
        """Return the gradients of the batch at the shifted parameters, and come back."""
        origin = [p.detach().clone() for p in params]
        with torch.no_grad():
            torch._foreach_add_(params, shifts)
        try:
            return batch.gradients_again()
        finally:
            with torch.no_grad():
                torch._foreach_copy_(params, origin)

    @torch.no_grad()
    def _observe_and_move(
        self, p: Tensor, grad: Tensor, curvature: Tensor, group: dict[str, Any]
    ) -> None:
        state = self.state[p]
        sample = dict(
            zip(AVERAGES, (grad, grad * grad, curvature, curvature * curvature), strict=True)
        )
        state["step"] = state.get("step", 0) + 1
        if state["step"] <= group["initial_steps"]:
            self._gather(state, sample, group)
            return
        state["tau"] += self._is_outlier(state, sample, group["outlier"]).to(grad.dtype)
        for name, value in sample.items():
            state[name] += (value - state[name]) / state["tau"]
        state["v"] += group["eps"]
        signal = state["g"] ** 2 / state["v"]
        state["tau"] = (1 - signal) * state["tau"] + 1 + group["eps"]
        rate = signal * (state["h"] + group["eps"]) / (state["w"] + group["eps"])
        p.sub_(rate * grad)

    @staticmethod
    def _gather(state: dict[str, Any], sample: dict[str, Tensor], group: dict[str, Any]) -> None:
        """Average over the initial steps; at the last of them overestimate the noise."""
        for name, value in sample.items():
            mean = state.setdefault(name, torch.zeros_like(value))
            mean += (value - mean) / state["step"]
        if state["step"] == group["initial_steps"]:
            state["v"] = (state["v"] + group["eps"]) * group["slow_start"]
            state["tau"] = torch.full_like(state["g"], 2 * (1 + group["eps"]))

    @staticmethod
    def _is_outlier(state: dict[str, Any], sample: dict[str, Tensor], level: float) -> Tensor:
        """Say where a sample lies far from its average, in gradient or in curvature."""
        far: list[Tensor] = [
            (sample[mean] - state[mean]) ** 2 > level**2 * (state[square] - state[mean] ** 2)
            for mean, square in (("g", "v"), ("h", "w"))
        ]
        return far[0] | far[1]
