"""Axes: from values to pixels, and where the ticks are."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Scaling = Literal["linear", "log"]
FARTHEST = 300  # decades from 1: beyond them sums and differences overflow
NARROW = 5.0  # a factor within which a logarithmic axis has evenly spaced numbers
LEAST = math.log10(2)  # a logarithmic axis spans at least a factor of two


@dataclass(frozen=True)
class Axis:
    """A stretch of numbers, linear or logarithmic.

    >>> axis = Axis(1e-5, 1.0, "log")
    >>> axis.share(1e-5), axis.share(1.0), axis.ticks(3)
    (0.0, 1.0, [1e-05, 0.001, 0.1])
    >>> Axis(0.5, 3.0, "log").ticks(4), Axis(1.1, 1.6, "log").ticks(3)
    ([0.5, 1.0, 2.0], [1.2, 1.4, 1.6])
    >>> Axis(0.02, 9.0, "log").ticks(6)
    [0.03, 0.1, 0.3, 1.0, 3.0]
    >>> Axis(0.0, 1.0).ticks(3)
    [0.0, 0.5, 1.0]
    """

    low: float
    high: float
    scaling: Scaling = "linear"

    def share(self, value: float) -> float | None:
        """How far along the axis a value lies, from 0 to 1; None if a log axis cannot show it."""
        if self.scaling == "log" and value <= 0:
            return None
        low, high, at = (self._straight(v) for v in (self.low, self.high, value))
        return (at - low) / (high - low)

    def ticks(self, most: int = 5) -> list[float]:
        """At most about so many round numbers."""
        return self._decades(most) if self.scaling == "log" else self._steps(most)

    def _straight(self, value: float) -> float:
        return math.log10(value) if self.scaling == "log" else value

    def _decades(self, most: int) -> list[float]:
        """Powers of ten; where there are few, numbers between them, too."""
        if self.high / self.low < NARROW:
            return self._steps(most)
        found = (self._multiples(digits) for digits in ((1, 2, 5), (1, 3), (1,)))
        decades = self._multiples((1,))
        thinned = decades[:: math.ceil(len(decades) / most)] if decades else []
        return next((ticks for ticks in found if len(ticks) <= most), thinned)

    def _multiples(self, digits: tuple[int, ...]) -> list[float]:
        first = math.floor(math.log10(self.low)) - 1
        last = math.ceil(math.log10(self.high)) + 1
        found = (float(f"{d}e{power}") for power in range(first, last + 1) for d in digits)
        room = 1 + 1e-9
        return [value for value in found if self.low / room <= value <= self.high * room]

    def _steps(self, most: int) -> list[float]:
        step = _round_up((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def fit_axis(values: Iterable[float], scaling: Scaling = "linear", margin: float = 0.04) -> Axis:
    """An axis that holds all values that it can show, with a little room.

    >>> fit_axis([0.0, 10.0], margin=0.1)
    Axis(low=-1.0, high=11.0, scaling='linear')
    >>> fit_axis([]), fit_axis([1e-3, 0.0], "log", margin=0.0)
    (Axis(low=0.0, high=1.0, scaling='linear'), Axis(low=0.000707..., high=0.00141..., scaling='log'))
    """
    shown = [v for v in values if math.isfinite(v) and (scaling == "linear" or v > 0)]
    if not shown:
        return Axis(*((0.1, 1.0) if scaling == "log" else (0.0, 1.0)), scaling)
    return _fit_log(shown, margin) if scaling == "log" else _fit_linear(shown, margin)


def spell(value: float) -> str:
    """A number for a tick or a tooltip.

    >>> spell(0.00001), spell(0.25), spell(1234567.0), spell(-1e300), spell(math.inf)
    ('1e-5', '0.25', '1.235e6', '-1e300', 'inf')
    """
    if math.isfinite(value) and value and not 1e-3 < abs(value) < 1e4:
        digits, power = f"{value:.3e}".split("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    return f"{value:.4g}"


def _fit_linear(values: list[float], margin: float) -> Axis:
    most = 10.0**FARTHEST
    low, high = (min(max(end, -most), most) for end in (min(values), max(values)))
    size = max(abs(low), abs(high), 1.0)
    if high - low <= 1e-12 * size:  # all the same
        low, high = low - 0.5 * size, high + 0.5 * size
    room = margin * (high - low)
    return Axis(low - room, high + room)


def _fit_log(values: list[float], margin: float) -> Axis:
    low, high = (
        min(max(math.log10(end), 1 - FARTHEST), FARTHEST - 1) for end in (min(values), max(values))
    )
    if high - low < LEAST:  # what hardly differs should look so
        middle = (low + high) / 2
        low, high = middle - LEAST / 2, middle + LEAST / 2
    room = margin * (high - low)
    return Axis(10 ** max(low - room, -FARTHEST), 10 ** min(high + room, FARTHEST), "log")


def _round_up(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= step * (1 - 1e-9))
