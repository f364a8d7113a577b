"""An output directory that survives: claimed runs, appended records, replaced checkpoints.

    OUT/records/<key>.jsonl      one line per epoch, only ever appended to
    OUT/records/<key>.damaged    bytes that were no records, moved out of the way
    OUT/checkpoints/<key>.pt     the state after the last epoch of an unfinished run

A run is claimed by a lock on its records file. The kernel drops the lock when the process ends,
however it ends, so nothing is left to clean up. Whoever holds the claim is the only writer.
A directory may come from a stranger: nothing in it is written through a link or read from a pipe.
Only OUT itself may be a link, since the user names it.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from probstep.bench.files import make_folder, read_file, require_own
from probstep.bench.records.record import (
    MOST_BYTES,
    NewerSchemaError,
    Record,
    Run,
    decode_records,
    encode_record,
    last_epoch,
)

REMEDIES = {
    errno.ENOSPC: "The disk is full. Free some space",
    errno.EDQUOT: "Your disk quota is used up. Free some space",
    errno.EFBIG: "A limit on file sizes is reached. Raise it",
    errno.EROFS: "The file system is read-only. Choose another directory with --out",
    errno.EACCES: "You may not write there. Choose another directory with --out",
    errno.ENOTDIR: "A file is in the way. Choose another directory with --out",
    errno.EEXIST: "A file is in the way. Choose another directory with --out",
    errno.ELOOP: "It is a symbolic link. Remove it, or choose another directory with --out",
}

APPENDING = os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
MOST_CHECKPOINT_BYTES = 1 << 36


def prepare(out: Path) -> None:
    """Make the output directory, or say at once why nothing can be written there."""
    probe = out / "records" / ".writable"
    try:
        for folder in ("records", "checkpoints"):
            make_folder(out / folder)
        require_own(probe)
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644))
        probe.unlink(missing_ok=True)  # another process may have been faster
    except OSError as error:
        raise _explained(error, out) from error


def claim(out: Path, run: Run) -> "Claim | None":
    """Take the run for this process; None if another process has it.

    Raises:
        OSError: The output directory cannot be written to; the message says what to do.
        NewerSchemaError: A newer version of probstep wrote the run's records; they are not touched.
    """
    path = out / "records" / f"{run.key}.jsonl"
    try:
        require_own(path)
        descriptor = os.open(path, os.O_RDWR | APPENDING, 0o644)
    except OSError as error:
        raise _explained(error, path) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return Claim(run, path, descriptor, _whole_records(path, descriptor))
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise


@dataclass(frozen=True)
class Claim:
    """The right to write one run's records and checkpoint, until released."""

    run: Run
    path: Path
    descriptor: int
    records: list[Record]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    @property
    def checkpoint_path(self) -> Path:
        """Where the run's checkpoint is or would be."""
        return self.path.parents[1] / "checkpoints" / f"{self.path.stem}.pt"

    def append(self, record: Record) -> bool:
        """Write a record, durably and in one piece; False if its epoch is recorded already."""
        if not record.is_mark and record.epoch <= last_epoch(self.records):
            return False
        size = os.fstat(self.descriptor).st_size
        try:
            _write_all(self.descriptor, encode_record(record).encode() + b"\n")
            os.fsync(self.descriptor)
        except OSError as error:
            os.ftruncate(self.descriptor, size)  # half a line would hide the lines after it
            raise _explained(error, self.path) from error
        self.records.append(record)
        return True

    def reread(self) -> None:
        """See what the file holds, where an interruption may have come between it and `records`."""
        self.records[:] = _whole_records(self.path, self.descriptor)

    def save_checkpoint(self, data: bytes) -> None:
        """Replace the checkpoint: at any moment the old one or the new one is there, whole."""
        fresh = self.checkpoint_path.with_suffix(".new")
        try:
            fresh.unlink(missing_ok=True)  # of a process that was killed
            with _opened(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW) as descriptor:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            fresh.replace(self.checkpoint_path)
        except OSError as error:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise _explained(error, self.checkpoint_path) from error

    def load_checkpoint(self) -> bytes | None:
        """The checkpoint's bytes, or None if there is none."""
        path = self.checkpoint_path
        try:
            return read_file(path, MOST_CHECKPOINT_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            text = (
                f"Cannot read {path}: {error.strerror}. Remove it, and run the same command again."
            )
            raise OSError(error.errno, text) from error

    def drop_checkpoint(self) -> None:
        """Remove the checkpoint of a run that needs it no more."""
        for path in (self.checkpoint_path, self.checkpoint_path.with_suffix(".new")):
            path.unlink(missing_ok=True)

    def release(self) -> None:
        """Give the run back."""
        os.close(self.descriptor)


def _whole_records(path: Path, descriptor: int) -> list[Record]:
    """The file's records; what follows the last whole one is moved to a file of its own."""
    size = os.fstat(descriptor).st_size
    if size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"Cannot use {path}: it has {size:,} bytes. Remove it.")
    data = os.pread(descriptor, size, 0)
    try:
        records, size = decode_records(data)
    except NewerSchemaError as error:
        raise NewerSchemaError(f"Cannot use {path}: {error}") from error
    if size < len(data):
        _set_aside(path.with_suffix(".damaged"), data[size:])
        os.ftruncate(descriptor, size)
    return records


def _set_aside(path: Path, data: bytes) -> None:
    try:
        require_own(path)
        with _opened(path, os.O_WRONLY | APPENDING) as descriptor:
            _write_all(descriptor, data)
    except OSError as error:
        raise _explained(error, path) from error


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _explained(error: OSError, path: Path) -> OSError:
    remedy = REMEDIES.get(error.errno or 0, "Choose another directory with --out")
    text = f"Cannot write {path}: {error.strerror}. {remedy}, and run the same command again: "
    return OSError(error.errno, text + "what was recorded is kept.")
