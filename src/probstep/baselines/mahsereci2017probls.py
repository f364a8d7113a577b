"""The probabilistic line search: a Gaussian process along the step decides which step to accept.

Reference: M. Mahsereci, P. Hennig. Probabilistic line searches for stochastic optimization. JMLR
18(119), 2017, arXiv:1703.10034 (first NeurIPS 2015). Their Python code:
github.com/ProbabilisticNumerics/probabilistic_line_search, whose settings and policy these are.

Each step evaluates one new batch at one point theta + alpha0 t d of a line, d the negative gradient
where the line begins, first at t = 1. Loss and slope, scaled to f(0) = 0, |f'(0)| = 1, condition a
Gaussian process; their noise is estimated once per line from the samples of the batch:

    var f  = (mean l^2 - (mean l)^2) / (B - 1)
    var f' = sum_j d_j^2 (mean g_j^2 - (mean g_j)^2) / (B - 1)

The point is accepted if the Wolfe conditions hold with probability 0.3 or more: f(t) below the c1
line, f'(t) in [-0.1, 1.1]. Else the next point is the best, by that probability, of those where the
mean slope is 0.5 and of one further out, at 2 (k + 1) after k such explorations. After 10 points, 6
explorations, a non-finite loss, or if the mean slope at 0 is not negative, the line is aborted at
t = 0.01. The accepted alpha is the next alpha0, unless it changed by more than a factor 10 or the
line was aborted: then it is the running average of the accepted ones.

The first step only observes. Between acceptances the parameters stand at a trial point; `eval()`
puts them at the last accepted one and `train()` back.

Differences from the published code (Python 2, TensorFlow 0.12; it calls itself a development version
and differs from the papers, which rank candidates by expected improvement): parameters are set from
the line's origin instead of moved by increments; a line whose abort is not finite is tried again.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from probstep.baselines.mahsereci2017surrogate import Surrogate
from probstep.baselines.same_batch import gradients
from probstep.baselines.stepping import Closure, check_positive, inner

ABORT_TIME = 0.01
NOT_FINITE = (100.0, 10.0)  # the loss and slope that stand in for non-finite ones
AVERAGE = 0.95  # of the accepted step sizes


def sample_variances(
    losses: Tensor, grads: dict[Tensor, Tensor], chunk: int
) -> tuple[float, list[Tensor]]:
    """Return the variance of the mean loss and, elementwise, of its gradient.

    Args:
        losses: The loss of every sample, with its graph.
        grads: Parameters, and the gradient of the mean loss by each.
        chunk: How many samples' gradients to hold at once.

    >>> w = torch.ones(1, requires_grad=True)
    >>> losses = w * torch.tensor([1.0, 3.0])
    >>> sample_variances(losses, {w: torch.tensor([2.0])}, chunk=1)
    (1.0, [tensor([1.])])
    """
    params = list(grads)

    def sample_gradient(selector: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(losses, params, selector, retain_graph=True)

    count, freedom = len(losses), max(len(losses) - 1, 1)
    squares = [torch.zeros_like(p) for p in params]
    rows_of_identity = torch.eye(count, dtype=losses.dtype, device=losses.device)
    for selectors in torch.split(rows_of_identity, chunk):
        for square, rows in zip(squares, torch.vmap(sample_gradient)(selectors), strict=True):
            square += rows.square().sum(0)
    of_loss = losses.detach().var(correction=0).item() / freedom
    pairs = zip(squares, grads.values(), strict=True)
    return of_loss, [(square / count - grad**2) / freedom for square, grad in pairs]


class ProbLS(Optimizer):
    """SGD with the probabilistic line search.

    Args:
        params: Parameters or groups of them.
        lr: alpha0, the first step size that is tried.
        c1: The fraction of the slope at 0 that a step must gain.
        threshold: The probability at which a step is accepted (their cW).
        slope_range: Slopes that are accepted, in units of the one at 0.
        target_slope: The slope that candidates aim at.
        max_points: Points after which a line is aborted.
        max_explorations: Points further out after which a line is aborted.
        max_change: The largest change of the step size from line to line.
        push: The factor of an accepted step size in the next line (their fpush).
        chunk: Samples whose gradients are held at once.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0, -1.0]))
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
        >>> opt = ProbLS([w], lr=0.1)
        >>> losses = [opt.step(lambda: (x @ w).square()).item() for _ in range(20)]
        >>> losses[-1] < 0.01 * losses[0]
        True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.01,
        c1: float = 0.05,
        threshold: float = 0.3,
        slope_range: tuple[float, float] = (-0.1, 1.1),
        target_slope: float = 0.5,
        max_points: int = 10,
        max_explorations: int = 6,
        max_change: float = 10.0,
        push: float = 1.0,
        chunk: int = 8,
    ) -> None:
        check_positive(lr=lr, c1=c1, threshold=threshold, max_points=max_points, chunk=chunk)
        super().__init__(
            params,
            {
                "lr": lr,
                "c1": c1,
                "threshold": threshold,
                "slope_range": tuple(slope_range),
                "target_slope": target_slope,
                "max_points": max_points,
                "max_explorations": max_explorations,
                "max_change": max_change,
                "push": push,
                "chunk": chunk,
                "line": None,
            },
        )

    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]
        """Evaluate one batch at the next point of the line; accept the point if it is good.

        Args:
            closure: Returns the loss of every sample of a batch, without backward.
        """
        settings = self.param_groups[0]
        line = settings["line"] or {
            "step_size": settings["lr"],
            "average": settings["lr"],
            "times": [],
        }
        if line["times"]:
            time = self._next_time(line, settings)
            self._move(line["step_size"] * time)
            losses = self._evaluate(closure)
            self._observe(line, time, losses)
            if self._is_accepted(line, settings):
                self._choose_step_size(line, settings)
                self._begin(line, losses)
        else:
            losses = self._evaluate(closure)
            self._begin(line, losses)
        for group in self.param_groups:
            group["line"] = line
        return losses.detach().mean()

    def eval(self) -> None:
        """Put the parameters at the last accepted point."""
        self._move(0.0)

    def train(self) -> None:
        """Put the parameters back at the last evaluated point."""
        line = self.param_groups[0]["line"]
        if line is not None and line["times"]:
            self._move(line["step_size"] * line["times"][-1])

    # The line, as numbers.

    def _next_time(self, line: dict[str, Any], settings: dict[str, Any]) -> float:
        """Return where to evaluate next: at 1, at the abort, or at the best candidate."""
        if len(line["times"]) == 1:
            return 1.0
        surrogate = _surrogate(line)
        line["is_abort"] = (
            not line["is_finite"]
            or len(line["times"]) > settings["max_points"]
            or line["explorations"] >= settings["max_explorations"]
            or surrogate.slope(0.0) >= 0.0
        )
        if line["is_abort"]:
            return ABORT_TIME
        beyond: float = 2.0 * (line["explorations"] + 1)
        candidates: list[float] = [*surrogate.times_of_slope(settings["target_slope"]), beyond]
        best = max(candidates, key=lambda time: _probability(surrogate, time, settings))
        line["explorations"] += best == beyond
        return best

    def _observe(self, line: dict[str, Any], time: float, losses: Tensor) -> None:
        """Add the point just evaluated to the observations."""
        loss, slope = losses.detach().mean().item(), self._slope()
        line["is_finite"] = math.isfinite(loss) and math.isfinite(slope)
        loss, slope = (loss, slope) if line["is_finite"] else NOT_FINITE
        line["times"].append(time)
        line["values"].append((loss - line["origin_loss"]) / line["loss_unit"])
        line["slopes"].append(slope / line["slope_unit"])

    def _is_accepted(self, line: dict[str, Any], settings: dict[str, Any]) -> bool:
        """Say whether the last point may be the origin of the next line."""
        if line["is_abort"] or not line["is_finite"]:
            return bool(line["is_finite"])
        probability = _probability(_surrogate(line), line["times"][-1], settings)
        return bool(probability >= settings["threshold"])

    @staticmethod
    def _choose_step_size(line: dict[str, Any], settings: dict[str, Any]) -> None:
        """Choose the step size of the line that begins at the last point."""
        time, most = line["times"][-1], settings["max_change"]
        if not line["is_abort"] and 1 / most < time < most:
            accepted = line["step_size"] * time
            line["average"] += (1 - AVERAGE) * (accepted - line["average"])
            line["step_size"] = settings["push"] * accepted
        else:
            line["step_size"] = line["average"]

    # The line, as parameters.

    def _evaluate(self, closure: Closure | None) -> Tensor:
        """Return the losses here, with their graph, having put the gradient of the mean aside."""
        params = [p for group in self.param_groups for p in group["params"]]
        with torch.enable_grad():
            losses = _checked_losses(closure)
            grads = gradients(losses.mean(), params, retain_graph=True)
        for p, grad in zip(params, grads, strict=True):
            p.grad = grad
            if grad is not None:
                self.state[p]["grad"] = grad.clone()
        return losses

    def _begin(self, line: dict[str, Any], losses: Tensor) -> None:
        """Start a line here, down the gradient, with the noise of the losses just evaluated."""
        for p, state in self._states():
            state.update(origin=p.detach().clone(), direction=-state["grad"])
        slope = self._slope()
        line.update(times=[], values=[], slopes=[], explorations=0, is_abort=False, is_finite=True)
        if not slope:  # a stationary point: the next batch may have a direction
            return
        found = {p: p.grad for p, _ in self._states() if p.grad is not None}
        of_loss, variances = sample_variances(losses, found, self.param_groups[0]["chunk"])
        of_slope = inner(variances, [self.state[p]["direction"] ** 2 for p in found])
        slope_unit, loss_unit = abs(slope), abs(slope) * line["step_size"]
        line.update(slope_unit=slope_unit, loss_unit=loss_unit)
        line.update(times=[0.0], values=[0.0], slopes=[slope / slope_unit])
        line.update(origin_loss=losses.detach().mean().item())
        line["noise"] = (of_loss / loss_unit**2, of_slope / slope_unit**2)

    def _slope(self) -> float:
        """Return the slope along the line where it was last evaluated."""
        states = [state for _, state in self._states()]
        return inner([s["grad"] for s in states], [s["direction"] for s in states])

    @torch.no_grad()
    def _move(self, length: float) -> None:
        """Put the parameters at a length along the line."""
        for p, state in self._states():
            p.copy_(state["origin"]).add_(state["direction"], alpha=length)

    def _states(self) -> list[tuple[Tensor, dict[str, Any]]]:
        """Return the parameters that have had a gradient, with their states."""
        params = [p for group in self.param_groups for p in group["params"]]
        return [(p, self.state[p]) for p in params if p in self.state]


def _surrogate(line: dict[str, Any]) -> Surrogate:
    return Surrogate(line["times"], line["values"], line["slopes"], *line["noise"])


def _probability(surrogate: Surrogate, time: float, settings: dict[str, Any]) -> float:
    return surrogate.wolfe_probability(time, settings["c1"], settings["slope_range"])


def _checked_losses(closure: Closure | None) -> Tensor:
    """Evaluate a closure that must return one loss per sample."""
    losses = None if closure is None else closure()
    if losses is None or losses.dim() != 1:
        got = "no closure" if losses is None else f"the shape {tuple(losses.shape)}"
        raise ValueError(
            "This method needs the loss of every sample: call step(closure) with a closure that "
            f"returns a vector of losses and does not run backward. Got {got}."
        )
    return losses
