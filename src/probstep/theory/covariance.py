"""Table 1 of the paper: the covariance eta*W whose product with the gradient is the optimizer's step.

Every row is a diagonal plus a rank-one term, `eta*W = diag(d) + c u u'`, over one flat vector of
parameters. `of_optimizer` reads it from a torch optimizer's own state, `from_curvature` makes it from
a Hessian, Gauss-Newton or Fisher matrix. ProbStep itself needs none of this: it measures the step
that the optimizer takes.

Symbols: eta = rate, g = gradient, m = the momentum that enters the step, G = second moment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, optim
from torch.func import jacrev


@dataclass(frozen=True)
class DiagonalPlusRankOne:
    """The matrix diag(d) + c u u', known by its entries d, c and u.

    >>> W = DiagonalPlusRankOne(torch.tensor([1.0, 2.0]), 3.0, torch.tensor([1.0, 0.0]))
    >>> W @ torch.tensor([1.0, 1.0])
    tensor([4., 2.])
    >>> float(W.quadratic(torch.tensor([1.0, 1.0])))
    6.0
    """

    diagonal: Tensor
    weight: Tensor | float
    vector: Tensor

    def __matmul__(self, vector: Tensor) -> Tensor:
        """Return the product with a vector."""
        return self.diagonal * vector + self.vector * (self.weight * (self.vector @ vector))

    def quadratic(self, vector: Tensor) -> Tensor:
        """Return x'Wx: for the gradient, the slope phi along the step."""
        return vector @ (self @ vector)

    def dense(self) -> Tensor:
        """Return the matrix itself."""
        return torch.diag(self.diagonal) + self.weight * torch.outer(self.vector, self.vector)

    def is_positive_definite(self) -> bool:
        """Say whether this is a covariance at all.

        By the matrix determinant lemma it is, for a positive diagonal, if and only if
        `1 + c u' diag(d)^-1 u > 0`. The paper states the weaker condition of `is_descent` instead.
        """
        remainder = 1 + self.weight * (self.vector / self.diagonal) @ self.vector
        return bool((self.diagonal > 0).all()) and float(remainder) > 0

    def is_descent(self, gradient: Tensor) -> bool:
        """Say whether the step goes down the gradient's slope, g'Wg > 0: all that Algorithm 1 needs.

        For momentum this fails when `beta <m, g> < -<g, g>`, the condition that the paper gives for
        positive definiteness; being positive definite is far rarer.
        """
        return float(self.quadratic(gradient)) > 0


def diagonal(entries: Tensor) -> DiagonalPlusRankOne:
    """Return diag(d): SGD, Adagrad and RMSprop.

    >>> diagonal(torch.tensor([2.0])).dense()
    tensor([[2.]])
    """
    return DiagonalPlusRankOne(entries, 0.0, torch.zeros_like(entries))


def with_momentum(entries: Tensor, carried: Tensor, gradient: Tensor) -> DiagonalPlusRankOne:
    """Return the W with `Wg = d*g + u`: momentum and Adam, the last two rows of Table 1.

    Here u is the part of the step that older gradients contribute (`eta beta m`, for Adam
    `eta beta_1 V m`), and the rank-one term is `u u' / <u, g>`. It does not exist where <u, g> = 0.

    >>> g = torch.tensor([1.0, 1.0])
    >>> with_momentum(torch.tensor([0.1, 0.1]), torch.tensor([0.5, 0.0]), g) @ g
    tensor([0.6000, 0.1000])
    """
    along = carried @ gradient
    if not carried.any():
        return diagonal(entries)
    if along == 0:
        raise ValueError(
            "The momentum is orthogonal to the gradient: there no W gives the optimizer's step "
            "(its rank-one weight would be infinite). The step itself is still well defined."
        )
    return DiagonalPlusRankOne(entries, 1 / along, carried)


def of_optimizer(optimizer: optim.Optimizer) -> DiagonalPlusRankOne:
    """Return eta*W of the step that the optimizer is about to take with the present gradients.

    The order of the entries is that of `flat(p.grad for each parameter)`.

    >>> w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> w.grad = torch.tensor([3.0, -1.0])
    >>> of_optimizer(torch.optim.SGD([w], lr=0.1)) @ w.grad
    tensor([ 0.3000, -0.1000])
    """
    row = ROWS.get(type(optimizer))
    if row is None:
        known = ", ".join(sorted(kind.__name__ for kind in ROWS))
        raise TypeError(
            f"No covariance is known for {type(optimizer).__name__}. Known optimizers: {known}. "
            "Add a row to ROWS in probstep/theory/covariance.py."
        )
    parts = [
        row(group, optimizer.state.get(p, {}), p.grad.detach())
        for group in optimizer.param_groups
        for p in group["params"]
        if p.grad is not None
    ]
    if not parts:
        raise ValueError("No parameter has a gradient: call backward() first.")
    return with_momentum(
        flat(part.entries for part in parts),
        flat(part.carried for part in parts),
        flat(part.gradient for part in parts),
    )


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Join tensors into one vector.

    >>> flat([torch.zeros(1, 2), torch.ones(1)])
    tensor([0., 0., 1.])
    """
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


@dataclass(frozen=True)
class Row:
    """One tensor's share of eta*W: its step is `entries * gradient + carried`."""

    entries: Tensor
    carried: Tensor
    gradient: Tensor


def _sgd(group: Mapping[str, Any], state: Mapping[str, Any], gradient: Tensor) -> Row:
    _refuse(group, "weight_decay", "nesterov", "dampening", "maximize")
    rate = float(group["lr"])
    momentum = _or_zero(state.get("momentum_buffer"), gradient)
    return Row(torch.full_like(gradient, rate), rate * group["momentum"] * momentum, gradient)


def _adagrad(group: Mapping[str, Any], state: Mapping[str, Any], gradient: Tensor) -> Row:
    _refuse(group, "weight_decay", "lr_decay", "maximize")
    second = state["sum"] + gradient**2  # torch fills the sum when the optimizer is made
    entries = float(group["lr"]) / (second.sqrt() + group["eps"])
    return Row(entries, torch.zeros_like(gradient), gradient)


def _rmsprop(group: Mapping[str, Any], state: Mapping[str, Any], gradient: Tensor) -> Row:
    _refuse(group, "weight_decay", "centered", "momentum", "maximize")
    second = _second_moment(state.get("square_avg"), gradient, group["alpha"])
    entries = float(group["lr"]) / (second.sqrt() + group["eps"])
    return Row(entries, torch.zeros_like(gradient), gradient)


def _adam(group: Mapping[str, Any], state: Mapping[str, Any], gradient: Tensor) -> Row:
    _refuse(group, "weight_decay", "amsgrad", "maximize")
    beta1, beta2 = group["betas"]
    step = int(state.get("step", 0)) + 1
    second = _second_moment(state.get("exp_avg_sq"), gradient, beta2)
    scale = (second / (1 - beta2**step)).sqrt() + group["eps"]
    entries = float(group["lr"]) / (1 - beta1**step) / scale
    momentum = _or_zero(state.get("exp_avg"), gradient)
    return Row((1 - beta1) * entries, beta1 * entries * momentum, gradient)


ROWS: dict[type[optim.Optimizer], Callable[[Mapping[str, Any], Mapping[str, Any], Tensor], Row]] = {
    optim.SGD: _sgd,
    optim.Adagrad: _adagrad,
    optim.RMSprop: _rmsprop,
    optim.Adam: _adam,
}


def _refuse(group: Mapping[str, Any], *settings: str) -> None:
    on = [name for name in settings if group.get(name)]
    if on:
        raise ValueError(f"Table 1 has no row with {', '.join(on)}: set it to 0 or False.")


def _or_zero(tensor: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if tensor is None else tensor


def _second_moment(average: Tensor | None, gradient: Tensor, decay: float) -> Tensor:
    return decay * _or_zero(average, gradient) + (1 - decay) * gradient**2


def from_curvature(curvature: Tensor, rate: float = 1.0) -> Tensor:
    """Return W = rate * curvature^-1: the adaptive Newton, Gauss-Newton or natural-gradient prior.

    >>> from_curvature(torch.tensor([[2.0]]))
    tensor([[0.5000]])
    """
    factor, failed = torch.linalg.cholesky_ex(curvature)
    if failed:
        raise ValueError(
            "The curvature matrix is not positive definite, so its inverse is no covariance. "
            "Add a multiple of the identity (damping), or use the Gauss-Newton or Fisher matrix."
        )
    return rate * torch.cholesky_inverse(factor)


def hessian_matrix(loss: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return the Hessian of a loss of one flat vector.

    >>> hessian_matrix(lambda t: t @ t, torch.zeros(1))
    tensor([[2.]])
    """
    second: Tensor = jacrev(jacrev(loss))(theta)
    return second


def gauss_newton_matrix(
    outputs: Callable[[Tensor], Tensor], loss: Callable[[Tensor], Tensor], theta: Tensor
) -> Tensor:
    """Return J'HJ for `loss(outputs(theta))`: the Hessian without the curvature of the outputs.

    >>> gauss_newton_matrix(lambda t: 3 * t, lambda y: y @ y / 2, torch.zeros(1))
    tensor([[9.]])
    """
    jacobian = jacrev(outputs)(theta).reshape(-1, theta.numel())
    at = outputs(theta)
    size = jacobian.shape[0]
    product: Tensor = jacobian.T @ hessian_matrix(loss, at).reshape(size, size) @ jacobian
    return product


def fisher_matrix(losses: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return the empirical Fisher matrix: the mean outer product of per-sample gradients.

    >>> fisher_matrix(lambda t: torch.stack([t[0], 3 * t[0]]), torch.zeros(1))
    tensor([[5.]])
    """
    gradients: Tensor = jacrev(losses)(theta)
    return gradients.T @ gradients / gradients.shape[0]
