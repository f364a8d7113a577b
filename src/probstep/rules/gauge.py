"""Gauge: what a watched rate is like, in numbers and in one line."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple

RIGHT = 1.5  # a factor this close to 1, either way, is about right
LENGTH = 256  # readings that a history holds before it is thinned


class Reading(NamedTuple):
    """A gauge as it stood at one step.

    Args:
        step: The step, from 1 on.
        factor: The rate then, over the rate allowed.
        low: The lower end of the interval of that factor.
        high: Its upper end.
    """

    step: int
    factor: float
    low: float
    high: float


@dataclass(frozen=True)
class Gauge:
    """How far the present rate is from what curvature and noise allow.

    `str(gauge)` is the verdict in one line.

    Args:
        factor: The present rate over the rate allowed: 0.25 is four times too low. NaN before a probe
            could judge.
        low: The lower end of the interval that is meant to hold this factor in nine of ten cases.
        high: Its upper end.
        rate: The present rate, of the first group that moves.
        limit: What limits the rate allowed: "curvature" or "noise"; "" before a probe could judge.
        probes: How many probes have judged.
        history: The readings so far, thinned as they become many.

    >>> print(Gauge(factor=0.25, low=0.13, high=0.5, rate=0.01, limit="curvature", probes=9))
    The rate 0.01 is about 4 times too low (between 2 and 7.7).
    >>> print(Gauge())
    Nothing is known of the rate yet: no probe could judge it.
    """

    factor: float = math.nan
    low: float = 0.0
    high: float = math.inf
    rate: float = math.nan
    limit: str = ""
    probes: int = 0
    history: tuple[Reading, ...] = ()

    @property
    def allowed(self) -> float:
        """The rate that curvature and noise allow, as far as is known."""
        return self.rate / self.factor

    def __str__(self) -> str:
        if not self.probes:
            return "Nothing is known of the rate yet: no probe could judge it."
        reason = "; noise is the limit" if self.limit == "noise" else ""
        if 1 / RIGHT < self.factor < RIGHT:
            ends = f"between {_short(self.low)} and {_short(self.high)} times what is allowed"
            return f"The rate {self.rate:.3g} is about right ({ends}){reason}."
        if self.factor > 1:
            by, least, most, word = self.factor, self.low, self.high, "high"
        else:
            by, least, most, word = 1 / self.factor, 1 / self.high, 1 / self.low, "low"
        # An interval that reaches beyond 1 does not exclude that the rate is right.
        hedge = "about" if least > 1 else "perhaps"
        return (
            f"The rate {self.rate:.3g} is {hedge} {_short(by)} times too {word} "
            f"(between {_short(least)} and {_short(most)}){reason}."
        )


def _short(number: float) -> str:
    """Return two digits of a number.

    >>> _short(0.04321), _short(1234.0)
    ('0.043', '1200')
    """
    return f"{float(f'{number:.2g}'):g}"


@dataclass
class History:
    """Readings in bounded memory: when there are too many, every second one goes.

    >>> history = History()
    >>> for step in range(1000):
    ...     history.add(Reading(step, 1.0, 0.5, 2.0))
    >>> len(history.readings) <= LENGTH, history.readings[0].step
    (True, 0)
    """

    readings: list[Reading] = field(default_factory=list)
    stride: int = 1
    count: int = 0

    def add(self, reading: Reading) -> None:
        """Keep a reading, unless it falls between two that are kept."""
        if self.count % self.stride == 0:
            self.readings.append(reading)
        self.count += 1
        if len(self.readings) > LENGTH:
            self.readings = self.readings[::2]
            self.stride *= 2
