"""Where everything goes in the picture of a run: panels over a shared axis of steps, and strips.

From above: the loss, the rate, what limited the rate, the share of steps that was probed, and a line
for each kind of event.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..drawing.axes import Axis, Scaling, fit_axis, spell
from ..drawing.scene import (
    CLEAR,
    FAINT,
    GREY,
    INK,
    PALETTE,
    RULE,
    Box,
    Colour,
    Dot,
    Label,
    Path,
    Point,
    Scene,
    Shape,
)
from ..history import EVENTS, History, spell_share
from ..sparkline import is_wide

LIMIT_COLOURS: dict[str, Colour] = {
    "": RULE,
    "nothing": PALETTE[2],
    "search": PALETTE[4],
    "curvature": PALETTE[0],
    "noise": PALETTE[1],
    "surprise": PALETTE[3],
    "max_lr": PALETTE[6],
    "momentum": Colour("#9c3a3a", "#e58f8f"),
}
EVENT = PALETTE[5]  # no limit has it
QUIET = "rejected"  # too frequent for a line through the panels
LETTER = 7.6  # pixels, of a text of size 11 with wide letters
SMOOTH = 40  # the mean of the loss is taken over one in so many rows
BINS = 80  # of the strip of probes
LEFT, RIGHT = 92.0, 14.0
PANEL, LOW_PANEL, STRIP, ROW = 190.0, 150.0, 14.0, 18.0
HEAD, GAP = 24.0, 14.0  # room for a panel's title, and between strips


@dataclass(frozen=True)
class _Frame:
    """A box in which steps go across and something goes up."""

    box: Box
    x: Axis
    y: Axis

    def place(self, step: float, value: float) -> Point | None:
        """Return the pixel of a value; None if it is not finite, or a log axis cannot show it."""
        across = self.x.share(step)
        up = self.y.share(value) if math.isfinite(value) else None
        if across is None or up is None:
            return None
        return self.box.x + across * self.box.width, self.box.y + (1 - up) * self.box.height


def draw(history: History, width: float = 1000.0) -> Scene:
    """Return the picture of a run, so many pixels wide.

    >>> draw(History()).shapes[0].text
    'No step is known yet.'
    """
    if not history.steps:
        return Scene(width, 40.0, (Label(12, 25, "No step is known yet.", 12, FAINT),))
    x = fit_axis([*history.steps, *(e.step for e in history.events)], margin=0.015)
    box = Box(LEFT, 0.0, width - LEFT - RIGHT, 0.0)
    is_log = is_wide(history.losses)
    shapes: list[Shape] = []
    top = HEAD
    loss = _frame(box, top, PANEL, x, history.losses, "log" if is_log else "linear")
    shapes += _panel(loss, "loss" + ", logarithmic" * is_log)
    top += PANEL + HEAD + GAP
    rate = _frame(box, top, LOW_PANEL, x, history.rates, "log")
    shapes += _panel(rate, "rate of the first group, logarithmic")
    top += LOW_PANEL + GAP
    for frame in (loss, rate):
        shapes += _event_lines(history, frame)
    shapes += _loss_curves(history, loss)
    shapes += [_curve(rate, history.steps, history.rates, INK, 1.8, "rate")]
    strip = _Frame(Box(box.x, top, box.width, STRIP), x, Axis(0.0, 1.0))
    shapes += [_strip_name(strip, "limited by"), *_limit_bands(history, strip)]
    top += STRIP + GAP
    strip = _Frame(Box(box.x, top, box.width, 2 * STRIP), x, Axis(0.0, 1.0))
    shapes += [_strip_name(strip, "probed steps"), *_probe_bars(history, strip)]
    top += 2 * STRIP + GAP
    for name in _kinds(history):
        strip = _Frame(Box(box.x, top, box.width, ROW), x, Axis(0.0, 1.0))
        shapes += [_strip_name(strip, name), *_event_dots(history, strip, name)]
        top += ROW
    shapes += _steps(x, box, top)
    top += 44.0
    keys, top = _keys(history, top, width)
    return Scene(width, top + 6.0, (*shapes, *keys))


def _frame(
    box: Box, top: float, height: float, x: Axis, values: Sequence[float], scaling: Scaling
) -> _Frame:
    return _Frame(Box(box.x, top, box.width, height), x, fit_axis(values, scaling, margin=0.06))


def _panel(frame: _Frame, title: str) -> Iterator[Shape]:
    box = frame.box
    yield Label(box.x, box.y - 8, title, 12, INK, bold=True)
    for tick in frame.y.ticks(max(int(box.height / 34), 2)):
        at = frame.place(frame.x.low, tick)
        if at is not None:
            yield Path([at, (box.x + box.width, at[1])], RULE)
            yield Label(box.x - 7, at[1] + 4, spell(tick), 11, FAINT, "end")
    for tick in _step_ticks(frame.x, box.width):
        at = frame.place(tick, frame.y.low)
        if at is not None:
            yield Path([at, (at[0], box.y)], RULE)
    yield Box(box.x, box.y, box.width, box.height, stroke=GREY)


def _event_lines(history: History, frame: _Frame) -> Iterator[Shape]:
    """A line through a panel at each event that is not of a frequent kind."""
    for event in history.events:
        at = frame.place(event.step, frame.y.low)
        if at is not None and event.name != QUIET:
            line = [at, (at[0], frame.box.y)]
            yield Path(line, EVENT, 1.2, (4.0, 3.0))


def _loss_curves(history: History, frame: _Frame) -> Iterator[Shape]:
    """The losses, and a running mean where there are enough of them."""
    window = len(history) // SMOOTH
    if window < 2:
        yield _curve(frame, history.steps, history.losses, INK, 1.8, "loss")
        return
    yield _curve(frame, history.steps, history.losses, GREY, 0.8, "loss")
    mean = _running_mean(history.losses, window, log=frame.y.scaling == "log")
    yield _curve(frame, history.steps, mean, INK, 1.8, "mean of the loss")


def _curve(
    frame: _Frame,
    steps: Sequence[int],
    values: Sequence[float],
    colour: Colour,
    width: float,
    name: str,
) -> Path:
    points = [frame.place(step, value) for step, value in zip(steps, values, strict=True)]
    if sum(point is not None for point in points) == 1:  # a line of one point is not seen
        points = [p if p is None else (p[0] - 2.0, p[1]) for p in points]
        points += [None if p is None else (p[0] + 4.0, p[1]) for p in points]
        points = [point for point in points if point is not None]
    return Path(points, colour, width, name=name, clip=frame.box)


def _strip_name(frame: _Frame, name: str) -> Label:
    middle = frame.box.y + frame.box.height / 2
    return Label(frame.box.x - 7, middle + 4, name, 11, FAINT, "end")


def _limit_bands(history: History, frame: _Frame) -> Iterator[Shape]:
    """A band for each stretch of steps with the same limit."""
    start = history.steps[0]
    groups = itertools.groupby(zip(history.steps, history.limits, strict=True), lambda row: row[1])
    runs = [(limit, [step for step, _ in rows]) for limit, rows in groups]
    ends = [steps[0] for _, steps in runs[1:]] + [history.steps[-1]]
    for (limit, _), end in zip(runs, ends, strict=True):
        left, right = frame.place(start, 0.0), frame.place(end, 0.0)
        if left is not None and right is not None:
            width = max(right[0] - left[0], 1.5)
            band = LIMIT_COLOURS[limit]
            yield Box(left[0], frame.box.y, width, frame.box.height, CLEAR, band, name=limit)
        start = end


def _probe_bars(history: History, frame: _Frame) -> Iterator[Shape]:
    """The share of the steps that was probed, a bar for each stretch of them."""
    box = frame.box
    for y, colour in ((box.y, RULE), (box.y + box.height, GREY)):
        yield Path([(box.x, y), (box.x + box.width, y)], colour)
    stride = max(len(history) // BINS, 1)
    kept = [*range(stride - 1, len(history) - 1, stride), len(history) - 1]
    first, before = history.steps[0] - 1, history.probes[0] - int(history.probes[0] == 1)
    for index in kept:
        step, probes = history.steps[index], history.probes[index]
        share = min((probes - before) / max(step - first, 1), 1.0)
        left, right = frame.place(first, 0.0), frame.place(step, share)
        if share > 0 and left is not None and right is not None:
            width = max(right[0] - left[0] - 0.5, 1.0)
            yield Box(left[0], right[1], width, left[1] - right[1], CLEAR, GREY, name="probed")
        first, before = step, probes
    yield Label(box.x + box.width - 3, box.y + 11, "100%", 10, FAINT, "end")


def _event_dots(history: History, frame: _Frame, name: str) -> Iterator[Shape]:
    for event in history.events:
        at = frame.place(event.step, 0.5)
        if event.name == name and at is not None:
            yield Dot(*at, EVENT, 3.5, "disc", str(event))


def _steps(x: Axis, box: Box, top: float) -> Iterator[Shape]:
    frame = _Frame(Box(box.x, top, box.width, 0.0), x, Axis(0.0, 1.0))
    for tick in _step_ticks(x, box.width):
        at = frame.place(tick, 0.0)
        if at is not None:
            yield Label(at[0], top + 16, _spell_step(tick), 11, FAINT, "middle")
    yield Label(box.x + box.width / 2, top + 33, "step", 11, FAINT, "middle")


def _keys(history: History, top: float, width: float) -> tuple[list[Shape], float]:
    """The colours of the limits and the share that each has, in rows; and where they end."""
    shapes: list[Shape] = [Label(LEFT - 7, top + 10, "limited by", 11, FAINT, "end")]
    x = LEFT
    for limit, share in history.shares().items():
        text = f"{limit} {spell_share(share)}"
        needed = 30 + LETTER * len(text)
        if x + needed > width and x > LEFT:
            x, top = LEFT, top + ROW
        shapes += [Box(x, top, 14, 12, CLEAR, LIMIT_COLOURS[limit])]
        shapes += [Label(x + 19, top + 10, text, 11)]
        x += needed
    if len(shapes) == 1:
        shapes += [Label(LEFT, top + 10, "the rule does not say", 11, FAINT)]
    return shapes, top + ROW


def _kinds(history: History) -> list[str]:
    present = {event.name for event in history.events}
    return [name for name in EVENTS if name in present]


def _step_ticks(x: Axis, width: float) -> list[float]:
    ticks = x.ticks(max(int(width / 90), 2))
    return [tick for tick in ticks if tick >= 0 and tick == int(tick)]


def _spell_step(step: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if step >= 10 * size:
            return f"{step / size:g}{letter}"
    return f"{step:g}"


def _running_mean(values: Sequence[float], window: int, *, log: bool) -> list[float]:
    """Return the mean of each value and those before it, of logarithms if told so."""
    straight = [math.log(v) if log and 0 < v < math.inf else math.nan if log else v for v in values]
    means = []
    for i in range(len(straight)):
        near = [v for v in straight[max(i - window, 0) : i + 1] if math.isfinite(v)]
        mean = math.fsum(near) / len(near) if near else math.nan
        means.append(math.exp(mean) if log else mean)
    return means
