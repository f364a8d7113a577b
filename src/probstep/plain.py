"""States as plain numbers, for a checkpoint, and back. Pure functions; no torch.

A state is a dataclass whose fields are numbers (int, float, bool), words (str) or other states. Its
plain form is a dictionary with the names of the fields as keys, nested as the states are.
"""

import copy
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

State = TypeVar("State")

PLAIN = frozenset((bool, int, float, str, type(None)))  # what cannot be changed in place
FINITE = (-sys.float_info.max, sys.float_info.max)  # a range of `refuse_outside`


def as_plain(state: Any) -> dict[str, Any]:
    """Return a state as nested dictionaries of numbers; later changes of the state leave them alone.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Count:
    ...     probes: int = 0
    >>> as_plain(Count(3))
    {'probes': 3}
    """
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return {
        name: as_plain(value) if is_dataclass(value) else value for name, value in values.items()
    }


def copied(state: State) -> State:
    """Return a copy of a state and of the states in it; much faster than `copy.deepcopy`.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Count:
    ...     probes: int = 0
    >>> count = Count(3)
    >>> twin, count.probes = copied(count), 4
    >>> twin
    Count(probes=3)
    """
    if not hasattr(type(state), "__dataclass_fields__"):
        return copy.deepcopy(state)  # a rule of somebody's own
    twin, put = _begun_twin(state)
    for name in _names(state):
        value = getattr(state, name)
        if type(value) not in PLAIN:
            is_list = isinstance(value, list)
            value = [copied(member) for member in value] if is_list else copied(value)
        put(twin, name, value)
    return twin


def twin_of(state: State) -> State:
    """Return another state that holds the same values; `copy.copy` takes a way that is much longer.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Count:
    ...     probes: int = 0
    >>> twin_of(Count(3))
    Count(probes=3)
    """
    twin, put = _begun_twin(state)
    for name in _names(state):
        put(twin, name, getattr(state, name))
    return twin


def _begun_twin(state: State) -> tuple[State, Callable[[object, str, Any], None]]:
    """Return another state that holds nothing yet, and what sets its values though it may be frozen."""
    kind: Any = type(state)
    is_frozen = kind.__dataclass_params__.frozen
    return object.__new__(kind), object.__setattr__ if is_frozen else setattr


def _names(state: object) -> Iterable[str]:
    kind: Any = type(state)
    held = vars(state) if kind.__dictoffset__ else None
    return held or _slots(kind)


@functools.cache
def _slots(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def restored(kind: type[State], plain: Mapping[str, Any]) -> State:
    """Return the state of a kind whose plain form this is; raise ValueError if it is none.

    A whole number is taken where a float is expected, and 0 or 1 where a bool is.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Count:
    ...     probes: int = 0
    >>> restored(Count, {"probes": 3})
    Count(probes=3)
    >>> restored(Count, {"probes": 0.5})
    Traceback (most recent call last):
    ValueError: In the saved state 'probes' must be of type int, not 0.5.
    """
    return _restored(kind, plain, "")


def refuse_outside(state: object, **ranges: tuple[float, float]) -> None:
    """Raise ValueError where a field does not lie in its range, ends included; NaN lies in none.

    >>> from fractions import Fraction
    >>> refuse_outside(Fraction(1, 2), numerator=(0, 1))
    >>> refuse_outside(Fraction(1, 2), denominator=(0, 1))
    Traceback (most recent call last):
    ValueError: Fraction.denominator must lie between 0 and 1, not 2.
    """
    for name, (low, high) in ranges.items():
        value = getattr(state, name)
        if not low <= value <= high:
            raise ValueError(
                f"{type(state).__name__}.{name} must lie between {low} and {high}, not {value!r}."
            )


def _restored(kind: type[State], plain: object, where: str) -> State:
    if not isinstance(plain, Mapping):
        place = repr(where.rstrip(".")) if where else "a rule's memory"
        raise ValueError(f"In the saved state {place} must be a dictionary, not {plain!r}.")
    hints = get_type_hints(kind)
    expected = {field.name: hints[field.name] for field in fields(kind)}  # type: ignore[arg-type]
    missing, unknown = expected.keys() - plain.keys(), plain.keys() - expected.keys()
    if missing or unknown:
        raise ValueError(
            f"The saved state is not a {kind.__name__}: missing {_listed(missing, where)}, "
            f"unknown {_listed(unknown, where)}."
        )
    return kind(**{name: _value(expected[name], plain[name], where + name) for name in expected})


def _value(kind: type, value: object, where: str) -> Any:
    if is_dataclass(kind):
        return _restored(kind, value, f"{where}.")
    if kind is bool and value in (0, 1):
        return bool(value)
    if not isinstance(value, bool):
        if kind is float and isinstance(value, int | float):
            return float(value)
        if kind in (int, str) and isinstance(value, kind):
            return value
    raise ValueError(
        f"In the saved state {where!r} must be of type {kind.__name__}, not {value!r}."
    )


def _listed(names: set[str], where: str) -> str:
    return ", ".join(sorted(repr(f"{where}{name}") for name in names)) or "nothing"
