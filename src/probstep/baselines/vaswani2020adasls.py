"""AdaSLS: the stochastic line search in the metric of an adaptive method.

Reference: S. Vaswani, I. Laradji, F. Kunstner, S. Y. Meng, M. Schmidt, S. Lacoste-Julien. Adaptive
gradient methods converge faster with over-parameterization (but you should do a line-search). 2020,
arXiv:2006.06835. Their code: github.com/IssamLaradji/ada_sls.

    P = 1 / (sqrt(G) + 1e-8),    accept eta if f(theta - eta P g) <= f - c eta g'Pg, else eta *= shrink

with G the sum of squared gradients (Adagrad), their average (RMSprop), the bias-corrected average
(Adam), or the largest average so far, bias-corrected (AMSGrad). The search goes along P g; the step
that is taken goes along P m, m the bias-corrected average of the gradients, where Adam or AMSGrad
have a momentum. After 100 failed tries eta is 1e-6.

Differences from the published code: those of the SLS beside; a parameter without a gradient counts
its own steps; the Polyak step and the scalar metric of the published code are not here.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.same_batch import SameBatch
from probstep.baselines.stepping import (
    Closure,
    check_fraction,
    check_positive,
    check_within,
    inner,
)
from probstep.baselines.vaswani2019sls import FALLBACK, STARTS, Line, search_armijo

EPS = 1e-8

State = dict[str, Any]


def adagrad_metric(state: State, grad: Tensor, _: float) -> Tensor:
    """Return the sum of the squared gradients."""
    return state["square"].add_(grad * grad)  # type: ignore[no-any-return]


def rmsprop_metric(state: State, grad: Tensor, beta: float) -> Tensor:
    """Return the average of the squared gradients."""
    return state["square"].lerp_(grad * grad, 1 - beta)  # type: ignore[no-any-return]


def adam_metric(state: State, grad: Tensor, beta: float) -> Tensor:
    """Return that average, bias-corrected."""
    correction: float = 1 - beta ** state["step"]
    return rmsprop_metric(state, grad, beta) / correction


def amsgrad_metric(state: State, grad: Tensor, beta: float) -> Tensor:
    """Return the largest average so far, bias-corrected."""
    square = rmsprop_metric(state, grad, beta)
    largest = state.setdefault("largest", torch.zeros_like(square))
    torch.maximum(largest, square, out=largest)
    return largest / (1 - beta ** state["step"])  # type: ignore[no-any-return]


METRICS: dict[str, Callable[[State, Tensor, float], Tensor]] = {
    "adagrad": adagrad_metric,
    "rmsprop": rmsprop_metric,
    "adam": adam_metric,
    "amsgrad": amsgrad_metric,
}
AVERAGING = {"adam", "amsgrad"}  # the metrics that come with an average of the gradients


class AdaSLS(Optimizer):
    """An adaptive method whose rate is searched on the batch.

    Args:
        params: Parameters or groups of them.
        lr: The first step size that is tried.
        metric: "adagrad", "rmsprop", "adam" or "amsgrad".
        beta: The decay of the squared gradients' average.
        momentum: The decay of the gradients' average, for "adam" and "amsgrad".
        c: The fraction of the predicted decrease that is asked for.
        shrink: The factor after a step too large.
        start: Where a search starts: "grown", "last" or "initial".
        gamma: How much larger, over an epoch, the start of a search grows.
        steps_per_epoch: The number of batches in an epoch, for `gamma`.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = AdaSLS([w], lr=1.0)
        >>> _ = opt.step(lambda: w.square().sum())
        >>> abs(round(w.item(), 3))  # the unit step of Adagrad, grown by 2^(1/500)
        0.001
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1.0,
        metric: str = "adagrad",
        beta: float = 0.99,
        momentum: float = 0.0,
        c: float = 0.1,
        shrink: float = 0.9,
        start: str = "grown",
        gamma: float = 2.0,
        steps_per_epoch: int = 500,
    ) -> None:
        check_positive(lr=lr, c=c, gamma=gamma, steps_per_epoch=steps_per_epoch)
        check_within(0.0, 1.0, shrink=shrink)
        check_fraction(beta=beta, momentum=momentum)
        if metric not in METRICS or start not in STARTS:
            raise ValueError(
                f"metric must be one of {sorted(METRICS)} and start one of {sorted(STARTS)}, "
                f"got {metric!r} and {start!r}."
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "metric": metric,
                "beta": beta,
                "momentum": momentum,
                "c": c,
                "shrink": shrink,
                "start": start,
                "gamma": gamma,
                "steps_per_epoch": steps_per_epoch,
                "scale": 1.0,
            },
        )

    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]
        """Search along the preconditioned gradient, then step, with momentum if there is one."""
        params = [p for group in self.param_groups for p in group["params"]]
        batch = SameBatch(closure, params)
        loss, grads = batch.first_pass()
        groups = {p: group for group in self.param_groups for p in group["params"]}
        moves = [(p, g, groups[p]) for p, g in zip(params, grads, strict=True) if g is not None]
        rates = [group["lr"] * self._precondition(self.state[p], g, group) for p, g, group in moves]
        steps = [rate * g for rate, (_, g, _) in zip(rates, moves, strict=True)]
        slope = inner([g for _, g, _ in moves], steps)
        first = self.param_groups[0]
        line = Line(batch, [p for p, _, _ in moves], steps)
        found, scale = search_armijo(
            line.loss, loss.item(), slope, STARTS[first["start"]](first), first
        )
        scale = scale if found else FALLBACK / first["lr"]
        line.move(0.0)
        self._move(moves, rates, scale)
        for group in self.param_groups:
            group["scale"] = scale
        return loss

    @torch.no_grad()
    def _precondition(self, state: State, grad: Tensor, group: dict[str, Any]) -> Tensor:
        """Update the averages of one parameter and return the diagonal of P."""
        if not state:
            state.update(step=0, square=torch.zeros_like(grad), average=torch.zeros_like(grad))
        state["step"] += 1
        state["average"].lerp_(grad, 1 - group["momentum"])
        square = METRICS[group["metric"]](state, grad, group["beta"])
        return 1 / (square.sqrt() + EPS)

    @torch.no_grad()
    def _move(
        self, moves: list[tuple[Tensor, Tensor, dict[str, Any]]], rates: list[Tensor], scale: float
    ) -> None:
        """Step along P m: P g without momentum."""
        for (p, grad, group), rate in zip(moves, rates, strict=True):
            momentum = group["momentum"] if group["metric"] in AVERAGING else 0.0
            state = self.state[p]
            mean = state["average"] / (1 - momentum ** state["step"]) if momentum else grad
            p.add_(rate * mean, alpha=-scale)
