"""How the runs of an output directory stand, looked at again and again.

Only files that have changed since the last look are read, and of each only its end. Nothing is
locked: a lock would make a worker believe that another process has the run.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from probstep.bench.records import Record, Run, decode_record
from probstep.bench.records.planned import FOLDER, read_planned

TAIL = 1 << 16  # bytes at a file's end, which hold its last records

Stamp = tuple[int, int]  # when a file was changed, in nanoseconds, and how many bytes it has


@dataclass(frozen=True)
class Seen:
    """The last word of a run, and when it came."""

    record: Record
    heard: float

    @property
    def run(self) -> Run:
        """The run."""
        return self.record.run


@dataclass(frozen=True)
class Scene:
    """All runs of an output directory at one moment.

    Args:
        planned: The runs of its plans, by their keys, in the order in which they are made.
        seen: The last word of each run that has one, by its key.
        unread: How many files could not be read.
    """

    planned: Mapping[str, Run]
    seen: Mapping[str, Seen]
    unread: int = 0

    @cached_property
    def runs(self) -> dict[str, Run]:
        """All runs, the recorded ones that are in no plan as well."""
        return {**self.planned, **{key: seen.run for key, seen in self.seen.items()}}

    @cached_property
    def counts(self) -> Counter[str]:
        """How many runs stand how; those that have not begun are `waiting`."""
        found: Counter[str] = Counter(seen.record.status for seen in self.seen.values())
        found["waiting"] = len(self.runs) - len(self.seen)
        return +found

    @cached_property
    def ended(self) -> list[Seen]:
        """The runs that need no more work, the latest first."""
        ended = [seen for seen in self.seen.values() if seen.record.is_final]
        return sorted(ended, key=lambda seen: seen.heard, reverse=True)

    @cached_property
    def running(self) -> list[Seen]:
        """The runs of which more is expected, the latest first."""
        running = [seen for seen in self.seen.values() if seen.record.status == "running"]
        return sorted(running, key=lambda seen: seen.heard, reverse=True)

    @cached_property
    def upcoming(self) -> list[Run]:
        """The runs that have not begun, or were interrupted, in the order in which they are made."""
        paused = {key for key, seen in self.seen.items() if seen.record.status == "interrupted"}
        return [run for key, run in self.runs.items() if key in paused or key not in self.seen]

    @property
    def share(self) -> float:
        """The part of all epochs that is done; a run that ended early has done all of its own."""
        total = sum(run.epochs for run in self.runs.values())
        done = sum(_epochs_done(seen.record) for seen in self.seen.values())
        return done / total if total else 0.0


@dataclass
class Watcher:
    """Looks at an output directory, and remembers what has not changed since."""

    out: Path
    known: dict[str, tuple[Stamp, Seen | None]] = field(default_factory=dict)
    planned: tuple[dict[str, Stamp], dict[str, Run]] = field(default_factory=lambda: ({}, {}))

    def look(self) -> Scene:
        """How the runs stand now."""
        files = _stamps(self.out / "records")
        self.known = {path: self._see(path, stamp) for path, stamp in files.items()}
        seen = {s.run.key: s for _, s in self.known.values() if s is not None}
        unread = sum(s is None and size > 0 for (_, size), s in self.known.values())
        return Scene(self._plan(), seen, unread)

    def _see(self, path: str, stamp: Stamp) -> tuple[Stamp, Seen | None]:
        if path in self.known and self.known[path][0] == stamp:
            return self.known[path]
        changed, size = stamp
        record = _last_record(Path(path), size)
        return stamp, None if record is None else Seen(record, changed / 1e9)

    def _plan(self) -> dict[str, Run]:
        files = _stamps(self.out / FOLDER)
        if files != self.planned[0]:
            self.planned = files, read_planned(self.out)
        return self.planned[1]


def _stamps(folder: Path) -> dict[str, Stamp]:
    """When each file of lines in a folder was last changed, and its size; in the order of names."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (e.path, e.stat()) for e in entries if e.name.endswith(".jsonl") and e.is_file()
            ]
    except OSError:  # it is not there, or a file is no more
        return {}
    return {path: (status.st_mtime_ns, status.st_size) for path, status in sorted(found)}


def _last_record(path: Path, size: int) -> Record | None:
    """The last whole record of a file; None if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, size - TAIL))
            lines = file.read(TAIL).splitlines(keepends=True)
    except OSError:
        return None
    return next((found for line in reversed(lines) if (found := _decode(line))), None)


def _decode(line: bytes) -> Record | None:
    try:
        return decode_record(line) if line.endswith(b"\n") else None
    except ValueError:
        return None


def _epochs_done(record: Record) -> int:
    if record.is_final:
        return record.run.epochs
    return min(max(0, record.epoch - record.is_mark), record.run.epochs)
