"""Tables for a page of the documentation."""

from collections.abc import Iterable, Iterator


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
