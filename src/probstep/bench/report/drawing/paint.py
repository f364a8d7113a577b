"""A drawing on paper: PNG and PDF with matplotlib, in the light colours."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path as FilePath
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.transforms import Bbox, TransformedBbox

from probstep.bench.files import write_file
from probstep.bench.report.drawing.scene import Box, Dot, Label, Path, Point, Scene

PIXELS = 96.0  # per inch of paper
POINT = 72.0 / PIXELS  # a pixel in points
REMEDY = "Remove it, or choose another directory with --to."
SUFFIXES = (".png", ".pdf")
MARKERS = {"disc": "o", "ring": "o", "cross": "x"}
TURNS = {"start": "left", "middle": "center", "end": "right"}


def paint(scene: Scene, stem: FilePath) -> list[FilePath]:
    """Write the drawing as PNG and PDF; the paths of the files."""
    figure = Figure(figsize=(scene.width / PIXELS, scene.height / PIXELS), dpi=2 * PIXELS)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, scene.width)
    axes.set_ylim(scene.height, 0)
    axes.axis("off")
    for order, shape in enumerate(scene.shapes):  # later shapes lie on top, whatever they are
        _PAINTERS[type(shape)](axes, shape).set_zorder(order)
    paths = [stem.with_suffix(suffix) for suffix in SUFFIXES]
    for path in paths:
        content = io.BytesIO()
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else None
        figure.savefig(content, format=path.suffix[1:], metadata=metadata)
        write_file(path, content.getvalue(), REMEDY)
    return paths


def _path(axes: Axes, path: Path) -> Artist:
    xs, ys = _with_gaps(path.points)
    line = Line2D(xs, ys, color=path.colour.light, linewidth=path.width * POINT)
    line.set_linestyle(_dashes(path.dash, path.width))
    axes.add_artist(line)
    line.set_solid_capstyle("butt")
    if path.clip is not None:
        box = path.clip
        corners = Bbox([[box.x, box.y], [box.x + box.width, box.y + box.height]])
        line.set_clip_box(TransformedBbox(corners, axes.transData))
    return line


def _box(axes: Axes, box: Box) -> Artist:
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


def _dot(axes: Axes, dot: Dot) -> Artist:
    return axes.add_artist(
        Line2D(
            [dot.x],
            [dot.y],
            marker=MARKERS[dot.shape],
            markersize=2 * dot.size * POINT,
            color=dot.colour.light,
            markerfacecolor="none" if dot.shape == "ring" else dot.colour.light,
            linestyle="none",
        )
    )


def _label(axes: Axes, label: Label) -> Artist:
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


_PAINTERS: dict[type, Callable[[Axes, Any], Artist]] = {
    Path: _path,
    Box: _box,
    Dot: _dot,
    Label: _label,
}


def _with_gaps(points: Sequence[Point | None]) -> tuple[list[float], list[float]]:
    gap = (float("nan"), float("nan"))
    filled = [gap if point is None else point for point in points]
    return [x for x, _ in filled], [y for _, y in filled]


def _dashes(dash: tuple[float, ...], width: float) -> Any:
    """Matplotlib counts dashes in widths of the line."""
    return (0, [d / width for d in dash]) if dash else "-"
