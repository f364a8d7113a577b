"""Where the random streams stand, so that they can be compared and put back."""

import random
import sys
from collections.abc import Iterable
from typing import Any

import torch


class RandomState:
    """Where every random stream stands: torch on the CPU and on the devices given, Python, NumPy.

    >>> before = RandomState()
    >>> _ = torch.rand(3)
    >>> RandomState() == before
    False
    >>> before.restore()
    >>> RandomState() == before
    True
    """

    def __init__(self, devices: Iterable[torch.device] = ()) -> None:
        self._cpu = torch.get_rng_state()
        self._devices = {
            device: torch.get_device_module(device).get_rng_state(device)
            for device in devices
            if device.type not in ("cpu", "meta")
        }
        self._python = random.getstate()
        self._numpy = _numpy_state()

    @property
    def devices(self) -> Iterable[torch.device]:
        """The devices, beside the CPU, whose streams are known."""
        return self._devices.keys()

    def restore(self, now: "RandomState | None" = None) -> None:
        """Put every stream back where it stood; with the state of `now`, only those that have moved."""
        torch.set_rng_state(self._cpu)
        for device, state in self._devices.items():
            torch.get_device_module(device).set_rng_state(state, device)
        if now is None or self._python != now._python:
            random.setstate(self._python)
        if self._numpy is not None and (
            now is None or not _same_numpy_state(self._numpy, now._numpy)
        ):
            sys.modules["numpy"].random.set_state(self._numpy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RandomState):
            return NotImplemented
        return (
            torch.equal(self._cpu, other._cpu)
            and self._python == other._python
            and _same_numpy_state(self._numpy, other._numpy)
            and self._devices.keys() == other._devices.keys()
            and all(torch.equal(a, other._devices[d]) for d, a in self._devices.items())
        )

    __hash__ = None  # type: ignore[assignment]


def _numpy_state() -> tuple[Any, ...] | None:
    # NumPy is no dependency: its stream matters only to those who have imported it.
    numpy = sys.modules.get("numpy")
    return None if numpy is None else numpy.random.get_state()


def _same_numpy_state(a: tuple[Any, ...] | None, b: tuple[Any, ...] | None) -> bool:
    if a is None or b is None:
        return a is b
    return a[2:] == b[2:] and bool((a[1] == b[1]).all())
