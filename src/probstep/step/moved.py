"""One parameter while an optimizer steps: where it was, its gradient, and products with both.

Products are taken piece by piece, in float32 at least, and summed in float64: pieces need no memory of
the model's size, and fresh memory costs more than the arithmetic.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, optim

from .kept import copies_of, has_step_of_class
from .ranks import Ranks, local
from .scalars import total, totals, totals_at_once, wide

# The steps of optimizers whose `weight_decay` is the gradient of a penalty, hence part of the objective,
# and whose step depends on the parameters through it alone. (In any other, decay is in the displacement
# only.) A subclass may have a step of its own: LARS, written as a subclass of SGD.
COUPLED_DECAY = {
    inspect.unwrap(kind.step)
    for kind in (
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
}

PIECE = 1 << 17  # elements at a time on the CPU
PIECE_ELSEWHERE = 1 << 26  # larger, since there every call has a price

Parts = list[Tensor]  # of a sum


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
        value = self.param.detach()
        return value if type(value) is Tensor else local(value)

    def along(self, vector: Tensor) -> Iterator[Tensor]:
        """Give, in parts, the product of a vector with the displacement, origin less after."""
        after = self.after
        origin = self.origin.expand_as(after)
        if vector.is_sparse:
            rows = tuple(vector._indices())
            origin, after = origin[rows], after[rows]
        return self._weighted(torch.dot(v, o - a) for v, o, a in pieces_of(vector, origin, after))

    def add_products(self, slope: Parts, gradient: Parts, length: Parts) -> None:
        """Append, in parts, gradient times displacement, and the squares of both; read memory once."""
        after = self.after
        origin = self.origin if self.origin is self.before else self.origin.expand_as(after)
        if self.grad.is_sparse:  # it holds only some rows of the parameter
            slope += self.along(self.grad)
            gradient += self._weighted(_squares(self.grad))
            displacements = (o - a for o, a in pieces_of(origin, after))
            length += self._weighted(torch.dot(v, v) for v in displacements)
            return
        v: Tensor | None = None
        for g, o, a in pieces_of(self.grad, origin, after):
            is_alike = v is not None and v.shape == o.shape
            v = torch.sub(o, a, out=v) if is_alike else o - a  # fresh memory is slow
            # In this order each product finds most of what it reads in the processor's cache.
            gg, gv, vv = torch.dot(g, g), torch.dot(g, v), torch.dot(v, v)
            if self.share != 1.0:
                gg, gv, vv = self.share * gg, self.share * gv, self.share * vv
            slope.append(gv)
            gradient.append(gg)
            length.append(vv)

    @property
    def is_plain(self) -> bool:
        """Whether it and its gradient are ordinary tensors of single precision, held here alone."""
        before, grad = self.before, self.grad
        is_ordinary = type(before) is type(grad) is Tensor and before.is_cpu and not grad.is_sparse
        is_single = before.dtype is grad.dtype is torch.float32
        return is_ordinary and is_single and self.origin is before and self.share == 1.0

    def squares(self) -> Iterator[Tensor]:
        """Give, in parts, the squared norm before the step."""
        return self._weighted(torch.dot(b, b) for (b,) in pieces_of(self.before))

    def squares_decrease(self) -> Iterator[Tensor]:
        """Give, in parts, by how much that fell: as a product, because a difference would cancel."""
        pieces = pieces_of(self.before, self.after)
        return self._weighted(torch.dot(b + a, b - a) for b, a in pieces)

    def _weighted(self, parts: Iterable[Tensor]) -> Iterator[Tensor]:
        return iter(parts) if self.share == 1.0 else (self.share * part for part in parts)


def begin_all(optimizer: optim.Optimizer, ranks: Ranks, *, from_zero: bool) -> Iterator[Moved]:
    """Copy the parameters that have a gradient; the arguments are those of `Displacement.begin`."""
    keeps_grad = type(optimizer).__module__.startswith("torch.optim")
    keeps_grad = keeps_grad and has_step_of_class(optimizer)
    is_coupled = _has_coupled_decay(optimizer)
    groups = [
        (group, [p for p in group["params"] if p.grad is not None and p.numel()])
        for group in optimizer.param_groups
    ]
    copies = iter(copies_of([local(p.detach()) for _, moving in groups for p in moving]))
    for group, moving in groups:
        decay = _coupled_decay(group) if is_coupled else 0.0
        is_free = from_zero and is_coupled and not group["weight_decay"]
        # torch's SGD for many tensors adds Nesterov's momentum to the gradients themselves.
        is_added_to = group.get("nesterov") and group.get("foreach") is not False
        for p in moving:
            before, given = next(copies), p.grad
            grad = local(given) if keeps_grad and not is_added_to else local(given).clone()
            origin = before.new_zeros(()) if is_free else before
            yield Moved(p, before, grad, decay, ranks.share(p), origin, given)


def products_of(moved: Sequence[Moved]) -> Sequence[Tensor]:
    """Return gradient times displacement, and the squares of both, of all parameters."""
    slope: Parts = []
    gradient: Parts = []
    length: Parts = []
    if 0 < sum(m.before.numel() for m in moved) <= PIECE and all(m.is_plain for m in moved):
        # All together are a single piece: fewer calls of torch give the same numbers.
        displacements = torch._foreach_sub([m.before for m in moved], [m.after for m in moved])
        for m, v in zip(moved, displacements, strict=True):
            g = m.grad
            if g.dim() != 1:
                g, v = g.reshape(-1), v.reshape(-1)
            slope.append(torch.dot(g, v))
            gradient.append(torch.dot(g, g))
            length.append(torch.dot(v, v))
        return totals_at_once(slope, gradient, length)
    for m in moved:
        m.add_products(slope, gradient, length)
    return totals(slope, gradient, length)


def products_in_double(moved: Sequence[Moved]) -> Sequence[Tensor]:
    """Return what `products_of` does, where numbers of single precision overflow: it takes longer."""
    slope: Parts = []
    gradient: Parts = []
    length: Parts = []
    for m in moved:
        grad = m.grad.to_dense() if m.grad.is_sparse else m.grad
        for pieces in pieces_of(grad, m.origin.expand_as(m.after), m.after):
            g, origin, after = map(wide, pieces)
            v = origin - after
            slope.append(m.share * torch.dot(g, v))
            gradient.append(m.share * torch.dot(g, g))
            length.append(m.share * torch.dot(v, v))
    return totals(slope, gradient, length)


def sums_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum and the sum of squares: they tell whether two tensors differ, and need no copy.

    >>> sums_of(torch.tensor([1, 2]))
    (tensor(3., dtype=torch.float64), tensor(5., dtype=torch.float64))
    """
    pieces = [piece for (piece,) in pieces_of(local(tensor.detach()))]
    return total(p.sum() for p in pieces), total(torch.dot(p, p) for p in pieces)


def _has_coupled_decay(optimizer: optim.Optimizer) -> bool:
    return has_step_of_class(optimizer) and inspect.unwrap(type(optimizer).step) in COUPLED_DECAY


def _coupled_decay(group: Mapping[str, Any]) -> float:
    """Return the decay of a group; AdamW says in its groups that it is decoupled."""
    return 0.0 if group.get("decoupled_weight_decay", False) else float(group["weight_decay"])


def _squares(grad: Tensor) -> Iterator[Tensor]:
    # A sparse gradient may name a row twice: these must be added before they are squared.
    whole = grad.coalesce() if grad.is_sparse else grad
    return (torch.dot(g, g) for (g,) in pieces_of(whole))


def pieces_of(*tensors: Tensor) -> Iterable[list[Tensor]]:
    """Cut tensors of one shape into flat pieces of at least single precision."""
    flat = [_flat(tensor) for tensor in tensors]
    size = PIECE if flat[0].is_cpu else PIECE_ELSEWHERE
    if flat[0].numel() <= size:
        return (_at_least_single(flat),)
    cut = [torch.split(tensor, size) for tensor in flat]
    return (_at_least_single(pieces) for pieces in zip(*cut, strict=True))


def _flat(tensor: Tensor) -> Tensor:
    if tensor.dtype is not torch.float32 or tensor.is_sparse:
        tensor = real(tensor)
    return tensor if tensor.dim() == 1 else tensor.reshape(-1)


def real(tensor: Tensor) -> Tensor:
    """Return the numbers of a tensor that may be sparse or complex."""
    values = tensor._values() if tensor.is_sparse else tensor
    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


def _at_least_single(tensors: Iterable[Tensor]) -> list[Tensor]:
    single = torch.float32
    return [t if t.dtype is single else t.to(single_or_double(t.dtype)) for t in tensors]


def single_or_double(dtype: torch.dtype) -> torch.dtype:
    """Return the format in which numbers of this one are added up."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32
