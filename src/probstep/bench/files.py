"""Files in a directory that a stranger may have filled: nothing waits, nothing follows a link.

A pipe would make its reader wait for ever, a link would lead a writer to somebody else's file, and
a file may be larger than all memory. Each is an error here, before anything is read or written.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_file(path: Path, most: int) -> bytes:
    """The content of a file of at most so many bytes; links are followed.

    >>> read_file(Path("/dev/zero"), most=10)
    Traceback (most recent call last):
    OSError: [Errno 22] It is a device, not a file: '/dev/zero'

    Raises:
        OSError: There is no such file, something else is in its place, or it is too large.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            text = f"It has {size:,} bytes, and more than {most:,} make no sense here"
            raise OSError(errno.EFBIG, text, str(path))
        try:
            return file.read(size)
        except MemoryError as error:
            raise OSError(errno.ENOMEM, "It does not fit into memory", str(path)) from error


def open_file(path: Path) -> IO[bytes]:
    """The file, open for reading; links are followed.

    Raises:
        OSError: There is no such file, or something else is in its place.
    """
    _require_regular(path, path.stat())
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def require_own(path: Path) -> None:
    """Raise unless to write this file, which need not be there yet, changes no other file.

    Raises:
        OSError: It is a link, has a second name, or is no file at all.
    """
    status = _require_no_other(path)
    if status is not None and status.st_nlink > 1:
        text = "It has a second name, whose file would change with it"
        raise OSError(errno.EMLINK, text, str(path))


def make_folder(path: Path) -> None:
    """Make a folder, unless it is there already; a link to one is none.

    Raises:
        OSError: It cannot be made, or is a link.
    """
    path.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        raise OSError(errno.ELOOP, "It is a symbolic link, not a directory", str(path))


@contextmanager
def replacing(path: Path, remedy: str, *, keep: bool = True) -> Iterator[IO[bytes]]:
    """A file that takes its place at `path` only when the block ends well (and if it is kept).

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "new" / "file", "Choose another folder.") as file:
    ...         _ = file.write(b"whole")
    ...     (Path(folder) / "new" / "file").read_bytes()
    b'whole'

    Args:
        path: The place; what is there stays until then, and a link there is never followed.
        remedy: A sentence that says what to do if nothing can be written there.
        keep: Whether the file is wanted after the block.
    """
    file = _open_beside(path, remedy)
    part = Path(file.name)
    try:
        with file:
            yield file
        if keep:
            part.chmod(0o644)  # temporary files are private; what we write is for everyone
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_file(path: Path, content: bytes, remedy: str) -> None:
    """Write a whole file, in one piece, in the place of an older one or of none.

    Raises:
        OSError: It cannot be written, or something else than a file is in its place.
    """
    try:
        _require_no_other(path)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror}. {remedy}") from error
    with replacing(path, remedy) as file:
        file.write(content)


def _open_beside(path: Path, remedy: str) -> IO[bytes]:
    """A new temporary file in the folder of `path`, which is made if it is not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
        )
    except OSError as error:
        raise OSError(
            f"{path.name} cannot be written to {path.parent}: {error.strerror}. {remedy}"
        ) from error


def _require_no_other(path: Path) -> os.stat_result | None:
    """What is known of the file, None if it is not there; raise if something else is there."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    _require_regular(path, status)
    return status


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        number = errno.ELOOP if stat.S_ISLNK(status.st_mode) else errno.EINVAL
        raise OSError(number, f"It is {kind}, not a file", str(path))
