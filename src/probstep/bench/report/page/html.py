"""One page of HTML that needs nothing else: figures as SVG, tables that sort, a script of its own.

Every text is escaped where it is written. Should one slip through, the page's policy lets no script
run but the one whose hash it names, and nothing be loaded from anywhere.
"""

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from probstep.bench.report.drawing.axes import spell
from probstep.bench.report.drawing.chart import Figure
from probstep.bench.report.drawing.layout import lay_out
from probstep.bench.report.drawing.svg import write_svg
from probstep.bench.report.page.tables import Table, Value

SHARES = "within "  # columns of this beginning are shares

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
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


def write_page(
    title: str, summary: Sequence[str], figures: Sequence[Figure], tables: Sequence[Table]
) -> str:
    """The page as a text."""
    script = read_asset("page.js")
    slugs = [figure.slug for figure in figures] + [table.slug for table in tables]
    contents = "".join(f'<a href="#{slug}">{slug.replace("-", " ")}</a>' for slug in slugs)
    sections = [_figure(figure) for figure in figures] + [_table(table) for table in tables]
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


def _figure(figure: Figure) -> str:
    files = " ".join(
        f'<a href="figures/{figure.slug}.{kind}">{kind.upper()}</a>' for kind in ("png", "pdf")
    )
    return (
        f'<section id="{figure.slug}"><h2>{escape(figure.title)}</h2>'
        f'<figure><div class="scroll">{write_svg(lay_out(figure), figure.title)}</div>'
        f"<figcaption>{escape(figure.sentence)} {files}</figcaption></figure></section>"
    )


def _table(table: Table) -> str:
    kinds = [
        "number" if _is_numeric(values) else "text" for values in zip(*table.rows, strict=True)
    ]
    heads = "".join(
        f'<th scope="col" class="{kind}"><button type="button">{escape(name)}</button></th>'
        for name, kind in zip(table.columns, kinds, strict=False)
    )
    rows = "".join(f"<tr>{_cells(table, kinds, row)}</tr>" for row in table.rows)
    content = f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
    body = f'<div class="scroll"><table>{content}</table></div>'
    return (
        f'<section id="{table.slug}"><h2>{escape(table.title)}</h2>'
        f"<p>{escape(table.sentence)}</p>{body if table.rows else ''}</section>"
    )


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
