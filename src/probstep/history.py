"""What a training looked like: a bounded list of steps, and one of events.

A `Ledger` is written step by step and goes into a checkpoint as one tensor. A `History` is what a user
reads of it.
"""

import math
import sys
import textwrap
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .plain import twin_of
from .sparkline import ASCII, BLOCKS, can_show, is_wide, spark

MOST_ROWS = 512
MOST_EVENTS = 128
COLUMNS = 7  # of a row: step, loss, scale, rate, probes, ratio, limit
FIELDS = 4  # of an event: number, step, name, value
HEAD = 7  # numbers before the rows of a tensor: those of `_head`
LAYOUT = 1.0  # which order of numbers a tensor has
SIZE = HEAD + MOST_ROWS * COLUMNS + MOST_EVENTS * FIELDS

LINE = 100  # letters of a line of events
# Their places are their numbers in a checkpoint: new ones go to the end.
LIMITS = ("", "nothing", "search", "curvature", "noise", "surprise", "max_lr", "momentum")
NOISE = LIMITS.index("noise")
EVENTS = (
    "search",
    "searched again",
    "rejected",
    "new level",
    "not finite",
    "restarted",
    "held back",
)


class Event(NamedTuple):
    """Something that happened at a step.

    Args:
        number: How many events there have been, this one included.
        step: When: 1 is the first step.
        name: "search" (the first search), "searched again", "rejected" (a step was shortened), "new
            level" (of the loss), "not finite" (loss or gradients), "restarted" (a rate beyond all that
            was known, layers unfrozen, a group added: the rule forgets what it found), or "held back"
            (the loss of a step was so high that its gradients were scaled down).
        value: The scale that a search found, how many lengths were rejected, or the loss; NaN without.
    """

    number: int
    step: int
    name: str
    value: float

    def __str__(self) -> str:
        """Return it as a sentence.

        >>> str(Event(1, 1, "search", 12.5)), str(Event(2, 40, "rejected", 2.0))
        ('search at step 1: scale 12.5', 'rejected at step 40: 2 lengths')
        """
        said = {
            "search": f"scale {self.value:.4g}",
            "searched again": f"scale {self.value:.4g}",
            "rejected": f"{self.value:.0f} length{'s' * (self.value != 1)}",
        }.get(self.name, f"loss {self.value:.4g}")
        tail = f": {said}" if not math.isnan(self.value) else ""
        return f"{self.name} at step {self.step}{tail}"


@dataclass(frozen=True, repr=False)
class History:
    """What a training looked like: columns of equal length, and events. `opt.history()` makes one.

    At most 512 steps are kept, evenly spaced, and always the newest; at most 128 events. Each row says
    how things stood after its step. A step whose loss was never known to ProbStep has no row: a bare
    `step()`, a frozen one, and with `PaperRule` one without a probe.

    Args:
        steps: 1 is the first.
        losses: Of the batch of this step.
        scales: The adapted factor.
        rates: The effective rate of the first group; NaN if its `lr` is a tensor on another device.
        probes: The probed steps so far.
        ratios: Observed over predicted decrease at the last probe; NaN where it said nothing.
        limits: What kept the rate from being higher, by the last decision: "search" (what the search
            found still holds), "curvature", "noise" (more exactly the losses of the steps: noise, and
            what is left to gain), "momentum" (it shows late what a rise does), "surprise" (a confirmed
            surprise of late), "max_lr", "nothing" (the rate is rising), or "" where the rule does not
            say, as PaperRule.
        events: Oldest first. Where there were too many, every second of the commonest kind is gone.

    Example:
        >>> from probstep import ProbStep
        >>> opt = ProbStep(torch.optim.SGD([w := torch.nn.Parameter(torch.ones(1))], lr=1e-6))
        >>> for _ in range(3):
        ...     loss = opt.step(lambda: w.square().sum())
        >>> history = opt.history()
        >>> history.steps, history.limits[0], history.events[0].name
        ((1, 2, 3), 'search', 'search')
    """

    steps: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    probes: tuple[int, ...] = ()
    ratios: tuple[float, ...] = ()
    limits: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns as lists by their names, as data frames take them."""
        names = ("steps", "losses", "scales", "rates", "probes", "ratios", "limits")
        return {name: list(getattr(self, name)) for name in names}

    def shares(self) -> dict[str, float]:
        """Return the share of the rows that each limit has, the largest first; "" is left out.

        >>> History(limits=("noise", "curvature", "noise", "noise")).shares()
        {'noise': 0.75, 'curvature': 0.25}
        """
        counts = Counter(limit for limit in self.limits if limit)
        return {limit: count / len(self.limits) for limit, count in counts.most_common()}

    def summary(self, *, width: int = 60, ascii_only: bool = False) -> str:
        """Return a few lines of text: loss and rate as curves, limits, events."""
        if not self.steps:
            return "No step is known yet: history begins with the first whose loss is."
        bars, dash = (ASCII, "-") if ascii_only else (BLOCKS, "→")
        lines = [
            f"{self.steps[-1]} steps, {self.probes[-1]} probed",
            f"loss {spark(self.losses, width, log=is_wide(self.losses), bars=bars)} "
            f"{_short(self.losses[0])} {dash} {_short(self.losses[-1])}",
            f"rate {spark(self.rates, width, log=True, bars=bars)} "
            f"{_short(self.rates[0])} {dash} {_short(self.rates[-1])}",
        ]
        if shares := self.shares():
            said = ", ".join(f"{limit} {spell_share(share)}" for limit, share in shares.items())
            lines.append(f"limited by {said}")
        if self.events:
            lines += textwrap.wrap("; ".join(_told(self.events)), LINE)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary(ascii_only=not can_show(BLOCKS + "→", sys.stdout.encoding))

    def __repr__(self) -> str:
        span = f", steps {self.steps[0]} to {self.steps[-1]}" if self.steps else ""
        return f"<History of {len(self)} rows{span}, {len(self.events)} events>"


@dataclass(slots=True)
class Ledger:
    """What is remembered of all steps; its methods are cheap enough for every one of them.

    Args:
        rows: The rows that are kept, one after the other.
        events: The events that are kept.
        offered: How many rows there have been.
        stride: Every how many-th is kept; the newest is kept until the next comes.
        told: How many events there have been.
        probes: How many steps were probed.
        ratio: Of the last probe.
        limit: What limits the rate now: a place in LIMITS.
        opened: Step, scale and `lr` of a step whose loss is still to be read.
    """

    rows: "array[float]" = field(default_factory=lambda: array("d"))
    events: list[Event] = field(default_factory=list)
    offered: int = 0
    stride: int = 1
    told: int = 0
    probes: int = 0
    ratio: float = math.nan
    limit: int = 0
    opened: tuple[int, float, float] | None = None

    def __copy__(self) -> "Ledger":
        twin = twin_of(self)
        twin.rows, twin.events = self.rows[:], self.events[:]
        return twin

    # What a step writes

    def open(self, step: int, scale: float, rate: Any) -> None:
        """Note a step whose loss is not read yet."""
        self.opened = (step, scale, _readable(rate))

    def close(self, loss: float) -> None:
        """Write the row of that step, now that its loss is known."""
        if self.opened is not None:
            opened, self.opened = self.opened, None
            self.write(*opened, loss)

    def write(self, step: int, scale: float, rate: Any, loss: float) -> None:
        """Write the row of a step: its scale, the rate of the first group, its loss."""
        if type(rate) is not float:
            rate = _readable(rate)
        if (self.offered - 1) % self.stride:
            del self.rows[-COLUMNS:]  # the newest row so far only stood in
        elif len(self.rows) == MOST_ROWS * COLUMNS:
            self._thin()
        self.offered += 1
        self.rows.extend((step, loss, scale, rate * scale, self.probes, self.ratio, self.limit))
        if not math.isfinite(loss):
            self.add("not finite", step)

    def probe(self, step: int, decision: str, scale: float, ratio: float, rejected: int) -> None:
        """Note what a probe decided."""
        self.probes += 1
        self.ratio = ratio
        if decision == "search":
            has_searched = any(event.name == "search" for event in self.events)
            self.add("searched again" if has_searched else "search", step, scale)
        elif decision == "skipped":
            self.add("not finite", step)
        if rejected:
            self.add("rejected", step, rejected)

    def hear(self, step: int, loss: float, factor: float, *, is_new_level: bool) -> None:
        """Note what a rule made of the loss of a step: a factor for the scale, another level."""
        if not math.isfinite(loss):
            return  # its own event, and no limit that lasts
        if factor < 1.0:
            self.limit = NOISE
        if is_new_level:
            self.add("new level", step, loss)

    def limited(self, limit: str) -> None:
        """Note what limits the rate from now on."""
        self.limit = LIMITS.index(limit) if limit in LIMITS else 0

    def add(self, name: str, step: int, value: float = math.nan) -> None:
        """Note an event, once per step."""
        if any(event.step == step and event.name == name for event in self.events[-2:]):
            return
        if len(self.events) == MOST_EVENTS:
            self._thin_events()
        self.told += 1
        self.events.append(Event(self.told, step, name, float(value)))

    def _thin(self) -> None:
        """Keep every second row."""
        rows = [self.rows[i : i + COLUMNS] for i in range(0, len(self.rows), 2 * COLUMNS)]
        self.rows = array("d", (number for row in rows for number in row))
        self.stride *= 2

    def _thin_events(self) -> None:
        """Keep every second event of the commonest kind."""
        (commonest, _), *_ = Counter(event.name for event in self.events).most_common(1)
        alike = [event for event in self.events if event.name == commonest]
        gone = set(alike[1::2])
        self.events = [event for event in self.events if event not in gone]

    # What is read

    def history(self) -> History:
        """Return what is known, as columns."""
        columns = [self.rows[i::COLUMNS] for i in range(COLUMNS)]
        steps, losses, scales, rates, probes, ratios, limits = columns
        return History(
            steps=tuple(map(int, steps)),
            losses=tuple(losses),
            scales=tuple(scales),
            rates=tuple(rates),
            probes=tuple(map(int, probes)),
            ratios=tuple(ratios),
            limits=tuple(LIMITS[int(limit)] for limit in limits),
            events=tuple(self.events),
        )

    def tensor(self) -> Tensor:
        """Return all of it as one tensor, whose size is always the same: checkpoints need that."""
        events = [(e.number, e.step, EVENTS.index(e.name), e.value) for e in self.events]
        numbers = array("d", [math.nan]) * SIZE
        head = array("d", (LAYOUT, *self._head(), len(self.rows) // COLUMNS))
        numbers[: len(head)] = head
        numbers[HEAD : HEAD + len(self.rows)] = self.rows
        start = HEAD + MOST_ROWS * COLUMNS
        flat = array("d", (number for event in events for number in event))
        numbers[start : start + len(flat)] = flat
        return torch.frombuffer(numbers, dtype=torch.float64).clone()

    def _head(self) -> tuple[float, ...]:
        return self.offered, self.told, self.probes, self.ratio, self.limit

    @classmethod
    def restored(cls, saved: Any) -> "Ledger":
        """Return what a tensor holds; raise ValueError if it is none of `tensor`."""
        if not isinstance(saved, Tensor) or saved.shape != (SIZE,) or not saved.is_floating_point():
            raise ValueError(f"must be a tensor of {SIZE} numbers, not {_brief(saved)}.")
        numbers = saved.tolist()
        layout, offered, told, probes, ratio, limit, count = numbers[:HEAD]
        if layout != LAYOUT:
            raise ValueError(f"has the layout {layout}, and only {LAYOUT} is known.")
        _refuse_unless_whole(offered=offered, told=told, probes=probes, limit=limit, rows=count)
        rows = array("d", numbers[HEAD : HEAD + int(count) * COLUMNS])
        events = list(_events(numbers[HEAD + MOST_ROWS * COLUMNS :]))
        ledger = cls(rows, events, int(offered), _stride(offered), int(told), int(probes), ratio)
        ledger.limit = int(limit)
        ledger._refuse_damage()
        return ledger

    def _refuse_damage(self) -> None:
        expected = _rows_after(self.offered, self.stride)
        if len(self.rows) != expected * COLUMNS:
            raise ValueError(f"has {len(self.rows) // COLUMNS} rows instead of {expected}.")
        for name, column in (("step", 0), ("probes", 4), ("limit", 6)):
            for number in self.rows[column::COLUMNS]:
                _refuse_unless_whole(**{name: number})
        if max([self.limit, *self.rows[6::COLUMNS]]) >= len(LIMITS):
            raise ValueError("names a limit that is not known.")
        if len(self.events) > self.told:
            raise ValueError(f"has {len(self.events)} events of {self.told}.")


def _readable(rate: Any) -> float:
    """Return a rate as a number; NaN if it lies on a device, for which reading would wait."""
    is_far = isinstance(rate, Tensor) and rate.device.type != "cpu"
    return math.nan if is_far else float(rate)


def spell_share(share: float) -> str:
    """Return a share as a text.

    >>> spell_share(0.25), spell_share(0.002)
    ('25%', '<1%')
    """
    return f"{share:.0%}" if share >= 0.005 else "<1%"


def _stride(offered: float) -> int:
    """Return every how many-th row is kept after so many."""
    stride = 1
    while offered > (MOST_ROWS - 1) * stride + 1:
        stride *= 2
    return stride


def _rows_after(offered: int, stride: int) -> int:
    """Return how many rows are kept of so many: those of the stride, and the newest."""
    regular = -(-offered // stride)
    return regular + int(offered > 0 and (offered - 1) % stride != 0)


def _events(numbers: list[float]) -> Iterable[Event]:
    for i in range(0, len(numbers), FIELDS):
        number, step, name, value = numbers[i : i + FIELDS]
        if math.isnan(number):
            return
        _refuse_unless_whole(number=number, step=step, name=name)
        if name >= len(EVENTS):
            raise ValueError("names an event that is not known.")
        yield Event(int(number), int(step), EVENTS[int(name)], value)


def _refuse_unless_whole(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (number >= 0 and number == number // 1 < math.inf):
            raise ValueError(f"{name} must be a whole number of at least 0, not {number!r}.")


def _told(events: Iterable[Event]) -> list[str]:
    """Return a phrase for each kind of event: a single one in full, of many their number."""
    kinds: dict[str, list[Event]] = {}
    for event in events:
        kinds.setdefault(event.name, []).append(event)
    return [
        str(same[0])
        if len(same) == 1
        else f"{name} {len(same)} times, last at step {same[-1].step}"
        for name, same in kinds.items()
    ]


def _short(number: float) -> str:
    return f"{number:.3g}"


def _brief(value: object) -> str:
    if isinstance(value, Tensor):
        return f"one of shape {tuple(value.shape)} and {value.dtype}"
    text = repr(value)
    return text if len(text) < 80 else f"{text[:76]} ..."
