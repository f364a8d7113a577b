"""What a run is and what it leaves behind: two frozen values and their line of JSON.

A record is one line per epoch that explains itself: it carries the whole run, the software that
made it, and what was measured. Everything that differs between two equal runs is in `time`.
Files, locks and checkpoints are in store.py.

Query a whole output directory in one line:

    duckdb.sql("select method, rate, min(train_loss) from 'OUT/records/*.jsonl' group by all")
    pandas.concat(pandas.read_json(path, lines=True) for path in glob("OUT/records/*.jsonl"))
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from probstep.bench.files import read_file

SCHEMA = 1  # raised when a field changes its meaning; new fields keep it
DEEPEST = 20  # how far a record's values may be nested
MOST_BYTES = 1 << 28  # of a run's file: 100,000 epochs take about 150 million

Status = Literal["running", "done", "diverged", "failed", "interrupted"]
FINAL: tuple[Status, ...] = ("done", "diverged", "failed")
SCORES = tuple(f"{split}_{s}" for split in ("train", "valid", "test") for s in ("loss", "accuracy"))


@dataclass(frozen=True)
class Run:
    """One training of one problem by one method: all that decides its outcome.

    >>> run = Run("digits_mlp", "adam", rate=1e-3, seed=0, epochs=5)
    >>> run.key == Run("digits_mlp", "adam", rate=0.001, seed=0, epochs=5).key
    True

    Args:
        rate: The initial rate; None for a method that has none, or has its own.
        subset: How many training samples are used; None stands for all.
        evaluation: "clean", or "paper" for the paper's own practice.
    """

    problem: str
    method: str
    rate: float | None
    seed: int
    epochs: int
    subset: int | None = None
    batch_size: int | None = None
    evaluation: Literal["clean", "paper"] = "clean"
    settings: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def key(self) -> str:
        """A short name that is the same wherever and whenever the run is made."""
        values = {name: getattr(self, name) for name in _RUN_FIELDS}
        values["rate"] = None if self.rate is None else float(self.rate)
        text = json.dumps(values, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        rate = "" if self.rate is None else f" {self.rate:g}"
        settings = "".join(f" {name}={value}" for name, value in self.settings.items())
        return f"{self.problem} {self.method}{rate}{settings} seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a run had reached after an epoch; epoch 0 is the untrained model.

    A number that was not finite is None. A record with the status `interrupted` or `failed` has
    no scores: its epoch is the one that was not finished.

    Args:
        reason: Why the run diverged or failed.
        steps: Training steps so far.
        forward_passes: Calls of the model in training so far, probes included.
        batch_loss: The mean of the training loss over the epoch's steps.
        effective_rate: The step size of the last step, or of the next; see `methods.effective_rate`.
        probe: The epoch's probes: how many, quantiles of their ratio, decisions; None without any.
        metrics: What the method says of itself at the epoch's end.
        sizes: How many samples each split holds; None where the problem does not tell.
        imported: A hash of the user's own files with the problem or the method; None without any.
        time: Seconds and the clock; the one field in which equal runs differ.
    """

    run: Run
    epoch: int
    status: Status
    reason: str | None = None
    train_loss: float | None = None
    train_accuracy: float | None = None
    valid_loss: float | None = None
    valid_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    batch_loss: float | None = None
    effective_rate: float | None = None
    steps: int = 0
    forward_passes: int = 0
    probe: dict[str, Any] | None = None
    metrics: Mapping[str, float | None] | None = None
    sizes: dict[str, int] | None = None
    imported: str | None = None
    device: str = "cpu"
    threads: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    time: dict[str, Any] = field(default_factory=dict)

    @property
    def is_final(self) -> bool:
        """Whether the run has ended and needs no more work."""
        return self.status in FINAL

    @property
    def is_mark(self) -> bool:
        """Whether this only says that an epoch was not finished."""
        return self.status in ("failed", "interrupted")


class NewerSchemaError(ValueError):
    """A record that this version of probstep cannot understand, though it is whole."""


_RUN_FIELDS = frozenset(f.name for f in fields(Run))
_RECORDS = TypeAdapter(Record)


def encode_record(record: Record) -> str:
    """The record as one line of strict JSON, without the line's end.

    >>> run = Run("line", "sgd", rate=0.1, seed=0, epochs=1)
    >>> line = encode_record(Record(run=run, epoch=0, status="running", train_loss=float("nan")))
    >>> json.loads(line)["problem"], json.loads(line)["train_loss"]
    ('line', None)
    """
    values = asdict(record)
    run = values.pop("run")
    flat = {"schema": SCHEMA, "run": record.run.key, **run, **values}
    return json.dumps(finite(flat), allow_nan=False, separators=(",", ":"))


def decode_record(line: str | bytes) -> Record:
    """The record in a line of JSON; nothing in the line can execute.

    >>> run = Run("line", "sgd", rate=0.1, seed=0, epochs=1)
    >>> record = Record(run=run, epoch=0, status="running")
    >>> decode_record(encode_record(record)) == record
    True

    Raises:
        NewerSchemaError: The line was written by a newer version of probstep.
        ValueError: The line is torn, not a record, or not of the run it names.
    """
    try:
        values = json.loads(line)
        check_depth(values)
        _check_schema(values.pop("schema"))
        key = values.pop("run")
        run = {name: values.pop(name) for name in _RUN_FIELDS & values.keys()}
        record = _RECORDS.validate_python({**values, "run": run})
        is_of_run = key == record.run.key
    except NewerSchemaError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(f"Not a record: {line[:80]!r}") from error
    except RecursionError as error:
        raise ValueError("Not a record: it is nested too deeply.") from error
    if not is_of_run:
        raise ValueError(f"A record of run {record.run.key} says that it is of run {key}.")
    return record


def decode_records(data: bytes) -> tuple[list[Record], int]:
    """The whole records at the start of a file's content, and how many bytes they take.

    Whatever follows the last whole record is torn or damaged: a line without its end, a line that
    is no record, a record that does not follow from the one before.

    Raises:
        NewerSchemaError: One of the records was written by a newer version of probstep.
    """
    records: list[Record] = []
    size = 0
    for line in data.splitlines(keepends=True):
        try:
            record = decode_record(line)
        except NewerSchemaError:
            raise
        except ValueError:
            break
        if not line.endswith(b"\n") or not _follows(record, records):
            break
        records.append(record)
        size += len(line)
    return records, size


def read_records(out: Path | str, unread: list[Path] | None = None) -> Iterator[list[Record]]:
    """The records of each run in an output directory, in the order of its epochs.

    Marks of interruptions and failures that were overcome later are left out, so that a disturbed
    run reads like an undisturbed one. Safe while the runs are being made. Files that cannot be
    read, or that a newer version wrote, are passed over and added to `unread`.

    >>> list(read_records("/nowhere"))
    []
    """
    for path in sorted(Path(out, "records").glob("*.jsonl")):
        records = _read_file(path)
        if records:
            yield without_overcome(records)
        elif records is None and unread is not None:
            unread.append(path)


def without_overcome(records: Sequence[Record]) -> list[Record]:
    """The records without the marks that other records follow."""
    return [record for record in records[:-1] if not record.is_mark] + [*records[-1:]]


def last_epoch(records: Sequence[Record]) -> int:
    """The last epoch whose scores are recorded, -1 if none is."""
    return next((record.epoch for record in reversed(records) if not record.is_mark), -1)


def last_sizes(records: Sequence[Record]) -> dict[str, int] | None:
    """The sizes of the data that the run was made with; None if they are not recorded."""
    return next((record.sizes for record in reversed(records) if record.sizes), None)


def _read_file(path: Path) -> list[Record] | None:
    """The file's records, none if it is empty; None if there is something else in it."""
    try:
        data = read_file(path, MOST_BYTES)
        records = decode_records(data)[0]
    except (OSError, NewerSchemaError):
        return None
    return records if records or data == b"" else None


def _check_schema(schema: Any) -> None:
    if type(schema) is not int:
        raise ValueError(f"The schema {schema!r} is not a whole number.")
    if schema > SCHEMA:
        raise NewerSchemaError(
            f"It has a record of schema {schema}, written by a newer version of probstep; this one "
            f"reads up to {SCHEMA}. Update probstep, or use another directory with --out."
        )


def check_depth(value: Any, deepest: int = DEEPEST) -> None:
    """Refuse what only a stranger would nest: walking it could exhaust the stack.

    >>> check_depth([[1]], deepest=1)
    Traceback (most recent call last):
    ValueError: It is nested too deeply.

    Raises:
        ValueError: It is nested deeper than that.
    """
    if not isinstance(value, dict | list):
        return
    if deepest == 0:
        raise ValueError("It is nested too deeply.")
    for item in value.values() if isinstance(value, dict) else value:
        check_depth(item, deepest - 1)


def _follows(record: Record, before: list[Record]) -> bool:
    if before and (before[0].run != record.run or before[-1].status in ("done", "diverged")):
        return False
    return record.epoch == last_epoch(before) + 1


def finite(value: Any) -> Any:
    """The value with None for every number that is not finite, as strict JSON has no word for it.

    >>> finite({"loss": float("nan"), "rates": (0.1, float("inf"))})
    {'loss': None, 'rates': [0.1, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
