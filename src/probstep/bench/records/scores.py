"""The numbers of many runs, read without all else that their records hold.

    read_ends      the last scores of each run, from the end of its file
    read_scores    its scores after every epoch

Both pass over what `read_records` passes over, and add it to `unread`.
"""

import math
import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired  # pydantic wants these before Python 3.12

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from probstep.bench.files import open_file, read_file
from probstep.bench.records.record import (
    MOST_BYTES,
    SCHEMA,
    NewerSchemaError,
    Run,
    Status,
)

COLUMNS = (
    "train_loss",
    "train_accuracy",
    "valid_loss",
    "valid_accuracy",
    "test_loss",
    "test_accuracy",
    "effective_rate",
    "forward_passes",
)
MARKS = ("failed", "interrupted")
AFTER_SCORES = b',"probe":'  # no text can have it: a quotation mark in a text has a backslash
TAIL = 1 << 12  # bytes at a file's end that nearly always hold its last two records

Number = float | None


class _Time(TypedDict):
    training_seconds: NotRequired[object]


class _Line(TypedDict):
    """What is read of a line; the rest is passed over."""

    schema: int
    run: str
    epoch: int
    status: Status
    reason: NotRequired[str | None]
    steps: NotRequired[object]
    time: NotRequired[_Time]
    train_loss: NotRequired[Number]
    train_accuracy: NotRequired[Number]
    valid_loss: NotRequired[Number]
    valid_accuracy: NotRequired[Number]
    test_loss: NotRequired[Number]
    test_accuracy: NotRequired[Number]
    effective_rate: NotRequired[Number]
    forward_passes: NotRequired[object]


_LINES = TypeAdapter(_Line)
_MANY_LINES = TypeAdapter(list[_Line])
_RUNS = TypeAdapter(Run)  # a line has a run's fields among its own


@dataclass(frozen=True)
class Scores:
    """A run and its scores: `columns` has a number for each of `epochs`, NaN where there is none.

    Args:
        epoch: Of the last line; of an unfinished epoch if its status says so.
        steps: Training steps, as recorded last.
        seconds: Time in training, as recorded last.
    """

    run: Run
    status: Status
    reason: str | None
    epoch: int
    epochs: Sequence[int]
    columns: Mapping[str, Sequence[float]]
    steps: float
    seconds: float


def read_scores(out: Path | str, unread: list[Path] | None = None) -> Iterator[Scores]:
    """The scores of each run in an output directory, after every epoch.

    >>> list(read_scores("/nowhere"))
    []
    """
    return _read_files(out, lambda path: decode_scores(read_file(path, MOST_BYTES)), unread)


def read_ends(out: Path | str, unread: list[Path] | None = None) -> Iterator[Scores]:
    """The last scores of each run in an output directory.

    >>> list(read_ends("/nowhere"))
    []
    """
    return _read_files(out, _read_end, unread)


def decode_scores(data: bytes) -> Scores | None:
    """The scores in a file's content; None if it is empty.

    Raises:
        NewerSchemaError: One of the lines was written by a newer version of probstep.
        ValueError: Its first line is no record.
    """
    if not data:
        return None
    lines = data.splitlines(keepends=True)
    first = _decode_line(lines[0])
    if first is None:
        raise ValueError("The first line is torn, or no record.")
    run = _decode_run(lines[0], first["run"])
    found = _decode_smooth(lines, run.key) or _decode_each(lines, run.key)
    if not found:
        raise ValueError("The first line is not of the first epoch.")
    scored = [values for values in found if values["status"] not in MARKS]
    columns = {name: _column(scored, name) for name in COLUMNS}
    last = scored[-1] if scored else found[-1]
    return _gather(run, found[-1], last, range(len(scored)), columns)


def _decode_smooth(lines: Sequence[bytes], key: str) -> list[_Line]:
    """The lines of a run that was never disturbed, read at once; none of any other.

    Of all lines but the last only their scores are read, which come before all else.
    """
    if not lines[-1].endswith(b"\n"):
        return []
    heads = [line[: line.find(AFTER_SCORES)] + b"}" for line in lines[:-1]]
    try:
        found = _MANY_LINES.validate_json(b"[" + b",".join((*heads, lines[-1])) + b"]")
    except ValidationError:
        return []
    is_smooth = [values["epoch"] for values in found] == list(range(len(lines)))
    is_smooth &= all(values["run"] == key and values["schema"] <= SCHEMA for values in found)
    is_smooth &= all(values["status"] == "running" for values in found[:-1])
    return found if is_smooth else []


def _decode_each(lines: Sequence[bytes], key: str) -> list[_Line]:
    """The whole lines at the start, line by line."""
    found: list[_Line] = []
    epoch = 0
    for line in lines:
        values = _decode_line(line)
        if values is None or values["run"] != key or values["epoch"] != epoch:
            break
        found.append(values)
        if values["status"] in ("done", "diverged"):
            break
        epoch += values["status"] not in MARKS
    return found


def _column(lines: Sequence[_Line], name: str) -> "array[float]":
    return array("d", [as_number(line.get(name)) for line in lines])


def _read_files(
    out: Path | str, read: Callable[[Path], Scores | None], unread: list[Path] | None
) -> Iterator[Scores]:
    folder = Path(out, "records")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for path in (folder / name for name in names if name.endswith(".jsonl")):
        try:
            scores = read(path)
        except (OSError, ValueError):
            if unread is not None:
                unread.append(path)
        else:
            if scores is not None:
                yield scores


def _read_end(path: Path) -> Scores | None:
    """The scores in the file's last lines; if these do not explain themselves, all are read."""
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        lines = file.read().splitlines(keepends=True)
    whole = lines if size <= TAIL else lines[1:]
    end = _decode_line(whole[-1]) if whole else None
    is_mark = end is not None and end["status"] in MARKS
    scored = _decode_line(whole[-2]) if is_mark and len(whole) > 1 else end
    if end is None or scored is None or scored["status"] in MARKS or scored["run"] != end["run"]:
        return decode_scores(read_file(path, MOST_BYTES))
    columns = {name: [as_number(scored.get(name))] for name in COLUMNS}
    return _gather(_decode_run(whole[-1], end["run"]), end, scored, [scored["epoch"]], columns)


def _gather(
    run: Run,
    end: _Line,
    scored: _Line,
    epochs: Sequence[int],
    columns: Mapping[str, Sequence[float]],
) -> Scores:
    status, reason = as_it_ended(end["status"], end.get("reason"), end.get("train_loss"))
    return Scores(
        run=run,
        status=status,
        reason=reason,
        epoch=end["epoch"],
        epochs=epochs,
        columns=columns,
        steps=as_number(scored.get("steps")),
        seconds=as_number(scored.get("time", {}).get("training_seconds")),
    )


def as_number(value: object) -> float:
    """A finite float, or NaN.

    >>> as_number(3), as_number("3"), as_number(10**400), as_number(True)
    (3.0, nan, nan, 1.0)
    """
    if value.__class__ is float:  # nearly always, and there are millions
        return value if -math.inf < value < math.inf else math.nan
    if not isinstance(value, int | float):
        return math.nan
    try:
        return float(value) if math.isfinite(value) else math.nan
    except OverflowError:
        return math.nan


def as_it_ended(status: Status, reason: str | None, loss: Number) -> tuple[Status, str | None]:
    """The status and its reason; whose loss is no number has not ended well, whatever it says.

    >>> as_it_ended("done", None, math.inf)
    ('diverged', 'the training loss on record is inf')
    """
    if status == "done" and loss is not None and not math.isfinite(loss):
        return "diverged", f"the training loss on record is {loss}"
    return status, reason


def _decode_run(line: bytes, key: str) -> Run:
    """The run of a line.

    Raises:
        ValueError: The line has none, or not the one of that key.
    """
    run = _RUNS.validate_json(line)
    if run.key != key:
        raise ValueError(f"A record of run {run.key} says that it is of run {key}.")
    return run


def _decode_line(line: bytes) -> _Line | None:
    if not line.endswith(b"\n"):
        return None
    try:
        values = _LINES.validate_json(line)
    except ValidationError:
        return None
    if values["schema"] > SCHEMA:
        raise NewerSchemaError(f"It has a record of schema {values['schema']}.")
    return values
