"""One step of an optimizer, seen from outside: where it began, how steep it was, how to undo it.

Measuring the displacement instead of predicting it from the optimizer's state makes one path serve
every optimizer, decoupled decay and third parties included; its price is one transient copy of the
parameters. Sums run in float64: a slope is the small difference of large numbers.
"""

import copy
from collections.abc import Iterable, Mapping
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


@dataclass(frozen=True)
class Moved:
    """One parameter that has a gradient: its value before the step, its gradient, its decay."""

    param: Tensor
    before: Tensor
    grad: Tensor
    decay: float


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
        norms = torch._foreach_norm([_real(m.grad) for m in self.moved], torch.inf)
        return torch.isfinite(_total(norms))

    def slope(self, grad_scale: float | Tensor = 1.0, *, sign: float = 1.0) -> Tensor:
        """Return phi, the objective's gradient times the displacement.

        Args:
            grad_scale: The factor by which `.grad` differs from the gradient of the loss.
            sign: -1 if the loss is maximised.
        """
        return sign * _total(_dot(m.grad, m) for m in self.moved) / grad_scale + self._decay_slope()

    def slope_along_momentum(self) -> Tensor:
        """Return the slope with the optimizer's momentum in the gradient's place."""
        return _total(_dot(self._momentum(m.param), m) for m in self.moved)

    def penalty(self) -> Tensor:
        """Return the coupled decay's share of the objective at the present parameters."""
        return _total(m.decay / 2 * _squared(m.param) for m in self.moved if m.decay)

    @torch.no_grad()
    def stretch(self, factor: Tensor) -> None:
        """Take `factor` times the step instead of the step."""
        for m in self.moved:
            by = factor.to(m.param.device, _real(m.param).dtype)
            m.param.copy_(m.before - by * (m.before - m.param))

    @torch.no_grad()
    def undo(self) -> None:
        """Put the parameters back, bit for bit, and the state if it was kept."""
        for m in self.moved:
            m.param.copy_(m.before)
        if self.state is not None:
            self.optimizer.state.clear()
            self.optimizer.state.update(self.state)

    def _decay_slope(self) -> Tensor:
        return _total(m.decay * _dot(m.before, m) for m in self.moved if m.decay)

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


def _dot(vector: Tensor, moved: Moved) -> Tensor:
    displacement = moved.before - moved.param.detach()
    if vector.is_sparse:
        displacement = displacement[tuple(vector._indices())]
    return _wide(_at_least_single(_real(vector)) * _at_least_single(_real(displacement)))


def _squared(tensor: Tensor) -> Tensor:
    return _wide(_at_least_single(_real(tensor.detach())).square())


def _real(tensor: Tensor) -> Tensor:
    values = tensor._values() if tensor.is_sparse else tensor
    return torch.view_as_real(values) if values.is_complex() else values


def _at_least_single(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()


def _wide(tensor: Tensor) -> Tensor:
    # Apple's MPS has no float64.
    return tensor.sum(dtype=torch.float32 if tensor.device.type == "mps" else torch.float64)


def _total(terms: Iterable[Tensor]) -> Tensor:
    terms = list(terms)
    if not terms:
        return torch.zeros((), dtype=torch.float64)
    return torch.stack([_wide(t).to(terms[0].device) for t in terms]).sum()
