"""What a figure says, as data: panels of lines or tiles, axes, a legend, a sentence.

A figure's module (grid.py, sensitivity.py, ...) makes a `Figure`; nothing there knows about pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from probstep.drawing.axes import Axis
from probstep.drawing.scene import Colour

Edge = Literal["top", "bottom"]
Marker = Literal["none", "disc", "ring", "cross"]


@dataclass(frozen=True)
class Line:
    """A curve: what it is called and where it goes. A y of None is a gap.

    Args:
        lost: The x at which there is no value because the run diverged: a cross at the worst edge.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: Colour
    dash: str = "solid"
    width: float = 1.6
    marker: Marker = "none"
    lost: Sequence[float] = ()


@dataclass(frozen=True)
class Tile:
    """A cell of a heatmap by the numbers of its column and row."""

    column: int
    row: int
    colour: Colour
    text: str
    name: str


@dataclass(frozen=True)
class Panel:
    """Axes and what is drawn in them.

    Args:
        ticks: Names for the ticks at 0, 1, 2, ..., if an axis shows no numbers.
        worst: The edge of what is worst: "top" for losses, "bottom" for accuracies.
    """

    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line] = ()
    tiles: Sequence[Tile] = ()
    frame: str = "plain"
    x_names: Sequence[str] = ()
    y_names: Sequence[str] = ()
    worst: Edge = "top"


@dataclass(frozen=True)
class Figure:
    """Rows of panels under a title, a sentence that says what it shows, and a legend.

    Args:
        slug: The name of its files.
        groups: A heading and a number of columns for each group of columns.
        row_names: What each row shows, at its left.
        size: Width and height of a panel in pixels.
        y_shared: Whether the panels of a row share their y axis.
    """

    slug: str
    title: str
    sentence: str
    rows: Sequence[Sequence[Panel | None]]
    x_label: str
    y_label: str
    legend: Sequence[Line] = ()
    legend_title: str = ""
    groups: Sequence[tuple[str, int]] = ()
    row_names: Sequence[str] = ()
    size: tuple[float, float] = (150.0, 110.0)
    y_shared: bool = True
