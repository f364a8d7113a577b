"""Records on disk: a line of JSON for each run, appended; packed for the repository."""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

Record = dict[str, Any]
PACKED = Path(__file__).parents[1] / "records"  # a file for each suite


@dataclass(frozen=True)
class Run:
    """What identifies a run.

    Args:
        suite: "hazards" or "ordinary".
        hazard: The row's name.
        way: How it is trained.
        label: Which version of the rule; empty but for ours.
        seed: The seed.
        rate: The rate that the optimizer is given.
    """

    suite: str
    hazard: str
    way: str
    label: str
    seed: int
    rate: float

    @property
    def key(self) -> str:
        return "|".join(
            f"{part:.6g}" if isinstance(part, float) else str(part) for part in astuple(self)
        )


def run_of(record: Record) -> Run:
    return Run(**{name: record[name] for name in Run.__dataclass_fields__})


def read(*paths: Path) -> list[Record]:
    """Return the records of some files, packed or not; a later one of the same run replaces."""
    return merge(*(read_file(path) for path in paths if path.exists()))


def merge(*parts: Iterable[Record]) -> list[Record]:
    """Return all records; a later one of the same run replaces."""
    return list({run_of(record).key: record for part in parts for record in part}.values())


def read_file(path: Path) -> Iterator[Record]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return filter(None, map(parse, text.decode().splitlines()))


def parse(line: str) -> Record | None:
    """Return the record of a line; None for one that was cut off when a run was stopped."""
    try:
        record: Record = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record


def append(path: Path, record: Record) -> None:
    """Write a record at the end of a file, on a line of its own even if the last was cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_cut = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("a") as file:
        file.write("\n" * is_cut + json.dumps(record) + "\n")


def packed(suite: str, folder: Path = PACKED) -> Path:
    """Return where the records of a suite are in the repository."""
    return folder / f"{suite}.jsonl.gz"


def pack(records: Iterable[Record], path: Path) -> None:
    """Write records in the order of their keys, so that the same records give the same bytes."""
    lines = [json.dumps(r, sort_keys=True) for r in sorted(records, key=lambda r: run_of(r).key)]
    text = "".join(line + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
