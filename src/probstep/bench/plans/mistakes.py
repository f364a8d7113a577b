"""Mistakes in a plan, told so that they can be put right: where, what is allowed, what is near."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from pydantic import ValidationError

from probstep.bench.names import check_name

Place = Sequence[str | int]  # the way to a value: ("runs", 1, "methods", 0)


def explain(
    error: ValidationError, text: str, name: str, keys: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """One sentence per mistake, with its line.

    Args:
        error: What pydantic found.
        text: The plan.
        name: The plan's name.
        keys: The keys that each kind of table may have; "" is the top level.
    """
    for mistake in error.errors():
        place = mistake["loc"]
        message = mistake["msg"].removeprefix("Value error, ")
        if mistake["type"] == "extra_forbidden":
            table = str(place[0]) if len(place) > 1 else ""
            message = _unknown_key(str(place[-1]), keys.get(table, ()))
        elif mistake["type"] != "value_error":
            message = f"{_spell(place)}: {message}, not {mistake['input']!r}."
        yield f"{name}, line {find_line(text, place, mistake['input'])}: {message}"


def find_line(text: str, place: Place, value: object = None) -> int:
    r"""The line of a value in a TOML text, or of the nearest thing around it that can be found.

    >>> find_line("seeds = [0]\n[[runs]]\n[[runs]]\nrates = [1.0]", ("runs", 1, "rates", 0))
    4
    """
    lines = text.splitlines()
    start = 0
    for key, index in zip(place, [*place[1:], None], strict=True):
        if isinstance(key, str):
            start = _find_key(lines, start, key, index if isinstance(index, int) else 0)
    if isinstance(value, str):
        quoted = re.compile(f"[\"']{re.escape(value)}[\"']")
        start = next((n for n in range(start, len(lines)) if quoted.search(lines[n])), start)
    return start + 1


def _find_key(lines: Sequence[str], start: int, key: str, index: int) -> int:
    """The line that opens the index-th table of that name, or else sets the key."""
    table = re.compile(rf"\s*\[\[?\s*([\w\"'-]+\.)*[\"']?{re.escape(key)}[\"']?\s*\]")
    setting = re.compile(rf"(.*[{{,])?\s*[\"']?{re.escape(key)}[\"']?\s*=")
    tables = [n for n in range(start, len(lines)) if table.match(lines[n])]
    if index < len(tables):
        return tables[index]
    return next((n for n in range(start, len(lines)) if setting.match(lines[n])), start)


def _unknown_key(key: str, allowed: Collection[str]) -> str:
    try:
        check_name(key, allowed, kind="key")
    except ValueError as error:
        return str(error)
    return f"unexpected key {key!r}"


def _spell(place: Place) -> str:
    """The way to a value as a person writes it: runs[1].epochs."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".")
