"""Curves of one line of text, for where there is no screen. Pure functions of numbers."""

import itertools
import math
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.-:=+*#"  # the same heights where blocks cannot be written
GAP = " "
WIDE = 20.0  # a factor between values from which on their logarithms are shown


def spark(
    values: Sequence[float], width: int = 60, *, log: bool = False, bars: str = BLOCKS
) -> str:
    """Return values as a row of bars, at most `width` of them; what is not finite is a gap.

    Each bar is the mean of its share of the values.

    >>> spark([1, 2, 3, 4, 5, 6, 7, 8])
    '▁▂▃▄▅▆▇█'
    >>> spark([1, 10, 100, float("nan"), 1000], log=True, bars=ASCII)
    '_-+ #'
    """
    heights = [_height(value, log=log) for value in values]
    means = [_mean(part) for part in _parts(heights, width)]
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return GAP * len(means)
    low, high = min(finite), max(finite)
    step = (high - low) / (len(bars) - 1) or 1.0
    return "".join(bars[round((m - low) / step)] if math.isfinite(m) else GAP for m in means)


def is_wide(values: Sequence[float]) -> bool:
    """Say whether values are all positive and so far apart that their logarithms show more.

    >>> is_wide([1.0, 30.0]), is_wide([1.0, 3.0]), is_wide([0.0, 30.0])
    (True, False, False)
    """
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and min(finite) > 0 and max(finite) > WIDE * min(finite)


def can_show(text: str, encoding: str | None) -> bool:
    """Say whether a text can be written in an encoding; None is one of which nothing is known.

    >>> can_show(BLOCKS, "utf-8"), can_show(BLOCKS, "ascii"), can_show(ASCII, "latin-1")
    (True, False, True)
    """
    try:
        text.encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def _height(value: float, *, log: bool) -> float:
    if not log:
        return value
    return math.log10(value) if 0 < value < math.inf else math.nan


def _parts(values: Sequence[float], width: int) -> list[Sequence[float]]:
    count = min(len(values), width)
    edges = [round(i * len(values) / count) for i in range(count + 1)] if count else []
    return [values[a:b] for a, b in itertools.pairwise(edges)]


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan
