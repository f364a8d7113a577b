"""All records of an output directory in one file: a row per epoch, or a line per run.

Rows are flat, for tools that read columns: `settings`, `probe`, `metrics` and `versions`, whose names
differ from run to run, are texts of JSON; all else is a text or a number. Records may come from a
stranger: a number that no column can hold is missing in its row.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any

from probstep.bench.files import replacing
from probstep.bench.records import SCHEMA, Record, add_curves, write_curves
from probstep.bench.records.record import SCORES
from probstep.bench.report.numbers.histories import number

Row = dict[str, str | float | int | None]
Runs = Iterable[Sequence[Record]]

NAMES = {
    "parquet": "export.parquet",
    "lines": "export.jsonl",
    "curves": "curves.jsonl",
    "added curves": "curves.jsonl",
}
REMEDY = "Choose another file with --to."
CHUNK = 20_000  # rows that are in memory at a time
LARGEST = 2**63 - 1
TEXTS = ("run", "problem", "method", "evaluation", "status", "reason", "imported", "device")
NESTED = ("settings", "probe", "metrics", "versions")
COUNTS = ("seed", "epochs", "subset", "batch_size", "epoch", "steps", "forward_passes", "threads")
NUMBERS = ("rate", *SCORES, "batch_loss", "effective_rate")
SPLITS = ("train", "valid", "test")
TIMES = ("training_seconds", "evaluation_seconds")
COLUMNS: dict[str, type] = {
    "schema": int,
    **dict.fromkeys(TEXTS, str),
    **dict.fromkeys(COUNTS, int),
    **dict.fromkeys(NUMBERS, float),
    **dict.fromkeys(NESTED, str),
    **{f"{split}_size": int for split in SPLITS},
    **dict.fromkeys(TIMES, float),
    "finished": str,
    "commit": str,
}


def flatten(record: Record) -> Row:
    """The record as a row: a value for each of COLUMNS.

    >>> from probstep.bench.records import Run
    >>> run = Run("line", "sgd", rate=0.1, seed=0, epochs=1, settings={"momentum": 0.9})
    >>> row = flatten(Record(run=run, epoch=1, status="done", train_loss=0.5))
    >>> row["method"], row["rate"], row["settings"], row["train_loss"], row["test_loss"]
    ('sgd', 0.1, '{"momentum": 0.9}', 0.5, None)
    """
    run = record.run
    values: dict[str, Any] = {**vars(record), **vars(run), "run": run.key}
    return {
        "schema": SCHEMA,
        **{name: _text(values[name]) for name in TEXTS},
        **{name: _count(values[name]) for name in COUNTS},
        **{name: number(values[name]) for name in NUMBERS},
        **{name: None if values[name] is None else _json(values[name]) for name in NESTED},
        **{f"{split}_size": _count((record.sizes or {}).get(split)) for split in SPLITS},
        **{name: number(record.time.get(name)) for name in TIMES},
        "finished": _text(record.time.get("finished")),
        "commit": _text(record.commit),
    }


def write_lines(runs: Runs, path: Path) -> int:
    """Write a line of JSON per record; how many there were."""
    count = 0
    with replacing(path, REMEDY) as file:
        for record in chain.from_iterable(runs):
            file.write(json.dumps(flatten(record), allow_nan=False).encode() + b"\n")
            count += 1
    return count


def write_parquet(runs: Runs, path: Path) -> int:
    """Write a row per record as a Parquet file; how many there were.

    Raises:
        ModuleNotFoundError: The package that writes such files is not installed.
    """
    arrow = _import_arrow("pyarrow")
    parquet = _import_arrow("pyarrow.parquet")
    types = {str: arrow.string(), int: arrow.int64(), float: arrow.float64()}
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    count = 0
    with (
        replacing(path, REMEDY) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for rows in _chunks(flatten(record) for record in chain.from_iterable(runs)):
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


FORMS: dict[str, Callable[[Runs, Path], int]] = {
    "parquet": write_parquet,
    "lines": write_lines,
    "curves": write_curves,
    "added curves": add_curves,
}


def _import_arrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"Parquet files need pyarrow, which cannot be imported: {error}. Install it with: "
            'pip install "probstep[parquet]". Or write lines of JSON with --lines.'
        ) from error


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while chunk := list(islice(rows, CHUNK)):
        yield chunk


def _text(value: object) -> str | None:
    """A text of letters that can be written; half a pair of surrogates cannot."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else None


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value)  # escapes all but ASCII


def _count(value: object) -> int | None:
    """A whole number that fits into a column."""
    return value if isinstance(value, int) and abs(value) <= LARGEST else None
