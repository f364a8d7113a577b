"""Stochastic line search: backtrack on the batch until it decreases enough.

Reference: S. Vaswani, A. Mishkin, I. Laradji, M. Schmidt, G. Gidel, S. Lacoste-Julien. Painless
stochastic gradient: interpolation, line-search, and convergence rates. NeurIPS 2019,
arXiv:1905.09997. Their code: github.com/IssamLaradji/sls.

    Armijo:     accept eta if f(theta - eta g) <= f - c eta |g|^2, else eta *= shrink
    Goldstein:  further, if f(theta - eta g) < f - (1 - c) eta |g|^2, eta *= grow, up to the largest

A search starts from the last accepted eta times gamma^(1/n), n the number of batches in an epoch.

Differences from the published code: trial losses come from the no-trace probe (the publication
reseeds from the clock, so that all steps within one second share one dropout mask, and its trials
move the running statistics of BatchNorm); eta is `lr * scale`, one scale for all groups, so that
groups keep their ratios and one search is made (the publication searches group by group); a
non-finite trial counts as too large; a Goldstein search ends when the largest step is reached.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.same_batch import SameBatch
from probstep.baselines.stepping import Closure, check_positive, check_within, inner

TRIES = 100
SMALLEST_GRADIENT = 1e-8  # below this length no step is taken
FALLBACK = 1e-6  # the step after a search that failed
SMALLEST_SCALE = 1e-8  # of a Goldstein search


class Line:
    """The loss of a batch along a direction, as a function of the scale of the step.

    Evaluating it moves the parameters there and leaves them there.

    Args:
        batch: The loss of the batch.
        params: The parameters, at the origin of the line.
        steps: What to subtract from each at scale one.
    """

    def __init__(self, batch: SameBatch, params: Sequence[Tensor], steps: Sequence[Tensor]) -> None:
        self._batch = batch
        self._params = params
        self._origin = [p.detach().clone() for p in params]
        self._steps = steps

    @torch.no_grad()
    def move(self, scale: float) -> None:
        """Put the parameters at `scale` along the line."""
        for p, origin, step in zip(self._params, self._origin, self._steps, strict=True):
            p.copy_(origin).add_(step, alpha=-scale)

    def loss(self, scale: float) -> float:
        """Return the loss there."""
        self.move(scale)
        return self._batch.loss_again()


def search_armijo(
    loss_at: Callable[[float], float],
    loss: float,
    slope: float,
    scale: float,
    group: dict[str, Any],
) -> tuple[bool, float]:
    """Return whether a step satisfies Armijo's condition, and the last scale.

    >>> search_armijo(lambda s: (1 - 2 * s) ** 2, 1.0, 4.0, 2.0, {"c": 0.1, "shrink": 0.5})
    (True, 0.5)
    """
    for _ in range(TRIES):
        if loss_at(scale) <= loss - group["c"] * scale * slope:
            return True, scale
        scale *= group["shrink"]
    return False, scale


def search_goldstein(
    loss_at: Callable[[float], float],
    loss: float,
    slope: float,
    scale: float,
    group: dict[str, Any],
) -> tuple[bool, float]:
    """Return the first scale that satisfies both of Goldstein's conditions, or the last one tried.

    >>> settings = {"c": 0.1, "shrink": 0.5, "grow": 2.0, "largest": 10.0, "lr": 1.0}
    >>> search_goldstein(lambda s: (1 - 2 * s) ** 2, 1.0, 4.0, 0.01, settings)
    (True, 0.16)
    """
    c, largest = group["c"], group["largest"] / group["lr"]
    for _ in range(TRIES):
        trial = loss_at(scale)
        is_small_enough = trial <= loss - c * scale * slope
        is_large_enough = trial >= loss - (1 - c) * scale * slope or scale == largest
        if is_small_enough and is_large_enough:
            break
        if is_small_enough:
            scale = min(scale * group["grow"], largest)
        else:
            scale = max(scale * group["shrink"], SMALLEST_SCALE)
    return True, scale


SEARCHES = {"armijo": search_armijo, "goldstein": search_goldstein}
STARTS: dict[str, Callable[[dict[str, Any]], float]] = {
    "last": lambda group: float(group["scale"]),
    "grown": lambda group: float(group["scale"] * group["gamma"] ** (1 / group["steps_per_epoch"])),
    "initial": lambda _: 1.0,
}


class SLS(Optimizer):
    """SGD whose step is searched on the batch.

    Args:
        params: Parameters or groups of them.
        lr: The first step size that is tried.
        search: "armijo" or "goldstein".
        c: The fraction of the predicted decrease that is asked for.
        shrink: The factor after a step too large (their beta_b).
        grow: The factor after a step too small, Goldstein only (their beta_f).
        largest: The largest step size, Goldstein only (their eta_max).
        start: Where a search starts: "grown", "last" or "initial" (their reset_option 1, 0, 2).
        gamma: How much larger, over an epoch, the start of a search grows.
        steps_per_epoch: The number of batches in an epoch, for `gamma`.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0]))
        >>> opt = SLS([w], lr=1.0)
        >>> _ = opt.step(lambda: w.square().sum())
        >>> round(opt.param_groups[0]["scale"], 3)  # 0.9^2 grown by 2^(1/500)
        0.811
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1.0,
        search: str = "armijo",
        c: float = 0.1,
        shrink: float = 0.9,
        grow: float = 2.0,
        largest: float = 10.0,
        start: str = "grown",
        gamma: float = 2.0,
        steps_per_epoch: int = 500,
    ) -> None:
        check_positive(lr=lr, c=c, largest=largest, gamma=gamma, steps_per_epoch=steps_per_epoch)
        check_within(0.0, 1.0, shrink=shrink)
        check_within(1.0, math.inf, grow=grow)
        if search not in SEARCHES or start not in STARTS:
            raise ValueError(
                f"search must be one of {sorted(SEARCHES)} and start one of {sorted(STARTS)}, "
                f"got {search!r} and {start!r}."
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "search": search,
                "c": c,
                "shrink": shrink,
                "grow": grow,
                "largest": largest,
                "start": start,
                "gamma": gamma,
                "steps_per_epoch": steps_per_epoch,
                "scale": 1.0,
            },
        )

    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]
        """Search along the gradient and stay at the step that is found."""
        params = [p for group in self.param_groups for p in group["params"]]
        batch = SameBatch(closure, params)
        loss, grads = batch.first_pass()
        moves = [(p, g) for p, g in zip(params, grads, strict=True) if g is not None]
        rates = {p: group["lr"] for group in self.param_groups for p in group["params"]}
        steps = [rates[p] * g for p, g in moves]
        slope = inner([g for _, g in moves], steps)
        first = self.param_groups[0]
        scale = STARTS[first["start"]](first)
        if slope > first["lr"] * SMALLEST_GRADIENT**2:  # not at a rate of zero either
            line = Line(batch, [p for p, _ in moves], steps)
            found, scale = SEARCHES[first["search"]](line.loss, loss.item(), slope, scale, first)
            if not found:
                line.move(FALLBACK / first["lr"])
        for group in self.param_groups:
            group["scale"] = scale
        return loss
