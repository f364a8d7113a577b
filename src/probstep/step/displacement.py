"""One step of an optimizer, seen from outside: where it began, how steep it was, how to undo it.

Measuring the displacement instead of predicting it from the optimizer's state makes one path serve
every optimizer, decoupled decay and third parties included; its price is one transient copy of the
parameters. Numbers are this rank's share of the whole: `Ranks.total` makes them whole.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, optim

from .joint import bases_of, owner_of
from .kept import put_back
from .moved import (
    Moved,
    begin_all,
    pieces_of,
    products_in_double,
    products_of,
    real,
    single_or_double,
)
from .ranks import ALONE, Ranks, local
from .scalars import pack, total


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
            one
            for base in bases_of(optimizer)
            for one in begin_all(base, ranks, from_zero=from_zero)
        ]
        step = cls(tuple(moved), optimizer)
        if from_zero:
            step.go_to_origin()
        return step

    def divided(self, is_in: Callable[[Tensor], bool]) -> tuple["Displacement", "Displacement"]:
        """Return the part of the step whose parameters are in, and the rest."""
        return self._part(is_in), self._part(lambda param: not is_in(param))

    @torch.no_grad()
    def go_to_origin(self) -> None:
        """Put the parameters where the optimizer is to begin."""
        for m in self.moved:
            if m.origin is not m.before:
                m.after.zero_()

    def sum_of_gradients(self) -> Tensor:
        """Return a number that is finite if and only if every gradient is."""
        sums = [real(m.grad).sum(dtype=single_or_double(m.grad.dtype)) for m in self.moved]
        return total(sums)

    def slope(self, grad_scale: float | Tensor = 1.0, *, sign: float = 1.0) -> Tensor:
        """Return phi, the objective's gradient times the displacement.

        Args:
            grad_scale: The factor by which `.grad` differs from the gradient of the loss.
            sign: -1 if the loss is maximised.
        """
        of_loss = total(part for m in self.moved for part in m.along(m.grad))
        return self._whole_slope(of_loss, grad_scale, sign)

    def sizes(
        self, grad_scale: float | Tensor = 1.0, *, sign: float = 1.0, in_double: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return phi, |g|^2 and |v|^2 in one pass over the parameters: three take twice as long."""
        products = products_in_double if in_double else products_of
        of_loss, gradient, length = products(self.moved)
        return self._whole_slope(of_loss, grad_scale, sign), gradient, length

    def squares(self) -> Tensor:
        """Return the squares of the parameters before the step and of the displacement."""
        before = total(part for m in self.moved for part in m.squares())
        v = (o - a for m in self.moved for o, a in pieces_of(m.origin.expand_as(m.after), m.after))
        return pack(before, total(torch.dot(piece, piece) for piece in v))

    def _whole_slope(self, of_loss: Tensor, grad_scale: float | Tensor, sign: float) -> Tensor:
        """Return phi, from what the gradients say and the coupled decay."""
        if sign != 1.0:
            of_loss = sign * of_loss
        if isinstance(grad_scale, Tensor) or grad_scale != 1.0:
            of_loss = of_loss / grad_scale
        if not self.has_penalty:
            return of_loss
        parts = (m.decay * part for m in self.moved if m.decay for part in m.along(m.before))
        return of_loss + total(parts)

    def slope_along_momentum(self, grad_scale: float | Tensor = 1.0) -> Tensor:
        """Return the slope with the optimizer's momentum in the gradient's place."""
        return (
            total(part for m in self.moved for part in m.along(self._momentum(m.param)))
            / grad_scale
        )

    @functools.cached_property
    def has_penalty(self) -> bool:
        """Whether coupled decay adds to the objective."""
        return any(m.decay for m in self.moved)

    @functools.cached_property
    def penalty(self) -> Tensor:
        """The coupled decay's share of the objective where the step began."""
        return total(m.decay / 2 * part for m in self.moved if m.decay for part in m.squares())

    def penalty_decrease(self) -> Tensor:
        """Return by how much that share has fallen."""
        return total(
            m.decay / 2 * part for m in self.moved if m.decay for part in m.squares_decrease()
        )

    @torch.no_grad()
    def stretch(self, factor: Tensor) -> None:
        """Take `factor` times the step instead of the step."""
        for m in self.moved:
            by = factor.to(m.before.device, single_or_double(m.before.dtype))
            m.after.copy_(m.before - by * (m.origin - m.after))

    def keeping_direction(self) -> "Displacement":
        """Return the step with a copy of its displacement, so that it can grow as well as shrink."""
        return replace(self, directions=tuple(m.before - m.after for m in self.moved))

    def from_before(self, length: float) -> "Displacement":
        """Return the step, now of this length, as one that can take any length, also a negative one."""
        moved = tuple(m._replace(origin=m.before) for m in self.moved)
        directions = self.directions or tuple((m.before - m.after) / length for m in self.moved)
        return replace(self, moved=moved, directions=directions)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """As a context: at its end, put the parameters back where they are now, bit for bit."""
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
            if not length:  # bit for bit, even if the step is infinite
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
