"""One step of an optimizer, seen from outside: where it began, how steep it was, how to undo it.

Measuring the displacement instead of predicting it from the optimizer's state makes one path serve
every optimizer, decoupled decay and third parties included; its price is one transient copy of the
parameters. Products are taken piece by piece, in float32 at least, and summed in float64: pieces need
no memory of the model's size, and fresh memory costs more than the arithmetic.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, optim

# Optimizers whose `weight_decay` is the gradient of a penalty, hence part of the objective.
# (In any other, decay is part of the displacement only.)
COUPLED_DECAY = (
    optim.SGD,
    optim.Adadelta,
    optim.Adagrad,
    optim.Adam,
    optim.Adamax,
    optim.ASGD,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
)

PIECE = {"cpu": 1 << 17}  # elements at a time; elsewhere larger, since there every call has a price
PIECE_ELSEWHERE = 1 << 26


@dataclass(frozen=True)
class Moved:
    """One parameter that has a gradient: its value before the step, its gradient, its decay."""

    param: Tensor
    before: Tensor
    grad: Tensor
    decay: float

    def along(self, vector: Tensor) -> Tensor:
        """Return the product of a vector with the displacement, before less after."""
        before, after = self.before, self.param.detach()
        if vector.is_sparse:
            rows = tuple(vector._indices())
            before, after = before[rows], after[rows]
        return _sum_of(lambda v, b, a: torch.dot(v, b - a), vector, before, after)

    def penalty(self) -> Tensor:
        """Return the decay's share of the objective before the step."""
        return self.decay / 2 * _sum_of(torch.dot, self.before, self.before)

    def penalty_decrease(self) -> Tensor:
        """Return by how much that share fell: a product, where a difference would cancel."""
        after = self.param.detach()
        return self.decay / 2 * _sum_of(lambda b, a: torch.dot(b + a, b - a), self.before, after)


@dataclass(frozen=True)
class Step:
    """A step of the optimizer between `begin` and whatever it does to the parameters.

    >>> w = torch.nn.Parameter(torch.tensor([1.0]))
    >>> w.grad = torch.tensor([2.0])
    >>> sgd = torch.optim.SGD([w], lr=0.5)
    >>> step = Step.begin(sgd)
    >>> sgd.step()
    >>> float(step.slope())
    2.0
    >>> step.stretch(torch.tensor(0.5))
    >>> w.data
    tensor([0.5000])
    >>> step.undo()
    >>> w.data
    tensor([1.])
    """

    moved: tuple[Moved, ...]
    optimizer: optim.Optimizer
    state: Mapping[Tensor, Any] | None = field(default=None, repr=False)

    @classmethod
    def begin(cls, optimizer: optim.Optimizer, *, keep_state: bool = False) -> "Step":
        """Copy what the step will change; with `keep_state` also the optimizer's state."""
        keeps_grad = type(optimizer).__module__.startswith("torch.optim")
        moved = tuple(
            Moved(p, p.detach().clone(), p.grad if keeps_grad else p.grad.clone(), decay)
            for group in optimizer.param_groups
            for decay in [_coupled_decay(optimizer, group)]
            for p in group["params"]
            if p.grad is not None and p.numel()
        )
        state = {p: copy.deepcopy(s) for p, s in optimizer.state.items()} if keep_state else None
        return cls(moved, optimizer, state)

    def has_finite_gradients(self) -> Tensor:
        """Say, on the device, whether every gradient is finite."""
        return torch.isfinite(_total(_sum_of(torch.sum, m.grad) for m in self.moved))

    def slope(self, grad_scale: float | Tensor = 1.0, *, sign: float = 1.0) -> Tensor:
        """Return phi, the objective's gradient times the displacement.

        Args:
            grad_scale: The factor by which `.grad` differs from the gradient of the loss.
            sign: -1 if the loss is maximised.
        """
        of_loss = _total(m.along(m.grad) for m in self.moved)
        of_decay = _total(m.decay * m.along(m.before) for m in self.moved if m.decay)
        return sign * of_loss / grad_scale + of_decay

    def slope_along_momentum(self) -> Tensor:
        """Return the slope with the optimizer's momentum in the gradient's place."""
        return _total(m.along(self._momentum(m.param)) for m in self.moved)

    def penalty(self) -> Tensor:
        """Return the coupled decay's share of the objective where the step began."""
        return _total(m.penalty() for m in self.moved if m.decay)

    def penalty_decrease(self) -> Tensor:
        """Return by how much that share has fallen."""
        return _total(m.penalty_decrease() for m in self.moved if m.decay)

    @torch.no_grad()
    def stretch(self, factor: Tensor) -> None:
        """Take `factor` times the step instead of the step."""
        for m in self.moved:
            by = factor.to(m.param.device, _real(m.param).dtype)
            m.param.sub_(m.before).mul_(by).add_(m.before)

    @torch.no_grad()
    def undo(self) -> None:
        """Put the parameters back, bit for bit, and the state if it was kept."""
        for m in self.moved:
            m.param.copy_(m.before)
        if self.state is not None:
            self.optimizer.state.clear()
            self.optimizer.state.update(self.state)

    def _momentum(self, param: Tensor) -> Tensor:
        state = self.optimizer.state[param]
        for key in ("momentum_buffer", "exp_avg"):
            if state.get(key) is not None:
                return state[key]  # type: ignore[no-any-return]
        raise ValueError(
            f"{type(self.optimizer).__name__} keeps no momentum, which momentum_as_gradient needs. "
            "Use SGD with momentum or a member of the Adam family, or leave the option off."
        )


def read(*scalars: Tensor) -> list[float]:
    """Return device scalars as numbers, in one transfer.

    >>> read(torch.tensor(1.5), torch.tensor(True))
    [1.5, 1.0]
    """
    device = scalars[0].device
    values: list[float] = torch.stack([_wide(s.detach()).to(device) for s in scalars]).tolist()
    return values


def _coupled_decay(optimizer: optim.Optimizer, group: Mapping[str, Any]) -> float:
    if type(optimizer) not in COUPLED_DECAY or group.get("decoupled_weight_decay", False):
        return 0.0
    return float(group["weight_decay"])


def _sum_of(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Sum a function of flat pieces over whole tensors of one shape."""
    size = PIECE.get(tensors[0].device.type, PIECE_ELSEWHERE)
    pieces = zip(*(torch.split(_real(t).reshape(-1), size) for t in tensors), strict=True)
    return _total(_wide(function(*map(_at_least_single, piece))) for piece in pieces)


def _real(tensor: Tensor) -> Tensor:
    values = tensor._values() if tensor.is_sparse else tensor
    return torch.view_as_real(values) if values.is_complex() else values


def _at_least_single(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _wide(scalar: Tensor) -> Tensor:
    # Apple's MPS has no float64.
    return scalar.to(torch.float32 if scalar.device.type == "mps" else torch.float64)


def _total(terms: Iterable[Tensor]) -> Tensor:
    terms = list(terms)
    if not terms:
        return torch.zeros((), dtype=torch.float64)
    return torch.stack([term.to(terms[0].device) for term in terms]).sum()
