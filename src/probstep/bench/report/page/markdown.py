"""Tables and paragraphs for a page of the documentation."""

import textwrap
from collections.abc import Iterable, Iterator

from probstep.bench.report.numbers.bars import HALVES, Bar, Finding

WIDTH = 118  # of a line of text


def write_table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    r"""The lines of a table, and an empty one.

    >>> print("\n".join(write_table(["a", "b"], [[1, 2]])))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    <BLANKLINE>
    """
    names = list(head)
    yield _row(names)
    yield _row(["---"] * len(names))
    yield from (_row(entries) for entries in rows)
    yield ""


def _row(entries: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, entries)) + " |"


def write_paragraph(text: str) -> Iterator[str]:
    """The lines of a paragraph whose length is not known before, and an empty one."""
    yield from textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    yield ""


def write_items(texts: Iterable[str]) -> Iterator[str]:
    """The lines of a list, and an empty one."""
    for text in texts:
        yield from textwrap.wrap(
            f"- {text}",
            WIDTH,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    yield ""


def write_bars(bars: Iterable[Bar]) -> Iterator[str]:
    """A table of bars: what is asked for, what was found on each half, and whether that is enough."""
    rows = []
    for bar in bars:
        found = [bar.findings.get(half, Finding("no rows", None)).text for half in HALVES]
        rows.append([bar.what, bar.limit, *found, bar.word])
    yield from write_table(["", "the bar", "tuning half", "kept half", "reached"], rows)
