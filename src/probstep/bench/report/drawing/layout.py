"""From what a figure says to a drawing: where panels, ticks, lines and legends go."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from probstep.bench.report.drawing.chart import Figure, Line, Panel, Tile
from probstep.drawing.axes import Axis, spell
from probstep.drawing.scene import (
    CLEAR,
    FAINT,
    GREY,
    INK,
    RULE,
    Anchor,
    Block,
    Box,
    Colour,
    Dot,
    Label,
    Path,
    Point,
    Row,
    Shape,
    Sheet,
)

FRAMES: dict[str, tuple[Colour, float, tuple[float, ...]]] = {  # the paper's, Fig. 3
    "fixed": (GREY, 1.0, ()),
    "default rule": (INK, 2.6, ()),
    "paper's rule": (INK, 1.4, ()),
    "hypergradient": (INK, 1.4, (6, 4)),
    "L4": (INK, 1.4, (8, 3, 1.5, 3)),
    "plain": (GREY, 1.0, ()),
}
DASHES: dict[str, tuple[float, ...]] = {
    "solid": (),
    "dashed": (7, 4),
    "long-dashed": (15, 4),
    "dotted": (2, 3),
    "dash-dotted": (8, 3, 2, 3),
}
LEGEND_ROW, LETTER, WIDE_LETTER = 18.0, 6.8, 10.0  # pixels; fonts differ, so with some room
TILE_INK = Colour("#101214", "#101214")  # the tiles are light on either page


@dataclass(frozen=True)
class _Spacing:
    """Room around and between the panels of a figure, in pixels."""

    left: float
    top: float
    across: float
    down: float
    between_groups: float = 22.0
    right: float = 16.0
    bottom: float = 44.0


def lay_out(figure: Figure) -> Sheet:
    """The figure's blocks, and where they are in one drawing."""
    space = _spacing(figure)
    lefts, width = _columns(figure, space)
    pitch = figure.size[1] + space.down
    height = space.top + pitch * len(figure.rows) - space.down + space.bottom
    tops = [space.top + i * pitch for i in range(len(figure.rows))]
    legend = list(_legend(figure, space.left, height + 8, width - space.left))
    return Sheet(
        width=width,
        height=max([height, *(block.y for block in legend)]) + 16,
        rows=[_row(figure, index, lefts, top) for index, top in enumerate(tops)],
        headings=list(_headings(figure, lefts, tops, space)),
        legend=legend,
        legend_title=figure.legend_title,
        x_label=figure.x_label.split(" (")[0],
        y_label=figure.y_label,
    )


def _spacing(figure: Figure) -> _Spacing:
    return _Spacing(
        left=_left_margin(figure),
        top=26.0 + 20.0 * bool(figure.groups),
        across=12.0 if figure.y_shared else 56.0,
        down=48.0
        if any(panel and panel.title for row in figure.rows[1:] for panel in row)
        else 34.0,
    )


def _left_margin(figure: Figure) -> float:
    """Room for the ticks' texts, the name of the axis and those of the rows."""
    return 24.0 + _tick_room(figure) + 32.0 * bool(figure.row_names)


def _tick_room(figure: Figure) -> float:
    names = [name for row in figure.rows for panel in row if panel for name in panel.y_names]
    return max([38.0, *(_text_width(name) for name in names)])


def _columns(figure: Figure, space: _Spacing) -> tuple[list[float], float]:
    """The left edges of the columns and the width of it all."""
    counts = [count for _, count in figure.groups] or [max(len(row) for row in figure.rows)]
    lefts, x = [], space.left
    for count in counts:
        for _ in range(count):
            lefts.append(x)
            x += figure.size[0] + space.across
        x += space.between_groups - space.across
    return lefts, max(x - space.between_groups + space.right, 340.0)


def _headings(
    figure: Figure, lefts: Sequence[float], tops: Sequence[float], space: _Spacing
) -> Iterable[Shape]:
    bottom = tops[-1] + figure.size[1]
    middle = (lefts[0] + lefts[-1] + figure.size[0]) / 2
    yield Label(middle, bottom + 34, figure.x_label, colour=FAINT, anchor="middle")
    turned = (bottom + space.top) / 2
    yield Label(14, turned, figure.y_label, colour=FAINT, anchor="middle", turned=True)
    if figure.legend_title:
        yield Label(space.left, bottom + space.bottom + 12, figure.legend_title, 11, FAINT)
    first = 0
    for name, count in figure.groups:
        ends = lefts[first], lefts[first + count - 1] + figure.size[0]
        yield Label(sum(ends) / 2, 16, name, 13, anchor="middle", bold=True)
        first += count
    for name, top in zip(figure.row_names, tops, strict=False):
        yield from _row_name(name, top + figure.size[1] / 2, figure.size[1] + space.down)


def _row_name(name: str, middle: float, room: float) -> Iterable[Shape]:
    """The name of a row, and under it what sets it apart from its namesakes."""
    most = int(room / (LETTER + 0.4))
    for x, text, bold in zip((34, 48), name.split(" ", 1), (True, False), strict=False):
        cut = text if len(text) <= most else text[: most - 1] + "…"
        yield Label(x, middle, cut, 11, anchor="middle", bold=bold, turned=True)


def _row(figure: Figure, index: int, lefts: Sequence[float], top: float) -> Row:
    panels = figure.rows[index]
    shown = [number for number, panel in enumerate(panels) if panel is not None]
    blocks = [
        None if panel is None else _panel(figure, panel, left, top, number == shown[0])
        for number, (panel, left) in enumerate(zip(panels, lefts, strict=False))
    ]
    groups, first = [], 0
    for heading, count in figure.groups or [("", len(blocks))]:
        members = [block for block in blocks[first : first + count] if block is not None]
        groups.append((heading, members))
        first += count
    name = figure.row_names[index] if index < len(figure.row_names) else ""
    return Row(name, groups)


def _panel(figure: Figure, panel: Panel, left: float, top: float, is_first: bool) -> Block:
    """A panel around its upper left corner."""
    box = Box(0.0, 0.0, *figure.size)
    colour, line, dash = FRAMES[panel.frame]
    shapes: list[Shape] = [Label(box.width / 2, -7, panel.title, 11, anchor="middle")]
    shapes += _x_ticks(panel, box)
    shapes += _rules(panel, box)
    shapes += [shape for tile in panel.tiles for shape in _tile(panel, tile, box)]
    shapes += [shape for curve in panel.lines for shape in _curve(panel, curve, box)]
    shapes += [Box(0.0, 0.0, box.width, box.height, stroke=colour, line=line, dash=dash)]
    ticks = _tick_room(figure) + 8
    head = 20.0 if panel.title else 8.0
    return Block(
        x=left,
        y=top,
        window=Box(-ticks, -head, ticks + box.width + 12, head + box.height + 22),
        shapes=tuple(shapes),
        alone=tuple(_y_ticks(panel, box)),
        is_first=is_first or not figure.y_shared,
    )


def _x_ticks(panel: Panel, box: Box) -> Iterable[Shape]:
    for x, text in _x_shares(panel, box):
        yield Label(x * box.width, box.height + 15, text, 10, FAINT, _tick_anchor(x))


def _rules(panel: Panel, box: Box) -> Iterable[Shape]:
    """Lines at the ticks, where these are numbers."""
    for x, _ in _x_shares(panel, box) if not panel.x_names else ():
        yield Path([(x * box.width, 0.0), (x * box.width, box.height)], RULE)
    for y, _ in _y_shares(panel, box) if not panel.y_names else ():
        yield Path([(0.0, box.height * (1 - y)), (box.width, box.height * (1 - y))], RULE)


def _y_ticks(panel: Panel, box: Box) -> Iterable[Shape]:
    for y, text in _y_shares(panel, box):
        yield Label(-6, box.height * (1 - y) + 3.5, text, 10, FAINT, "end")


def _x_shares(panel: Panel, box: Box) -> list[tuple[float, str]]:
    return _tick_shares(panel.x, panel.x_names, int(box.width / 38))


def _y_shares(panel: Panel, box: Box) -> list[tuple[float, str]]:
    return _tick_shares(panel.y, panel.y_names, int(box.height / 24))


def _tick_anchor(share: float) -> Anchor:
    """At a panel's edge a tick's text turns inwards, away from the next panel's."""
    return "start" if share < 0.01 else "end" if share > 0.99 else "middle"


def _tick_shares(axis: Axis, names: Sequence[str], most: int) -> list[tuple[float, str]]:
    if names:
        return [((i + 0.5) / len(names), name) for i, name in enumerate(names)]
    return [(axis.share(tick) or 0.0, spell(tick)) for tick in axis.ticks(max(most, 2))]


def _curve(panel: Panel, line: Line, box: Box) -> Iterable[Shape]:
    points = [_place(panel, x, y, box) for x, y in zip(line.xs, line.ys, strict=True)]
    values = [
        "" if y is None else f"{spell(x)}, {spell(y)}"
        for x, y in zip(line.xs, line.ys, strict=True)
    ]
    dash = DASHES[line.dash]
    if line.width:
        yield Path(points, line.colour, line.width, dash, line.name, values, clip=box)
    for point, value in zip(points, values, strict=True):
        if point is not None and line.marker != "none":
            yield Dot(*point, line.colour, 3.0, line.marker, line.name, value)
    for x in line.lost:
        at = _place(panel, x, panel.y.high if panel.worst == "top" else panel.y.low, box)
        if at is not None:
            inwards = 6 if panel.worst == "top" else -6
            yield Dot(at[0], at[1] + inwards, line.colour, 3.5, "cross", line.name, "diverged")


def _place(panel: Panel, x: float, y: float | None, box: Box) -> Point | None:
    across = panel.x.share(x)
    up = None if y is None else panel.y.share(y)
    if across is None or up is None:
        return None
    # Far outside is as good as anywhere outside: what reads the drawing may not take large numbers.
    across, up = (min(max(share, -5.0), 6.0) for share in (across, up))
    return box.x + across * box.width, box.y + box.height - up * box.height


def _tile(panel: Panel, tile: Tile, box: Box) -> Iterable[Shape]:
    width, height = box.width / len(panel.x_names), box.height / len(panel.y_names)
    x = box.x + tile.column * width
    y = box.y + box.height - (tile.row + 1) * height
    yield Box(x, y, width, height, CLEAR, tile.colour, name=tile.name, value=tile.text)
    yield Label(x + width / 2, y + height / 2 + 4, tile.text, 11, TILE_INK, "middle")


def _legend(figure: Figure, left: float, top: float, width: float) -> Iterable[Block]:
    x, y = left, top
    if figure.legend_title:
        x += _text_width(figure.legend_title) + 8
    for line in figure.legend:
        needed = 46 + _text_width(line.name)
        if x + needed > left + width and x > left:
            x, y = left, y + LEGEND_ROW
        shapes: list[Shape] = [Label(32, 4, line.name, 11)]
        if line.width:
            shapes += [Path([(0.0, 0.0), (26.0, 0.0)], line.colour, line.width, DASHES[line.dash])]
        if line.marker != "none":
            shapes += [Dot(13, 0, line.colour, 3.0, line.marker)]
        yield Block(x, y, Box(0, -LEGEND_ROW / 2, needed - 8, LEGEND_ROW), tuple(shapes))
        x += needed


def _text_width(text: str) -> float:
    return sum(WIDE_LETTER if letter in "mwMW" else LETTER for letter in text)
