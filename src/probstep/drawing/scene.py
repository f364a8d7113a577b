"""A drawing as plain data: paths, boxes and labels in pixels, y downwards.

A figure of the report is laid out once, as blocks. On the page they flow, each an SVG of its own, so
that they fit a phone and fill a wide screen; in print they are one drawing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
Mode = Literal["light", "dark"]
MODES: tuple[Mode, ...] = ("light", "dark")


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
# Okabe and Ito, "Color Universal Design", 2008; darker or lighter where the page needs it.
PALETTE = (
    Colour("#0072b2", "#56b4e9"),
    Colour("#d55e00", "#ff9a5c"),
    Colour("#008a64", "#3fcf9f"),
    Colour("#b3568a", "#e79ac3"),
    Colour("#b87f00", "#f0c24b"),
    Colour("#5a6fd6", "#a3b1ff"),
    Colour("#6b4f2a", "#c9a878"),
)


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
    """A drawing and its size."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Block:
    """A part of a drawing that can also stand alone: a panel, or an entry of a legend.

    Args:
        x: Where its origin is in the whole drawing.
        y: Likewise.
        window: What it covers around its origin.
        shapes: What is always drawn.
        alone: What it needs only where no neighbour shows it, such as the numbers of a shared axis.
        is_first: Whether it has no such neighbour in the whole drawing either.
    """

    x: float
    y: float
    window: Box
    shapes: tuple[Shape, ...]
    alone: tuple[Shape, ...] = ()
    is_first: bool = True

    def placed(self) -> tuple[Shape, ...]:
        """Its shapes in the whole drawing."""
        shapes = (*self.shapes, *(self.alone if self.is_first else ()))
        return tuple(move(shape, self.x, self.y) for shape in shapes)


@dataclass(frozen=True)
class Row:
    """A row of blocks in groups, each with its heading; and the row's name."""

    name: str
    groups: Sequence[tuple[str, Sequence[Block]]]


@dataclass(frozen=True)
class Sheet:
    """A figure laid out: blocks that flow on a page, and their places in one drawing for print.

    Args:
        headings: What print shows besides the blocks.
        legend: A block per entry.
        x_label: What the values of its lines are, across.
        y_label: Likewise, upwards.
    """

    width: float
    height: float
    rows: Sequence[Row]
    headings: Sequence[Shape]
    legend: Sequence[Block] = ()
    legend_title: str = ""
    x_label: str = ""
    y_label: str = ""

    def whole(self) -> Scene:
        """One drawing of it all."""
        panels = (block for row in self.rows for _, blocks in row.groups for block in blocks)
        placed = (shape for block in (*panels, *self.legend) for shape in block.placed())
        return Scene(self.width, self.height, (*self.headings, *placed))


def move(shape: Shape, x: float, y: float) -> Shape:
    """The shape, somewhere else.

    >>> moved = move(Path([(1.0, 2.0), None], INK), 10, 20)
    >>> moved.points
    [(11.0, 22.0), None]
    """
    if not isinstance(shape, Path):
        return replace(shape, x=shape.x + x, y=shape.y + y)
    points = [None if point is None else (point[0] + x, point[1] + y) for point in shape.points]
    clip = shape.clip and replace(shape.clip, x=shape.clip.x + x, y=shape.clip.y + y)
    return replace(shape, points=points, clip=clip)


def in_mode(scene: Scene, mode: Mode) -> Scene:
    """The drawing in the colours of one mode, whatever the reader's is.

    >>> in_mode(Scene(1, 1, (Label(0, 0, "a"),)), "dark").shapes[0].colour
    Colour(light='#e8eaed', dark='#e8eaed')
    """
    return replace(scene, shapes=tuple(_fixed(shape, mode) for shape in scene.shapes))


def _fixed(shape: Shape, mode: Mode) -> Shape:
    colours = {name: v for name, v in vars(shape).items() if isinstance(v, Colour)}
    chosen = {name: getattr(colour, mode) for name, colour in colours.items()}
    fixed: dict[str, Any] = {name: Colour(text, text) for name, text in chosen.items()}
    return replace(shape, **fixed)
