"""Drawings and blocks of them as SVG: colours follow the reader's mode, values wait for the pointer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from .scene import Block, Box, Colour, Dot, Label, Path, Point, Scene

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
STYLE = """<style>
.s { fill: none; stroke: var(--l); stroke-linejoin: round } .f { fill: var(--f) }
@media (prefers-color-scheme: dark) { .s { stroke: var(--d) } .f { fill: var(--g) } }
</style>"""
CROSS = ((-1, -1), (1, 1), None, (-1, 1), (1, -1))


def write_block(block: Block, title: str, named: str = "") -> str:
    """A block as an SVG element of its own; every text in it is escaped.

    Args:
        block: The block.
        title: What it shows, for who cannot see it; empty for decoration.
        named: Further attributes.

    >>> write_block(Block(0, 0, Box(0, 0, 9, 9), (Label(1, 2, "<b>"),)), "a & b")[-29:]
    'start">&lt;b&gt;</text></svg>'
    """
    window = block.window
    width, height = f"{window.width:.0f}", f"{window.height:.0f}"
    view = f"{window.x:.0f} {window.y:.0f} {width} {height}"
    body = "".join(_WRITERS[type(shape)](shape) for shape in (*block.shapes, *block.alone))
    role = f'role="img" aria-label="{escape(title)}"' if title else 'aria-hidden="true"'
    return f'<svg width="{width}" height="{height}" viewBox="{view}" {role}{named}>{body}</svg>'


def write_svg(scene: Scene, title: str, kind: str) -> str:
    """A whole drawing as an SVG element of a page, of a class that the page's style knows.

    >>> write_svg(Scene(10, 20, ()), "a", "wide")
    '<svg width="10" height="20" viewBox="0 0 10 20" role="img" aria-label="a" class="wide"></svg>'
    """
    block = Block(0, 0, Box(0, 0, scene.width, scene.height), scene.shapes)
    return write_block(block, title, f' class="{kind}"')


def write_svg_file(scene: Scene, title: str) -> str:
    """The drawing as a file of its own: no background, colours by the reader's mode, no tooltips.

    >>> write_svg_file(Scene(10, 10, ()), "a")[:40]
    '<svg xmlns="http://www.w3.org/2000/svg" '
    """
    quiet = (replace(s, name="") if not isinstance(s, Label) else s for s in scene.shapes)
    body = "\n".join(_WRITERS[type(shape)](shape) for shape in quiet)
    width, height = f"{scene.width:.0f}", f"{scene.height:.0f}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"'
    return f'{opening} font-family="{FONTS}">\n<title>{escape(title)}</title>\n{STYLE}\n{body}\n</svg>\n'


def _path(path: Path) -> str:
    values = f' data-v="{escape("|".join(path.values))}"' if path.name else ""
    drawn = (
        f'<path class="s" d="{_route(path.points)}" {_stroke(path.colour, path.width, path.dash)}'
    )
    drawn += f"{_name(path.name)}{values}/>"
    return drawn if path.clip is None else _clipped(drawn, path.clip)


def _clipped(drawn: str, box: Box) -> str:
    """A nested SVG element shows only what lies in its box."""
    x, y, width, height = (f"{v:.1f}" for v in (box.x, box.y, box.width, box.height))
    place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<svg {place} viewBox="{x} {y} {width} {height}">{drawn}</svg>'


def _box(box: Box) -> str:
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    value = f' data-v="{escape(box.value)}"' if box.name else ""
    colours = f"--f:{box.fill.light};--g:{box.fill.dark}"
    stroke = _stroke(box.stroke, box.line, box.dash, colours)
    return f'<rect class="s f" {place} {stroke}{_name(box.name)}{value}/>'


def _dot(dot: Dot) -> str:
    value = f' data-v="{escape(dot.value)}"' if dot.name else ""
    named = f"{_name(dot.name)}{value}"
    if dot.shape == "cross":
        points = [None if c is None else _offset(dot, c) for c in CROSS]
        at = f'data-x="{dot.x:.1f}" data-y="{dot.y:.1f}"'
        return f'<path class="s" d="{_route(points)}" {_stroke(dot.colour, 1.6)} {at}{named}/>'
    fill = dot.colour if dot.shape == "disc" else Colour("none", "none")
    colours = f"--f:{fill.light};--g:{fill.dark}"
    place = f'cx="{dot.x:.1f}" cy="{dot.y:.1f}" r="{dot.size:.1f}"'
    return f'<circle class="s f" {place} {_stroke(dot.colour, 1.6, (), colours)}{named}/>'


def _offset(dot: Dot, corner: tuple[int, int]) -> Point:
    return dot.x + corner[0] * dot.size, dot.y + corner[1] * dot.size


def _label(label: Label) -> str:
    turn = f' transform="rotate(-90 {label.x:.1f} {label.y:.1f})"' if label.turned else ""
    bold = ' font-weight="600"' if label.bold else ""
    colours = f'style="--f:{label.colour.light};--g:{label.colour.dark}"'
    place = f'x="{label.x:.1f}" y="{label.y:.1f}" font-size="{label.size:g}"'
    anchor = f'text-anchor="{label.anchor}"'
    return f'<text class="f" {place}{bold}{turn} {colours} {anchor}>{escape(label.text)}</text>'


_WRITERS: dict[type, Callable[[Any], str]] = {Path: _path, Box: _box, Dot: _dot, Label: _label}


def _route(points: Sequence[Point | None]) -> str:
    parts, command = [], "M"
    for point in points:
        if point is None:
            command = "M"
        else:
            parts.append(f"{command}{point[0]:.1f},{point[1]:.1f}")
            command = "L"
    return "".join(parts)


def _stroke(colour: Colour, width: float, dash: tuple[float, ...] = (), more: str = "") -> str:
    dashes = f' stroke-dasharray="{" ".join(f"{d:g}" for d in dash)}"' if dash else ""
    style = ";".join(part for part in (f"--l:{colour.light};--d:{colour.dark}", more) if part)
    return f'stroke-width="{width:g}"{dashes} style="{style}"'


def _name(name: str) -> str:
    return f' data-n="{escape(name)}"' if name else ""
