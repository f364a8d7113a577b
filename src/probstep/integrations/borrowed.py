"""Methods of one object, replaced for a while and given back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def standing_in(target: object, **functions: Callable[..., Any]) -> Iterator[None]:
    """Let functions stand in for methods of this one object meanwhile.

    >>> class Bell:
    ...     def ring(self):
    ...         return "ding"
    >>> bell = Bell()
    >>> with standing_in(bell, ring=lambda: "hush"):
    ...     bell.ring()
    'hush'
    >>> bell.ring()
    'ding'
    """
    kept = {name: vars(target)[name] for name in functions if name in vars(target)}
    for name, function in functions.items():
        setattr(target, name, function)
    try:
        yield
    finally:
        for name in functions:
            delattr(target, name)
        for name, function in kept.items():
            setattr(target, name, function)


def ignore(*_: object, **__: object) -> None:
    """Take no notice, whatever the arguments.

    >>> ignore(1, loud=True)
    """
