"""One step of an optimizer, seen from outside: where it began, how steep it was, how to undo it.

Measuring the displacement instead of predicting it from the optimizer's state makes one path serve
every optimizer, decoupled decay and third parties included; its price is one transient copy of the
parameters. Products are taken piece by piece, in float32 at least, and summed in float64: pieces need
no memory of the model's size, and fresh memory costs more than the arithmetic.
Numbers are this rank's share of the whole: `Ranks.total` makes them whole.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, optim

from .joint import bases_of, owner_of
from .kept import copies_of, put_back
from .ranks import ALONE, Ranks, local

# Optimizers whose `weight_decay` is the gradient of a penalty, hence part of the objective, and whose
# step depends on the parameters through it alone. (In any other, decay is in the displacement only.)
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
YES, NO = torch.ones((), device="cpu"), torch.zeros((), device="cpu")


class Moved(NamedTuple):
    """This rank's piece of one parameter that has a gradient.

    Args:
        param: The parameter as the optimizer knows it.
        before: Its value before the step.
        grad: Its gradient: a copy where the optimizer may change it.
        decay: Its coupled weight decay.
        share: One over the number of ranks that hold the same piece.
        origin: Where the optimizer began: where the parameter was, or zero.
        given: Its gradient, the tensor that was there.
    """

    param: Tensor
    before: Tensor
    grad: Tensor
    decay: float
    share: float
    origin: Tensor
    given: Tensor

    @property
    def after(self) -> Tensor:
        """Its present value."""
        return local(self.param.detach())

    def along(self, vector: Tensor) -> Iterator[Tensor]:
        """Give, in parts, the product of a vector with the displacement, origin less after."""
        after = self.after
        origin = self.origin.expand_as(after)
        if vector.is_sparse:
            rows = tuple(vector._indices())
            origin, after = origin[rows], after[rows]
        return self._weighted(torch.dot(v, o - a) for v, o, a in _pieces(vector, origin, after))

    def add_products(
        self, slope: list[Tensor], gradient: list[Tensor], length: list[Tensor]
    ) -> None:
        """Append, in parts, gradient times displacement, and the squares of both; read memory once."""
        after = self.after
        origin = self.origin if self.origin is self.before else self.origin.expand_as(after)
        if self.grad.is_sparse:  # other parts than those of the parameter
            slope += self.along(self.grad)
            gradient += self._weighted(_squares(self.grad))
            displacements = (o - a for o, a in _pieces(origin, after))
            length += self._weighted(torch.dot(v, v) for v in displacements)
            return
        v: Tensor | None = None
        for g, o, a in _pieces(self.grad, origin, after):
            is_alike = v is not None and v.shape == o.shape
            v = torch.sub(o, a, out=v) if is_alike else o - a  # fresh memory is slow
            # In this order each product finds most of what it reads in the processor's cache.
            gg, gv, vv = torch.dot(g, g), torch.dot(g, v), torch.dot(v, v)
            if self.share != 1.0:
                gg, gv, vv = self.share * gg, self.share * gv, self.share * vv
            slope.append(gv)
            gradient.append(gg)
            length.append(vv)

    def squares(self) -> Iterator[Tensor]:
        """Give, in parts, the squared norm before the step."""
        return self._weighted(torch.dot(b, b) for (b,) in _pieces(self.before))

    def squares_decrease(self) -> Iterator[Tensor]:
        """Give, in parts, by how much it fell: a product, where a difference would cancel."""
        pieces = _pieces(self.before, self.after)
        return self._weighted(torch.dot(b + a, b - a) for b, a in pieces)

    def _weighted(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        return iter(parts) if self.share == 1.0 else (self.share * part for part in parts)


@dataclass(frozen=True)
class Displacement:
    """A step of the optimizer between `begin` and whatever it does to the parameters.

    >>> w = torch.nn.Parameter(torch.tensor([1.0]))
    >>> w.grad = torch.tensor([2.0])
    >>> sgd = torch.optim.SGD([w], lr=0.5)
    >>> moved = Displacement.begin(sgd)
    >>> sgd.step()
    >>> float(moved.slope())
    2.0
    >>> moved.stretch(torch.tensor(0.5))
    >>> w.data
    tensor([0.5000])
    >>> moved.undo()
    >>> w.data
    tensor([1.])
    """

    moved: tuple[Moved, ...]
    optimizer: optim.Optimizer
    directions: tuple[Tensor, ...] | None = field(default=None, repr=False)

    @classmethod
    def begin(
        cls,
        optimizer: optim.Optimizer,
        ranks: Ranks = ALONE,
        *,
        from_zero: bool = False,
    ) -> "Displacement":
        """Copy what the step will change.

        Args:
            optimizer: Whose step it is.
            ranks: Who else holds the parameters.
            from_zero: Set the parameters to zero where the step does not depend on them, so that a
                step far below their rounding is seen exactly; `stretch` puts them back.
        """
        moved = [
            one for base in bases_of(optimizer) for one in _begin(base, ranks, from_zero=from_zero)
        ]
        step = cls(tuple(moved), optimizer)
        step.go_to_origin()
        return step

    def divided(self, is_in: Callable[[Tensor], bool]) -> tuple["Displacement", "Displacement"]:
        """Return the part of the parameters of which that is said, and the rest."""
        return self._part(is_in), self._part(lambda param: not is_in(param))

    @torch.no_grad()
    def go_to_origin(self) -> None:
        """Put the parameters where the optimizer is to begin."""
        for m in self.moved:
            if m.origin is not m.before:
                m.after.zero_()

    def sum_of_gradients(self) -> Tensor:
        """Return a number that is finite if and only if every gradient is."""
        sums = [_real(m.grad).sum(dtype=_single_or_double(m.grad.dtype)) for m in self.moved]
        return _total(sums)

    def slope(self, grad_scale: float | Tensor = 1.0, *, sign: float = 1.0) -> Tensor:
        """Return phi, the objective's gradient times the displacement.

        Args:
            grad_scale: The factor by which `.grad` differs from the gradient of the loss.
            sign: -1 if the loss is maximised.
        """
        of_loss = _total(part for m in self.moved for part in m.along(m.grad))
        return self._whole_slope(of_loss, grad_scale, sign)

    def sizes(
        self, grad_scale: float | Tensor = 1.0, *, sign: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return phi, |g|^2 and |v|^2 in one pass over the parameters: three take twice as long."""
        slope: list[Tensor] = []
        gradient: list[Tensor] = []
        length: list[Tensor] = []
        for m in self.moved:
            m.add_products(slope, gradient, length)
        of_loss, *squares = _totals(slope, gradient, length)
        return self._whole_slope(of_loss, grad_scale, sign), squares[0], squares[1]

    def squares(self) -> Tensor:
        """Return the squares of the parameters before the step and of the displacement."""
        before = _total(part for m in self.moved for part in m.squares())
        v = (o - a for m in self.moved for o, a in _pieces(m.origin.expand_as(m.after), m.after))
        return pack(before, _total(torch.dot(piece, piece) for piece in v))

    def _whole_slope(self, of_loss: Tensor, grad_scale: float | Tensor, sign: float) -> Tensor:
        """Return phi, from what the gradients say and the coupled decay."""
        if sign != 1.0:
            of_loss = sign * of_loss
        if isinstance(grad_scale, Tensor) or grad_scale != 1.0:
            of_loss = of_loss / grad_scale
        if not self.has_penalty:
            return of_loss
        parts = (m.decay * part for m in self.moved if m.decay for part in m.along(m.before))
        return of_loss + _total(parts)

    def slope_along_momentum(self, grad_scale: float | Tensor = 1.0) -> Tensor:
        """Return the slope with the optimizer's momentum in the gradient's place."""
        return (
            _total(part for m in self.moved for part in m.along(self._momentum(m.param)))
            / grad_scale
        )

    @property
    def has_penalty(self) -> bool:
        """Say whether coupled decay adds to the objective."""
        return any(m.decay for m in self.moved)

    @functools.cached_property
    def penalty(self) -> Tensor:
        """The coupled decay's share of the objective where the step began."""
        return _total(m.decay / 2 * part for m in self.moved if m.decay for part in m.squares())

    def penalty_decrease(self) -> Tensor:
        """Return by how much that share has fallen."""
        return _total(
            m.decay / 2 * part for m in self.moved if m.decay for part in m.squares_decrease()
        )

    @torch.no_grad()
    def stretch(self, factor: Tensor) -> None:
        """Take `factor` times the step instead of the step."""
        for m in self.moved:
            by = factor.to(m.before.device, _single_or_double(m.before.dtype))
            m.after.copy_(m.before - by * (m.origin - m.after))

    def keeping_direction(self) -> "Displacement":
        """Return the step with a copy of its displacement, so that it can grow as well as shrink."""
        return replace(self, directions=tuple(m.before - m.after for m in self.moved))

    def from_before(self, length: float) -> "Displacement":
        """Return the step, which has this length, as one that can take any, also a negative one."""
        moved = tuple(m._replace(origin=m.before) for m in self.moved)
        directions = self.directions or tuple((m.before - m.after) / length for m in self.moved)
        return replace(self, moved=moved, directions=directions)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Put the parameters afterwards back where they are now, bit for bit."""
        values = [m.after.clone() for m in self.moved]
        try:
            yield
        finally:
            with torch.no_grad():
                for m, value in zip(self.moved, values, strict=True):
                    m.after.copy_(value)

    @torch.no_grad()
    def resize(self, length: float, was: float) -> None:
        """Take `length` times the step, after `was` times: shorter, or any with its direction kept."""
        for k, m in enumerate(self.moved):
            if not length:  # bit for bit, and though the step were infinite
                m.after.copy_(m.before)
            elif self.directions is not None:
                m.after.copy_(m.before - length * self.directions[k])
            else:
                m.after.copy_(m.before - (length / was) * (m.before - m.after))

    @torch.no_grad()
    def undo(self) -> None:
        """Put parameters and gradients back, bit for bit."""
        for m in self.moved:
            m.after.copy_(m.before)
            m.param.grad = m.given
            if m.grad is not m.given:
                put_back(m.given, m.grad)

    def _part(self, is_in: Callable[[Tensor], bool]) -> "Displacement":
        chosen = [k for k, m in enumerate(self.moved) if is_in(m.param)]
        directions = None if self.directions is None else tuple(self.directions[k] for k in chosen)
        moved = tuple(self.moved[k] for k in chosen)
        return replace(self, moved=moved, directions=directions)

    def _momentum(self, param: Tensor) -> Tensor:
        optimizer = owner_of(self.optimizer, param)
        key = "momentum_buffer" if isinstance(optimizer, optim.SGD) else "exp_avg"
        momentum = optimizer.state[param].get(key)
        if momentum is None:
            raise ValueError(
                f"{type(optimizer).__name__} keeps no momentum of the gradient, which "
                "momentum_as_gradient needs. Use SGD with momentum or a member of the Adam family, or "
                "leave the option off."
            )
        return local(momentum)


def _begin(optimizer: optim.Optimizer, ranks: Ranks, *, from_zero: bool) -> Iterator[Moved]:
    keeps_grad = type(optimizer).__module__.startswith("torch.optim")
    groups = [
        (group, [p for p in group["params"] if p.grad is not None and p.numel()])
        for group in optimizer.param_groups
    ]
    copies = iter(copies_of([local(p.detach()) for _, moving in groups for p in moving]))
    for group, moving in groups:
        decay = _coupled_decay(optimizer, group)
        is_free = from_zero and isinstance(optimizer, COUPLED_DECAY) and not group["weight_decay"]
        for p in moving:
            before = next(copies)
            grad = local(p.grad) if keeps_grad else local(p.grad).clone()
            origin = torch.zeros_like(before[:0].sum()) if is_free else before
            yield Moved(p, before, grad, decay, ranks.share(p), origin, p.grad)


def wide(tensor: Tensor) -> Tensor:
    """Return a tensor in float64, or in the widest format that its device has.

    >>> wide(torch.tensor(1.5)).dtype
    torch.float64
    """
    return tensor.to(_wide(tensor.device))


def sums_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum and the sum of squares: they tell whether two tensors differ, and need no copy.

    >>> sums_of(torch.tensor([1, 2]))
    (tensor(3., dtype=torch.float64), tensor(5., dtype=torch.float64))
    """
    pieces = [piece for (piece,) in _pieces(local(tensor.detach()))]
    return _total(p.sum() for p in pieces), _total(torch.dot(p, p) for p in pieces)


def pack(*scalars: Tensor) -> Tensor:
    """Return device scalars as one vector, to be summed over ranks or read in one transfer.

    >>> pack(torch.tensor(1.5), torch.tensor(True))
    tensor([1.5000, 1.0000], dtype=torch.float64)
    """
    device = scalars[0].device
    dtype = _wide(device)
    return torch.stack([s.to(device, dtype) for s in scalars]).detach()


def flag(is_set: bool) -> Tensor:
    """Return 1 or 0 as a scalar for `pack`: the same two tensors always.

    >>> flag(True), flag(False)
    (tensor(1.), tensor(0.))
    """
    return YES if is_set else NO


def _coupled_decay(optimizer: optim.Optimizer, group: Mapping[str, Any]) -> float:
    is_decoupled = isinstance(optimizer, optim.AdamW) or group.get("decoupled_weight_decay", False)
    if not isinstance(optimizer, COUPLED_DECAY) or is_decoupled:
        return 0.0
    return float(group["weight_decay"])


def _squares(grad: Tensor) -> Iterator[Tensor]:
    # A sparse gradient may name a row twice, and squares are of the sum.
    whole = grad.coalesce() if grad.is_sparse else grad
    return (torch.dot(g, g) for (g,) in _pieces(whole))


def _pieces(*tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    """Cut tensors of one shape into flat pieces of at least single precision."""
    size = PIECE.get(tensors[0].device.type, PIECE_ELSEWHERE)
    flat = [_real(tensor).reshape(-1) for tensor in tensors]
    if flat[0].numel() <= size:
        return (tuple(map(_at_least_single, flat)),)
    cut = [torch.split(tensor, size) for tensor in flat]
    return (tuple(map(_at_least_single, pieces)) for pieces in zip(*cut, strict=True))


def _real(tensor: Tensor) -> Tensor:
    values = tensor._values() if tensor.is_sparse else tensor
    return torch.view_as_real(values) if values.is_complex() else values


def _at_least_single(tensor: Tensor) -> Tensor:
    dtype = tensor.dtype
    return tensor if dtype is torch.float32 else tensor.to(_single_or_double(dtype))


def _single_or_double(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


def _wide(device: torch.device) -> torch.dtype:
    # Apple's MPS has no float64.
    return torch.float32 if device.type == "mps" else torch.float64


def _total(terms: Iterable[Tensor]) -> Tensor:
    terms = list(terms)
    if not terms:
        return torch.zeros(())
    device = terms[0].device
    if any(term.dtype != terms[0].dtype or term.device != device for term in terms):
        terms = [term.to(device, _wide(device)) for term in terms]
    return torch.stack(terms).sum(dtype=_wide(device))


def _totals(*lists: list[Tensor]) -> Iterable[Tensor]:
    """Return the sum of each list; at once, and the same bits, where they are alike."""
    terms = [term for one in lists for term in one]
    kinds = {(term.dtype, term.device) for term in terms}
    if len(kinds) != 1 or len({len(one) for one in lists}) != 1:
        return [_total(one) for one in lists]
    rows = torch.stack(terms).view(len(lists), -1)
    return rows.sum(1, dtype=_wide(rows.device)).unbind()
