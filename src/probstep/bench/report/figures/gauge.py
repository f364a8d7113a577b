"""What the ratio of a probe says: four step lengths on one parabola, a dial for each."""

import math
from collections.abc import Iterable

from probstep.bench.report.drawing.colours import PALETTE
from probstep.drawing.scene import (
    FAINT,
    GREY,
    INK,
    Dot,
    Label,
    Path,
    Point,
    Scene,
    Shape,
)

STEPS = {0.15: "too short", 1.0: "the line's minimum", 4 / 3: "the target", 2.0: "nothing gained"}
WIDTH, PANEL, LEFT = 200.0, 160.0, 40.0
TOP, HEIGHT = 50.0, 130.0  # of a parabola
MIDDLE, RADIUS = 275.0, 55.0  # of a dial


def draw_gauge() -> Scene:
    """A parabola and a dial for each step length, side by side."""
    shapes: list[Shape] = [
        Label(16, TOP + HEIGHT / 2, "loss of the batch", 11, FAINT, "middle", turned=True),
        Label(LEFT + PANEL / 2, TOP + HEIGHT + 16, "along the step", 11, FAINT, "middle"),
    ]
    for number, (length, word) in enumerate(STEPS.items()):
        left = LEFT + number * WIDTH
        shapes += [*_headings(left, length, word), *_parabola(left, length), *_dial(left, length)]
    return Scene(LEFT + WIDTH * len(STEPS), MIDDLE + 20, tuple(shapes))


def _headings(left: float, length: float, word: str) -> Iterable[Shape]:
    middle = left + PANEL / 2
    yield Label(middle, 18, f"r = {2 - length:.2g}", 13, anchor="middle", bold=True)
    yield Label(middle, 36, word, 12, anchor="middle")


def _parabola(left: float, length: float) -> Iterable[Shape]:
    def at(x: float, y: float) -> Point:
        return left + x / 2.1 * PANEL, TOP + HEIGHT * (1.2 - y) / 2.3

    curve = [at(x / 50, _loss(x / 50)) for x in range(106)]
    yield Path(curve, PALETTE[0], 2.0)
    yield Path([at(0, 1), at(length, 1 - length)], GREY, 1.4, (2, 3))
    yield Dot(*at(0, 1), INK)
    yield Dot(*at(length, _loss(length)), INK)


def _loss(x: float) -> float:
    """The loss along a step: slope 2 at its start, minimum at 1."""
    return 1 - 2 * x + x**2


def _dial(left: float, length: float) -> Iterable[Shape]:
    def at(ratio: float, share: float) -> Point:
        angle = math.pi * ratio / 2
        reach = share * RADIUS
        return left + PANEL / 2 + reach * math.cos(angle), MIDDLE - reach * math.sin(angle)

    yield Path([at(2 * i / 60, 1) for i in range(61)], GREY, 1.4)
    for mark in (2, 1, 2 / 3, 0):
        yield Path([at(mark, 0.9), at(mark, 1)], GREY, 1.4)
        x, y = at(mark, 1.25)
        yield Label(x, y + 4, f"{mark:.2g}", 10, FAINT, "middle")
    yield Path([at(0, 0), at(2 - length, 0.85)], PALETTE[1], 2.6)
