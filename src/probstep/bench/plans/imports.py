"""A user's own problems and methods, from a Python file that the user names.

The file holds a table `PROBLEMS`, a table `METHODS`, or both, like those of the bench. Its text
travels with the work, so that it need not lie on the machines of a cluster. Plans and records never
name such a file: they are data. Records have a hash of its text, to tell results of another text.
"""

import hashlib
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from probstep.bench.methods import METHODS
from probstep.bench.problems import PROBLEMS

_HASHES: dict[tuple[str, str], str] = {}  # of the text from which a table has a name


@dataclass(frozen=True)
class Source:
    """A Python file's place and text."""

    path: str
    text: str

    @property
    def hash(self) -> str:
        """A short name of the text.

        >>> Source("mine.py", "METHODS = {}").hash
        'bddb18298e85f313'
        """
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


def read_source(path: Path) -> Source:
    """The file's text.

    Raises:
        ValueError: There is no such file.
    """
    try:
        return Source(str(path.resolve()), path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"Cannot import {path}: {error.strerror}.") from error


def add_source(source: Source) -> None:
    """Execute the file, once in this process, and add its tables to those of the bench.

    Raises:
        ValueError: It cannot be executed, has neither table, something else in the place of one,
            or a name that the bench has already.
    """
    name = f"probstep_import_{source.hash}"
    if name in sys.modules:
        return
    module = _execute(name, source)
    tables: dict[str, dict[str, Any]] = {"PROBLEMS": PROBLEMS, "METHODS": METHODS}
    found = {table: vars(module)[table] for table in tables if table in vars(module)}
    if not found:
        raise ValueError(f"{source.path} has no table PROBLEMS and no table METHODS.")
    for table, rows in found.items():
        _check_rows(table, rows, tables[table], source.path)
    for table, rows in found.items():
        tables[table].update(rows)
        _HASHES.update({(table, row): source.hash for row in rows})


def imported_hash(problem: str, method: str) -> str | None:
    """A hash of the files from which the problem and the method are; None if the bench has both.

    >>> imported_hash("digits_mlp", "adam")
    """
    names = (("PROBLEMS", problem), ("METHODS", method))
    hashes = dict.fromkeys(_HASHES[name] for name in names if name in _HASHES)
    return "+".join(hashes) or None


def _execute(name: str, source: Source) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = source.path
    folder = str(Path(source.path).parent)
    if folder not in sys.path:  # as `python file.py` does, so that it finds its neighbours
        sys.path.append(folder)
    sys.modules[name] = module
    try:
        exec(compile(source.text, source.path, "exec"), vars(module))
    except Exception as error:
        del sys.modules[name]
        raise ValueError(f"Cannot import {source.path}{_line(error, source.path)}") from error
    return module


def _line(error: Exception, path: str) -> str:
    """The last line of the file that an error has passed, and what it says."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f", line {error.lineno}: SyntaxError: {error.msg}."
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    where = f", line {frames[-1].lineno}" if frames else ""
    return f"{where}: {type(error).__name__}: {error}"


def _check_rows(table: str, rows: object, known: Mapping[str, Any], path: str) -> None:
    if not isinstance(rows, Mapping):
        kind = type(rows).__name__
        raise ValueError(f"{path}: {table} must map names to rows, and is a {kind}.")
    taken = sorted(rows.keys() & known.keys())
    if taken:
        raise ValueError(f"{path}: the name {taken[0]!r} is taken. Choose another one.")
    for key, row in rows.items():
        if getattr(row, "name", None) != key:
            said = repr(getattr(row, "name", None))
            raise ValueError(
                f"{path}: the row {key!r} of {table} must have that `name`, not {said}."
            )
