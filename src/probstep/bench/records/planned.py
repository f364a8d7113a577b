"""What an output directory is to hold: the runs that each `probstep run` there has set out to make.

    OUT/planned/<hash>.jsonl     a line per run, in the order in which they are made

The hash is that of the runs: a plan that is run again replaces its own file and no other plan's. No
run is made or left out because of these files; they are for those who look on.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter

from probstep.bench.files import make_folder, read_file, replacing
from probstep.bench.records.record import Run

FOLDER = "planned"
MOST = 1 << 28  # bytes of a file: a million runs
REMEDY = "Choose another directory with --out."

_RUNS = TypeAdapter(Run)


def write_planned(out: Path, runs: Sequence[Run]) -> None:
    """Note the runs, in the order in which they are made."""
    keys = sorted(run.key for run in runs)
    name = hashlib.sha256("".join(keys).encode()).hexdigest()[:16]
    make_folder(out / FOLDER)
    with replacing(out / FOLDER / f"{name}.jsonl", REMEDY) as file:
        for run in runs:
            file.write(json.dumps(asdict(run), separators=(",", ":")).encode() + b"\n")


def read_planned(out: Path) -> dict[str, Run]:
    """The runs of all plans, by their keys, in the order in which they are made.

    What cannot be read, or is no run, is passed over.

    >>> read_planned(Path("/nowhere"))
    {}
    """
    files = sorted((out / FOLDER).glob("*.jsonl"))
    return {run.key: run for path in files for run in _read(path)}


def _read(path: Path) -> Iterator[Run]:
    try:
        lines = read_file(path, MOST).splitlines()
    except OSError:
        return
    for line in lines:
        run = _decode(line)
        if run is not None:
            yield run


def _decode(line: bytes) -> Run | None:
    try:
        run = _RUNS.validate_json(line)
        return run if run.key else None  # a run without a key has values that are no JSON
    except (ValueError, RecursionError):
        return None
