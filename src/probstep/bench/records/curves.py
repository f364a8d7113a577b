"""A whole run as one line of JSON: all that a page shows of it, small enough for a repository.

A line carries the run, what made it, how it ended, and its scores after each epoch, rounded. A file
whose name ends in .gz is compressed; the same runs make the same bytes, whatever their order.
"""

import gzip
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from probstep.bench.files import replacing

from .record import SCHEMA, SCORES, Record, Run, encode_record

DIGITS = 6  # significant, of every number that was measured
COLUMNS = (*SCORES, "effective_rate", "forward_passes", "steps")
ORIGIN = ("sizes", "device", "threads", "versions", "commit")


def write_curves(runs: Iterable[Sequence[Record]], path: Path) -> int:
    """Write the runs that have ended, a line each; how many there were."""
    return _write(_encode_ended(runs).values(), path)


def add_curves(runs: Iterable[Sequence[Record]], path: Path) -> int:
    """Write them beside the runs that are in the file; how many it has then.

    A run that is in both is taken from the new ones. The other lines stay as they are.

    Raises:
        ValueError: A line of the file is no run.
    """
    lines = _read(path) if path.exists() else []
    kept = {decode_curves(line)[0].run.key: line for line in lines}
    return _write({**kept, **_encode_ended(runs)}.values(), path)


def read_curves(path: Path) -> list[list[Record]]:
    """The records of each run in a file.

    Raises:
        ValueError: A line is no run.
    """
    return [decode_curves(line) for line in _read(path)]


def encode_curves(records: Sequence[Record]) -> str:
    """The run's records as one line.

    >>> run = Run("line", "sgd", rate=0.1, seed=0, epochs=1)
    >>> records = [Record(run=run, epoch=0, status="running", train_loss=1.0)]
    >>> records += [Record(run=run, epoch=1, status="done", train_loss=0.5, steps=3)]
    >>> decode_curves(encode_curves(records)) == records
    True
    """
    scored = [record for record in records if not record.is_mark]
    last = json.loads(encode_record(records[-1]))
    run = {name: last[name] for name in ("problem", "method", "settings", "rate", "seed")}
    budget = {name: last[name] for name in ("epochs", "subset", "batch_size", "evaluation")}
    columns = {name: [_short(getattr(record, name)) for record in scored] for name in COLUMNS}
    values = {
        **run,
        **budget,
        "run": last["run"],
        "schema": SCHEMA,
        "status": last["status"],
        "reason": last["reason"],
        **{name: last[name] for name in ORIGIN},
        "seconds": _short(last["time"].get("training_seconds")),
        **{name: column for name, column in columns.items() if any(column)},
    }
    return json.dumps(values, separators=(",", ":"), allow_nan=False)


def decode_curves(line: str) -> list[Record]:
    """The records in a line: those of its epochs, and a mark if the run failed.

    Raises:
        ValueError: The line is torn, not a run, or not of the run it names.
    """
    try:
        values = json.loads(line)
        run = Run(**{name: values.pop(name) for name in Run.__dataclass_fields__})
        key, status, reason = (values.pop(name) for name in ("run", "status", "reason"))
        origin = {name: values.pop(name) for name in ORIGIN}
        seconds = values.pop("seconds")
        columns = {name: values[name] for name in COLUMNS if name in values}
        count = max((len(column) for column in columns.values()), default=0)
        rows = [{name: column[i] for name, column in columns.items()} for i in range(count)]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"Not a run: {line[:80]!r}") from error
    if key != run.key:
        raise ValueError(f"A line of run {run.key} says that it is of run {key}.")
    records = [Record(run=run, epoch=i, status="running", **row) for i, row in enumerate(rows)]
    epoch = len(records) - (status != "failed")
    ended = rows[-1] if rows and status != "failed" else {}
    time = {} if seconds is None else {"training_seconds": seconds}
    end = Record(run=run, epoch=epoch, status=status, reason=reason, **ended, **origin, time=time)
    return [*(records if status == "failed" else records[:-1]), end]


def _encode_ended(runs: Iterable[Sequence[Record]]) -> dict[str, str]:
    """The lines of the runs that have ended, by the run's key."""
    return {records[0].run.key: encode_curves(records) for records in runs if records[-1].is_final}


def _write(lines: Iterable[str], path: Path) -> int:
    ordered = sorted(lines)
    data = "".join(f"{line}\n" for line in ordered).encode()
    with replacing(path, "Choose another file.") as file:
        file.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return len(ordered)


def _read(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def _short(value: Any) -> Any:
    """A measured number with few digits; anything that is not finite is None."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
