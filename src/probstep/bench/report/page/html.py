"""One page of HTML that needs nothing else: figures as SVG, tables that sort, a script of its own.

Every text is escaped where it is written. Should one slip through, the page's policy lets no script
run but the one whose hash it names, and nothing be loaded from anywhere.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files

from probstep.bench.report.drawing.chart import Figure
from probstep.bench.report.page.tables import Table, Value
from probstep.drawing.axes import spell
from probstep.drawing.scene import Block, Row, Sheet
from probstep.drawing.svg import write_block
from probstep.plotting.page import HEAD

HEADLINE = 2  # columns that name a row and need no name themselves
SHARES = ("within ", "share ")  # columns of these beginnings are shares

PAGE = (
    HEAD
    + """<body>
<header><h1>{title}</h1>{summary}</header>
<nav aria-label="contents">{contents}</nav>
<main>{sections}</main>
<footer>Made by <code>probstep report</code> from records alone. Point at a curve for its values;
click a column's heading to sort.</footer>
<div id="tip" role="status" hidden></div>
<script>{script}</script>
</body>
</html>
"""
)


def write_page(
    title: str,
    summary: Sequence[str],
    figures: Sequence[tuple[Figure, Sheet]],
    tables: Sequence[Table],
    *,
    has_files: bool = True,
) -> str:
    """The page as a text, of figures and how they are laid out.

    Args:
        title: Its heading.
        summary: The sentences that it opens with.
        figures: The figures.
        tables: The tables.
        has_files: Whether each figure is there as PNG and PDF beside the page.
    """
    script = read_asset("page.js")
    slugs = [figure.slug for figure, _ in figures] + [table.slug for table in tables]
    contents = "".join(f'<a href="#{slug}">{slug.replace("-", " ")}</a>' for slug in slugs)
    sections = [_figure(figure, sheet, has_files) for figure, sheet in figures] + [
        _table(table) for table in tables
    ]
    return PAGE.format(
        policy=_policy(script),
        title=escape(title),
        style=read_asset("page.css"),
        summary="".join(f"<p>{escape(sentence)}</p>" for sentence in summary),
        contents=contents,
        sections="".join(sections),
        script=script,
    )


def read_asset(name: str) -> str:
    """A file that comes along with this module."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def _figure(figure: Figure, sheet: Sheet, has_files: bool) -> str:
    kinds = ("png", "pdf") if has_files else ()
    files = " ".join(f'<a href="figures/{figure.slug}.{kind}">{kind.upper()}</a>' for kind in kinds)
    rows = "".join(_row(sheet, row) for row in sheet.rows)
    return (
        f'<section id="{figure.slug}"><h2>{escape(figure.title)}</h2>'
        f'<figure style="{_sizes(sheet)}">{_legend(sheet)}{rows}'
        f"<figcaption>{_spell_axes(figure)}{escape(figure.sentence)} {files}</figcaption>"
        "</figure></section>"
    )


def _sizes(sheet: Sheet) -> str:
    """How wide a panel is, and how many stand side by side where there is room: for the style."""
    blocks = [block for row in sheet.rows for _, group in row.groups for block in group]
    across = max(sum(len(group) for _, group in row.groups) for row in sheet.rows)
    return f"--w:{max(block.window.width for block in blocks):.0f}px;--n:{across}"


def _spell_axes(figure: Figure) -> str:
    pairs = (("across", figure.x_label), ("upwards", figure.y_label))
    said = ", ".join(f"{way}: {escape(label)}" for way, label in pairs if label)
    return f'<span class="axes">{said[:1].upper()}{said[1:]}.</span> ' if said else ""


def _legend(sheet: Sheet) -> str:
    if not sheet.legend:
        return ""
    title = f"<span>{escape(sheet.legend_title)}</span>" if sheet.legend_title else ""
    keys = "".join(write_block(block, "", ' class="key"') for block in sheet.legend)
    return f'<div class="legend">{title}{keys}</div>'


def _row(sheet: Sheet, row: Row) -> str:
    name = f"<h3>{escape(row.name)}</h3>" if row.name else ""
    groups = "".join(
        _group(sheet, row, heading, blocks) for heading, blocks in row.groups if blocks
    )
    return f'{name}<div class="row">{groups}</div>'


def _group(sheet: Sheet, row: Row, heading: str, blocks: Sequence[Block]) -> str:
    head = f"<h4>{escape(heading)}</h4>" if heading else ""
    labels = f'data-x="{escape(sheet.x_label)}" data-y="{escape(sheet.y_label)}"'
    said = " ".join(part for part in (sheet.y_label, row.name, heading) if part)
    panels = "".join(write_block(block, said, f' class="figure" {labels}') for block in blocks)
    return f'<div class="group">{head}<div class="panels">{panels}</div></div>'


def _table(table: Table) -> str:
    table = _without_empty_columns(table)
    kinds = [
        "number" if _is_numeric(values) else "text" for values in zip(*table.rows, strict=True)
    ]
    heads = "".join(
        f'<th scope="col" class="{kind}"><button type="button">{escape(name)}</button></th>'
        for name, kind in zip(table.columns, kinds, strict=False)
    )
    rows = "".join(f"<tr>{_cells(table, kinds, row)}</tr>" for row in table.rows)
    content = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
    body = f'{_names_on_a_phone(table)}<div class="scroll"><table>{content}</table></div>'
    return (
        f'<section id="{table.slug}"><h2>{escape(table.title)}</h2>'
        f"<p>{escape(table.sentence)}</p>{body if table.rows else ''}</section>"
    )


def _without_empty_columns(table: Table) -> Table:
    kept = [i for i, values in enumerate(zip(*table.rows, strict=True)) if set(values) != {None}]
    rows = [[row[i] for i in kept] for row in table.rows]
    return replace(table, columns=[table.columns[i] for i in kept], rows=rows)


def _names_on_a_phone(table: Table) -> str:
    """On a narrow screen a row is a card, and each of its values says what it is."""
    rules = "".join(
        f'#{table.slug} td:nth-child({number})::before{{content:"{name}"}}'
        for number, name in enumerate(table.columns, start=1)
        if number > HEADLINE
    )
    return f"<style>@media (max-width:640px){{{rules}}}</style>"


def _is_numeric(values: Sequence[Value]) -> bool:
    return any(isinstance(value, float) for value in values)


def _cells(table: Table, kinds: Sequence[str], row: Sequence[Value]) -> str:
    triples = zip(table.columns, kinds, row, strict=True)
    return "".join(_cell(column, kind, value) for column, kind, value in triples)


def _cell(column: str, kind: str, value: Value) -> str:
    if value is None:
        return f'<td class="{kind} none">–</td>'
    if isinstance(value, str):
        return f'<td class="{kind}">{escape(value)}</td>'
    text = f"{value:.0%}" if column.startswith(SHARES) else spell(value)
    return f'<td class="{kind}" data-value="{value!r}">{text}</td>'
