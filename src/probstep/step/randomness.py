"""Where the random streams stand, so that they can be compared and put back."""

import ctypes
import functools
import random
import struct
import sys
from collections.abc import Iterable
from typing import Any

import torch

MERSENNE = 624 * 4  # bytes of the numbers that NumPy's generator holds; 4 for its place follow
Memory = ctypes.c_char * (MERSENNE + 4)  # of a generator, read where it is
HAS_GAUSS = 3  # where NumPy's state says that it keeps the second of two normal numbers


class RandomState:
    """Where every random stream stands: torch on the CPU and on the devices given, Python, NumPy.

    Args:
        devices: The devices whose streams matter, too.
        since: What an earlier look found on the host. A stream that has not moved since is shared with
            that look. This is found out sooner, and costs nothing to compare later.

    >>> before = RandomState()
    >>> _ = torch.rand(3)
    >>> RandomState() == before
    False
    >>> before.restore()
    >>> RandomState() == before
    True
    """

    def __init__(
        self, devices: Iterable[torch.device] = (), since: "HostState | None" = None
    ) -> None:
        self._cpu = torch.default_generator.get_state()
        self._devices = {
            device: torch.get_device_module(device).get_rng_state(device)
            for device in devices
            if device.type not in ("cpu", "meta")
        }
        self.host = HostState(since)

    @property
    def devices(self) -> Iterable[torch.device]:
        """The devices, beside the CPU, whose streams are known."""
        return self._devices.keys()

    def restore(self, now: "RandomState | None" = None) -> None:
        """Put every stream back where it stood; with the state of `now`, only those that have moved."""
        torch.default_generator.set_state(self._cpu)
        for device, state in self._devices.items():
            torch.get_device_module(device).set_rng_state(state, device)
        self.host.restore(None if now is None else now.host)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RandomState):
            return NotImplemented
        return (
            torch.equal(self._cpu, other._cpu)
            and self.host.python == other.host.python
            and self.host.numpy == other.host.numpy
            and self._devices.keys() == other._devices.keys()
            and all(torch.equal(a, other._devices[d]) for d, a in self._devices.items())
        )

    __hash__ = None  # type: ignore[assignment]


class HostState:
    """Where the global streams of Python and NumPy stand; of NumPy only if somebody has imported it.

    Args:
        since: An earlier look, as for `RandomState`.
    """

    def __init__(self, since: "HostState | None" = None) -> None:
        is_still = since is not None and since.python.holds()
        self.python: PythonState = since.python if since and is_still else PythonState()
        numpy = sys.modules.get("numpy")  # no dependency
        self.numpy: NumpyState | None = None if since is None else since.numpy
        if numpy is not None and (self.numpy is None or not self.numpy.holds(numpy)):
            self.numpy = NumpyState(numpy)

    def restore(self, now: "HostState | None") -> None:
        """Put back the streams that have moved."""
        if now is None or self.python != now.python:
            random.setstate(self.python.state)
        if self.numpy is not None and (now is None or self.numpy != now.numpy):
            sys.modules["numpy"].random.set_state(self.numpy.state)


class PythonState:
    """Where Python's global stream stands: as Python says it, and as the bytes that its generator holds.

    Python says it as 625 numbers, which are slow to make and to compare. The bytes tell sooner that
    nothing was drawn. They do not tell whether a normal number is kept, so the generator is asked.
    """

    def __init__(self) -> None:
        self.state = random.getstate()
        self._generator = _python_generator()
        address = _address_in_python(self._generator)
        self._memory = None if address is None else Memory.from_address(address)
        self._content = None if self._memory is None else self._memory.raw

    def holds(self) -> bool:
        """Say whether the stream still stands there, as far as the bytes tell."""
        if self._memory is None or _python_generator() is not self._generator:
            return False
        is_same = self._memory.raw == self._content
        return is_same and bool(self._generator.gauss_next == self.state[2])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PythonState):
            return NotImplemented
        return self is other or self.state == other.state

    __hash__ = None  # type: ignore[assignment]


class NumpyState:
    """Where NumPy's global stream stands: as NumPy says it, and as the bytes that its generator holds.

    NumPy takes long to say it. The bytes tell hundreds of times sooner that nothing was drawn. They do
    not tell whether a normal number is kept, so they are used only if none was kept at first: NumPy
    must draw to keep one, and then the bytes change.
    """

    def __init__(self, numpy: Any) -> None:
        self.state = numpy.random.get_state()
        _, numbers, place, *_ = self.state
        self._content = numbers.tobytes() + place.to_bytes(4, sys.byteorder)
        self._generator = generator = _generator_of(numpy)
        memory = None if generator is None else Memory.from_address(generator.ctypes.state_address)
        # If NumPy holds them in another order, or elsewhere, the bytes are not used.
        is_known = memory is not None and memory.raw == self._content
        self._memory = memory if is_known and not self.state[HAS_GAUSS] else None

    def holds(self, numpy: Any) -> bool:
        """Say whether the bytes tell that the stream still stands there."""
        if self._memory is None or _generator_of(numpy) is not self._generator:
            return False
        return bool(self._memory.raw == self._content)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NumpyState):
            return NotImplemented
        if self is other:
            return True
        a, b = self.state, other.state
        return a[2:] == b[2:] and bool((a[1] == b[1]).all())

    __hash__ = None  # type: ignore[assignment]


def _generator_of(numpy: Any) -> Any:
    """Return the generator of the global stream; None if it is not the usual one."""
    find = getattr(numpy.random, "get_bit_generator", None)  # NumPy has it since 1.24
    generator = None if find is None else find()
    return generator if type(generator) is numpy.random.MT19937 else None


def _python_generator() -> Any:
    return getattr(random.getstate, "__self__", None)  # the functions of the module are its methods


@functools.lru_cache(maxsize=1)
def _address_in_python(generator: Any) -> int | None:
    """Return where the generator holds its place and its numbers; None if that is not as expected."""
    is_usual = sys.implementation.name == "cpython" and type(generator) is random.Random
    if not is_usual or random.Random.__basicsize__ < object.__basicsize__ + MERSENNE + 4:
        return None
    address = id(generator) + object.__basicsize__  # CPython: its fields follow the object's head
    _, (*numbers, place), _ = generator.getstate()
    expected = struct.pack(f"={1 + len(numbers)}I", place, *numbers)
    return address if Memory.from_address(address).raw == expected else None
