"""A drawing as plain data: paths, boxes and labels in pixels, y downwards.

A figure is laid out once (layout.py) and written twice: as SVG for the page, with matplotlib for print.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Colour:
    """A colour on a light page and the same on a dark one.

    >>> INK.light, INK.dark
    ('#1b1e23', '#e8eaed')
    """

    light: str
    dark: str


INK = Colour("#1b1e23", "#e8eaed")
FAINT = Colour("#5f6670", "#a3abb5")
RULE = Colour("#e4e7eb", "#343a42")
GREY = Colour("#9aa1ab", "#7d858f")
CLEAR = Colour("none", "none")


@dataclass(frozen=True)
class Path:
    """A line through points; None is a gap. `dash` is in pixels, empty for a solid line.

    Args:
        name: What the line is, for whoever points at it; empty if it is decoration.
        values: A text for each point, for the same purpose.
    """

    points: Sequence[Point | None]
    colour: Colour
    width: float = 1.0
    dash: tuple[float, ...] = ()
    name: str = ""
    values: Sequence[str] = ()
    clip: "Box | None" = None


@dataclass(frozen=True)
class Box:
    """A rectangle; a tile of a heatmap has a name and a value."""

    x: float
    y: float
    width: float
    height: float
    stroke: Colour = CLEAR
    fill: Colour = CLEAR
    line: float = 1.0
    dash: tuple[float, ...] = ()
    name: str = ""
    value: str = ""


@dataclass(frozen=True)
class Dot:
    """A mark at a point: a disc, a cross, or a ring."""

    x: float
    y: float
    colour: Colour
    size: float = 3.0
    shape: Literal["disc", "cross", "ring"] = "disc"
    name: str = ""
    value: str = ""


@dataclass(frozen=True)
class Label:
    """A text; `turned` reads upwards."""

    x: float
    y: float
    text: str
    size: float = 11.0
    colour: Colour = INK
    anchor: Anchor = "start"
    bold: bool = False
    turned: bool = False


Shape = Path | Box | Dot | Label


@dataclass(frozen=True)
class Scene:
    """A drawing, its size, and what the values of its lines are."""

    width: float
    height: float
    shapes: tuple[Shape, ...]
    x_label: str = ""
    y_label: str = ""
