"""Fetch files over HTTP so that each one is complete and right, or not there at all."""

import gzip
import hashlib
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from probstep.bench.files import replacing

from .catalog import Files, data_directory

CHUNK = 1 << 18
MOST_BYTES = 1 << 29  # of a download, and of a file in an archive; the largest has 215 million
TIMEOUT_SECONDS = 30.0
DAMAGES = (tarfile.TarError, gzip.BadGzipFile, zlib.error)  # of an archive
REMEDY = "Name a writable data directory with data_dir or PROBSTEP_DATA."


def download_files(files: Files, data_dir: Path | str | None = None) -> Path:
    """Download a data set into the data directory, check it, unpack it; return its folder.

    Whatever goes wrong, no half file is left behind; files that were there stay as they were
    until their replacement is complete.

    Raises:
        ValueError: There is no standard address, or what came is not what was expected.
        OSError: The server or the directory could not be used.

    >>> from .catalog import CATALOG
    >>> download_files(CATALOG["war_and_peace"])
    Traceback (most recent call last):
    ValueError: War and Peace has no standard address to download from. ...
    """
    if not files.url:
        raise ValueError(
            f"{files.title} has no standard address to download from. Instead, {files.advice}, "
            f"as {files.folder}/{files.names[0]} in the data directory."
        )
    folder = data_directory(data_dir) / files.folder
    with _progress() as progress:
        for name, md5 in files.downloads.items():
            if not _is_there(folder / name, md5):
                _download(files, name, md5, folder, progress)
    return folder


def _is_there(path: Path, md5: str) -> bool:
    """Whether an earlier download has already brought this very file."""
    if not path.is_file() or path.stat().st_size > MOST_BYTES:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, _md5).hexdigest() == md5


def _md5() -> "hashlib._Hash":
    """The checksum that the data sets are published with; it finds damage, not malice."""
    return hashlib.md5(usedforsecurity=False)


def _download(files: Files, name: str, md5: str, folder: Path, progress: Progress) -> None:
    """Fetch one file into its place, or one archive and unpack it there."""
    is_archive = name.endswith(".tar.gz")
    with replacing(folder / name, REMEDY, keep=not is_archive) as file:
        _fetch(files.url + name, md5, file, progress)
        if is_archive:
            file.seek(0)
            unpack_tar(file, Path(files.folder).name, files.names, folder)


def _progress() -> Progress:
    """A bar per file on standard error, so that standard output stays a program's own."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    return Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True))


def _fetch(url: str, md5: str, file: IO[bytes], progress: Progress) -> None:
    """Stream a URL into a file; refuse what is too short or has another checksum."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            size = int(response.headers.get("Content-Length") or 0)
            bar = progress.add_task(url.rsplit("/", 1)[-1], total=size or None)
            received, found = _copy(response, file, lambda n: progress.advance(bar, n))
    except urllib.error.HTTPError as error:
        with error:  # it holds the response, which must be closed
            raise OSError(f"{url} answered {error.code} {error.reason}.") from error
    except (OSError, HTTPException, ValueError) as error:
        raise OSError(f"{url} could not be downloaded: {error}. Try again later.") from error
    if received < size:
        raise OSError(f"{url} broke off after {received} of {size} bytes. Try again.")
    if found != md5:
        raise ValueError(
            f"{url} has the md5 {found}, but {md5} was expected. The file was changed or damaged "
            "on its way and is not kept. Try again, or put a copy you trust into the directory."
        )


def _copy(
    source: IO[bytes], target: IO[bytes], advance: Callable[[float], None]
) -> tuple[int, str]:
    """Copy all bytes; return how many they were and their md5."""
    digest, received = _md5(), 0
    while chunk := source.read(CHUNK):
        if received + len(chunk) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES:,} bytes came, and no data set has so many")
        target.write(chunk)
        digest.update(chunk)
        received += len(chunk)
        advance(len(chunk))
    return received, digest.hexdigest()


def unpack_tar(archive: IO[bytes], inside: str, names: Sequence[str], folder: Path) -> None:
    """Unpack the named files of the archive's folder `inside` into `folder`, and nothing else.

    No name that the archive gives is ever used as a path, links are not followed, and so nothing
    can be written outside `folder`.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            for name in names:
                with replacing(folder / name, REMEDY) as file:
                    _copy(_member(tar, f"{inside}/{name}"), file, lambda _: None)
    except (*DAMAGES, EOFError, OverflowError, ValueError) as error:
        raise ValueError(
            f"The archive for {folder} cannot be unpacked: {error}. Get another copy."
        ) from error


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    """A regular file of the archive, open for reading."""
    info = next((member for member in tar if member.name == name), None)
    file = tar.extractfile(info) if info is not None and info.isreg() else None
    if file is None:
        raise ValueError(f"it holds no regular file {name!r}")
    return file
