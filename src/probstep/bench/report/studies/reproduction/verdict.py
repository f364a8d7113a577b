"""What a verdict is, and the few words and numbers that all of them use."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from probstep.bench.report.numbers.cells import Cell
from probstep.drawing.axes import spell

from .evidence import BASES, End

Word = Literal["confirmed", "partly", "not at this scale", "refuted", "no records"]
MOST, HALF = 0.75, 0.5  # "most times", and less than that but not rarely
NEARLY_ALL = 0.9


@dataclass(frozen=True)
class Verdict:
    """What became of a claim here.

    Args:
        here: The numbers, in a few words.
        why: What they mean, and what limits them.
        runs: How many runs they come from.
        nets: On how many of the paper's nets, where that matters.
        gap: By how much the numbers miss what the paper says: 0 not at all, 1 wholly.
    """

    word: Word
    here: str
    why: str
    runs: int = 0
    nets: int = 0
    gap: float = 0.0


NO_RECORDS = Verdict("no records", "", "No run that could tell is on record yet.")


def share(hits: Iterable[bool]) -> float:
    """The share of what is true; 0 of nothing.

    >>> share([True, False, True, True]), share([])
    (0.75, 0.0)
    """
    values = list(hits)
    return sum(values) / len(values) if values else 0.0


def percent(value: float) -> str:
    """A share in per cent.

    >>> percent(0.256)
    '26 %'
    """
    return f"{100 * value:.0f} %"


def fall_short(value: float, wanted: float) -> float:
    """By what share of it a value misses what is wanted at least.

    >>> fall_short(0.3, 0.6), fall_short(0.9, 0.6)
    (0.5, 0.0)
    """
    return max(0.0, 1 - value / wanted)


def count(hits: Iterable[bool]) -> str:
    """How many are true, of how many.

    >>> count([True, False])
    '1 of 2'
    """
    values = list(hits)
    return f"{sum(values)} of {len(values)}"


def name_ends(ends: Sequence[End], most: int = 6) -> str:
    """A few of the ends by net, optimizer and initial rate."""
    names = [f"{e.problem} {BASES[e.base]} from {spell(e.rate)}" for e in ends]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


def passes_per_step(cell: Cell) -> float:
    """Forward passes in training over steps."""
    history = cell.histories[0]
    return history.passes / history.steps if history.steps else 0.0
