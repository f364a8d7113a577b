"""State that a forward pass changes and that no buffer holds: what must be put back around a probe.

A module declares such state by two methods (`Stateful`), and is found when it runs. For any other object
the user declares it: `ProbStep(..., stateful=[...])`.
"""

import functools
import random
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor, nn

from .kept import Kept


@runtime_checkable
class Stateful(Protocol):
    """What a forward pass changes, beside buffers and the global random streams.

    A module with these two methods needs no mention: ProbStep finds it when it runs.

    Example:
        >>> class Counter(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.calls = 0
        ...
        ...     def forward(self, x):
        ...         self.calls += 1
        ...         return x * self.calls
        ...
        ...     def save_for_probe(self):
        ...         return self.calls
        ...
        ...     def restore_after_probe(self, saved):
        ...         self.calls = saved
        >>> isinstance(Counter(), Stateful)
        True
    """

    def save_for_probe(self) -> Any:
        """Return a copy of the present state, which later passes do not change."""
        ...

    def restore_after_probe(self, saved: Any) -> None:
        """Put back what was saved; this may be called several times."""
        ...


def stateful(thing: object, *names: str) -> Stateful:
    """Declare what a forward pass changes: an object, or some of its attributes by name.

    Tensors, modules, dictionaries, lists, and generators of torch, Python and NumPy are put back with
    all that they hold. Any other object is put back without its content. Trained tensors are left alone.

    Args:
        thing: A generator, a tensor, a dictionary, ..., or with names any object.
        names: Its attributes that change.

    Example:
        >>> class Model(nn.Module):
        ...     hidden = None
        >>> model = Model()
        >>> state = stateful(model, "hidden")
        >>> saved = state.save_for_probe()
        >>> model.hidden = torch.ones(2)
        >>> state.restore_after_probe(saved)
        >>> model.hidden is None
        True
    """
    missing = [name for name in names if not hasattr(thing, name)]
    if missing:
        raise AttributeError(
            f"{type(thing).__name__} has no attribute {missing[0]!r}. stateful() takes an object and "
            "the names of its attributes that a forward pass changes. Set the attribute before, to None "
            "for example."
        )
    if not names and not isinstance(thing, _changeable()):
        raise TypeError(
            f"How to put a {type(thing).__name__} back is not known. Name its attributes that change, "
            "stateful(thing, 'name', ...), or give it the methods save_for_probe and "
            "restore_after_probe."
        )
    return _Members(thing, names)


def declared(things: object) -> tuple[Stateful, ...]:
    """Return what `ProbStep(stateful=)` was given: one thing, a list of them, or None for none."""
    if things is None:
        return ()
    each = things if isinstance(things, list | tuple) else (things,)
    return tuple(thing if is_stateful(thing) else stateful(thing) for thing in each)


def is_stateful(thing: object) -> TypeGuard[Stateful]:
    """Say whether an object has the two methods."""
    kind: Any = type(thing)
    return _has_methods(kind)


class Declared:
    """What stateful objects held when each was first seen.

    >>> generator = torch.Generator().manual_seed(0)
    >>> before = Declared()
    >>> before.see([stateful(generator)])
    >>> first = torch.rand(1, generator=generator)
    >>> before.restore()
    >>> bool(torch.rand(1, generator=generator) == first)
    True
    """

    def __init__(self) -> None:
        self._saved: dict[int, tuple[Stateful, Any]] = {}

    @property
    def seen(self) -> Iterable[Stateful]:
        """The objects seen."""
        return [thing for thing, _ in self._saved.values()]

    def see(self, things: Iterable[Stateful]) -> None:
        """Save what objects hold, unless seen already."""
        for thing in things:
            if id(thing) not in self._saved:
                self._saved[id(thing)] = (thing, thing.save_for_probe())

    def restore(self) -> None:
        """Put everything back."""
        for thing, saved in self._saved.values():
            thing.restore_after_probe(saved)


class _Saved(NamedTuple):
    values: dict[str, Any]
    contents: Kept


class _Members:
    """An object, or some of its attributes, as a Stateful."""

    def __init__(self, thing: object, names: tuple[str, ...]) -> None:
        self._thing, self._names = thing, names

    def save_for_probe(self) -> _Saved:
        """Return attributes and what they hold."""
        values = {name: getattr(self._thing, name) for name in self._names}
        roots = list(values.values()) if self._names else [self._thing]
        return _Saved(values, Kept(roots, is_spared=_is_trained))

    def restore_after_probe(self, saved: _Saved) -> None:
        """Put them back."""
        for name, value in saved.values.items():
            setattr(self._thing, name, value)
        saved.contents.restore()


def _is_trained(tensor: Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf


def _changeable() -> tuple[type, ...]:
    """Return the kinds of objects whose content can be put back."""
    kinds = (Tensor, nn.Module, dict, deque, torch.Generator, random.Random)
    numpy = sys.modules.get("numpy")  # no dependency: users of such objects have imported it
    if numpy is None:
        return kinds
    return (*kinds, numpy.ndarray, numpy.random.Generator, numpy.random.RandomState)


@functools.cache
def _has_methods(kind: Any) -> bool:
    return issubclass(kind, Stateful)
