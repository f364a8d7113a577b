"""A drawing on paper: PNG and PDF with matplotlib, in the light colours.

Needs the extra: pip install 'probstep[plot]'.
"""

import io
import itertools
from collections.abc import Sequence
from typing import Any

from .scene import Box, Dot, Label, Path, Point, Scene, Shape

try:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle
    from matplotlib.transforms import Bbox, TransformedBbox
except ImportError as error:
    raise ImportError("A picture as PNG needs matplotlib: pip install 'probstep[plot]'.") from error

PIXELS = 96.0  # per inch of paper
POINT = 72.0 / PIXELS  # a pixel in points
MARKERS = {"disc": "o", "ring": "o", "cross": "x"}
TURNS = {"start": "left", "middle": "center", "end": "right"}


def paint(scene: Scene, kinds: Sequence[str]) -> list[bytes]:
    """Return the drawing as a file of each kind: "png" or "pdf"."""
    figure = Figure(figsize=(scene.width / PIXELS, scene.height / PIXELS), dpi=2 * PIXELS)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, scene.width)
    axes.set_ylim(scene.height, 0)
    axes.axis("off")
    alike = itertools.groupby(scene.shapes, key=_kind)
    for order, ((painter, *_), shapes) in enumerate(alike):  # later shapes lie on top
        painter(axes, list(shapes)).set_zorder(order)
    return [_saved(figure, kind) for kind in kinds]


def _saved(figure: Figure, kind: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    return content.getvalue()


def _kind(shape: Shape) -> tuple[Any, ...]:
    """What neighbours share that matplotlib can paint at once, which saves most of its time."""
    if isinstance(shape, Path):
        return _paths, shape.clip
    if isinstance(shape, Dot):
        return _dots, shape.shape, shape.size, shape.colour
    return (_box, id(shape)) if isinstance(shape, Box) else (_label, id(shape))


def _paths(axes: Axes, paths: Sequence[Path]) -> Artist:
    lines = LineCollection(
        [_with_gaps(path.points) for path in paths],
        colors=[path.colour.light for path in paths],
        linewidths=[path.width * POINT for path in paths],
        linestyles=[_dashes(path.dash, path.width) for path in paths],
        capstyle="butt",
    )
    axes.add_artist(lines)
    box = paths[0].clip
    if box is not None:
        corners = Bbox([[box.x, box.y], [box.x + box.width, box.y + box.height]])
        lines.set_clip_box(TransformedBbox(corners, axes.transData))
    return lines


def _box(axes: Axes, boxes: Sequence[Box]) -> Artist:
    [box] = boxes
    style = _dashes(box.dash, box.line)
    return axes.add_artist(
        Rectangle(
            (box.x, box.y),
            box.width,
            box.height,
            edgecolor=box.stroke.light,
            facecolor=box.fill.light,
            linewidth=box.line * POINT,
            linestyle=style,
        )
    )


def _dots(axes: Axes, dots: Sequence[Dot]) -> Artist:
    first = dots[0]
    return axes.add_artist(
        Line2D(
            [dot.x for dot in dots],
            [dot.y for dot in dots],
            marker=MARKERS[first.shape],
            markersize=2 * first.size * POINT,
            color=first.colour.light,
            markerfacecolor="none" if first.shape == "ring" else first.colour.light,
            linestyle="none",
        )
    )


def _label(axes: Axes, labels: Sequence[Label]) -> Artist:
    [label] = labels
    return axes.text(
        label.x,
        label.y,
        label.text,
        fontsize=label.size * POINT,
        color=label.colour.light,
        fontweight="bold" if label.bold else "normal",
        horizontalalignment=TURNS[label.anchor],
        verticalalignment="baseline",
        rotation=90 if label.turned else 0,
        rotation_mode="anchor",
        parse_math=False,  # a name with a dollar sign is a name
    )


def _with_gaps(points: Sequence[Point | None]) -> list[Point]:
    gap = (float("nan"), float("nan"))
    return [gap if point is None else point for point in points]


def _dashes(dash: tuple[float, ...], width: float) -> Any:
    """Matplotlib counts dashes in widths of the line."""
    return (0, [d / width for d in dash]) if dash else "-"
