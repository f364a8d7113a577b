"""The numbers of many runs, read without all else that their records hold.

    read_ends      the last records of each run, from the end of its file
    read_scores    a column of numbers per score of each run

Both pass over what `read_records` passes over, and add it to `unread`.
"""

import math
import os
from array import array
from collections.abc import Iterator
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
    Record,
    Run,
    Status,
    decode_record,
    decode_records,
    without_overcome,
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
TAIL = 1 << 14  # bytes at a file's end that nearly always hold its last two records

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


@dataclass(frozen=True)
class Scores:
    """A run and its scores: `columns` has a number per epoch from 0 on, NaN where there is none.

    Args:
        epoch: Of the last line; of an unfinished epoch if its status says so.
        steps: Training steps, as recorded last.
        seconds: Time in training, as recorded last.
    """

    run: Run
    status: Status
    reason: str | None
    epoch: int
    columns: dict[str, "array[float]"]
    steps: float
    seconds: float


def read_scores(out: Path | str, unread: list[Path] | None = None) -> Iterator[Scores]:
    """The scores of each run in an output directory.

    >>> list(read_scores("/nowhere"))
    []
    """
    for path in _files(out):
        try:
            scores = decode_scores(read_file(path, MOST_BYTES))
        except (OSError, ValueError):
            if unread is not None:
                unread.append(path)
        else:
            if scores is not None:
                yield scores


def read_ends(out: Path | str, unread: list[Path] | None = None) -> Iterator[list[Record]]:
    """The last scored record of each run, and the mark after it if its next epoch was not finished.

    >>> list(read_ends("/nowhere"))
    []
    """
    for path in _files(out):
        try:
            records = _read_end(path)
        except (OSError, NewerSchemaError):
            records = None
        if records:
            yield records
        elif records is None and unread is not None:
            unread.append(path)


def decode_scores(data: bytes) -> Scores | None:
    """The scores in a file's content; None if it is empty.

    Raises:
        NewerSchemaError: One of the lines was written by a newer version of probstep.
        ValueError: Its first line is no record.
    """
    if not data:
        return None
    lines = data.splitlines(keepends=True)
    first = decode_record(lines[0])
    key = first.run.key
    columns = {name: array("d") for name in COLUMNS}
    end, scored = None, None
    for line in lines:
        values = _decode_line(line)
        epoch = len(columns["train_loss"])
        if values is None or values["run"] != key or values["epoch"] != epoch:
            break
        end = values
        if values["status"] in MARKS:
            continue
        scored = values
        for name, column in columns.items():
            column.append(as_number(values.get(name)))
        if values["status"] in ("done", "diverged"):
            break
    if end is None:
        raise ValueError("The first line is torn.")
    seconds = (scored or end).get("time", {}).get("training_seconds")
    status, reason = as_it_ended(end["status"], end.get("reason"), end.get("train_loss"))
    return Scores(
        run=first.run,
        status=status,
        reason=reason,
        epoch=end["epoch"],
        columns=columns,
        steps=as_number((scored or end).get("steps")),
        seconds=as_number(seconds),
    )


def as_number(value: object) -> float:
    """A finite float, or NaN.

    >>> as_number(3), as_number("3"), as_number(10**400), as_number(True)
    (3.0, nan, nan, 1.0)
    """
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


def _files(out: Path | str) -> list[Path]:
    return sorted(Path(out, "records").glob("*.jsonl"))


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


def _read_end(path: Path) -> list[Record] | None:
    """The records at the file's end; if they do not explain themselves, the whole file is read."""
    with open_file(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        lines = file.read().splitlines(keepends=True)
    found: list[Record] = []
    for line in reversed(lines if size <= TAIL else lines[1:]):
        try:
            found.insert(0, decode_record(line if line.endswith(b"\n") else b""))
        except NewerSchemaError:
            raise
        except ValueError:
            break
        if not found[0].is_mark:
            return found[:1] + [record for record in found[-1:] if record.is_mark]
    records = without_overcome(decode_records(read_file(path, MOST_BYTES))[0])
    if records or size == 0:
        return records[-2:] if records and records[-1].is_mark else records[-1:]
    return None
