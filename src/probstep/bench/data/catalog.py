"""Which files make a data set, where they are looked for, what to do if they are not there.

A data directory has the layout that torchvision uses too, so that one serves both.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from probstep.bench.names import check_name

DEFAULT_DIRECTORY = Path("~/.cache/probstep")


@dataclass(frozen=True)
class Files:
    """The files of one data set: a row of `CATALOG`.

    Args:
        name: The key in `CATALOG`.
        title: What people call the data set.
        folder: Where the files lie, relative to the data directory.
        names: The files that a reader needs; each may also lie there without its ".gz".
        url: The address under which the downloads lie; empty if there is no standard one.
        downloads: The md5 of each file to download; one ".tar.gz" stands for all `names`.
        elsewhere: Complete folders outside the data directory that are looked at last.
        advice: Another way to get the files, as the end of a sentence that starts with "or".

    >>> CATALOG["mnist"].folder
    'MNIST/raw'
    """

    name: str
    title: str
    folder: str
    names: tuple[str, ...]
    url: str = ""
    downloads: Mapping[str, str] = field(default_factory=dict)
    elsewhere: tuple[Path, ...] = ()
    advice: str = ""


IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
MNIST_MD5 = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
FASHION_MNIST_MD5 = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
CIFAR10_NAMES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
ROWS = (
    Files(
        "mnist",
        "MNIST",
        "MNIST/raw",
        IDX_NAMES,
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        dict(zip(IDX_NAMES, MNIST_MD5, strict=True)),
    ),
    Files(
        "fashion_mnist",
        "Fashion-MNIST",
        "FashionMNIST/raw",
        IDX_NAMES,
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        dict(zip(IDX_NAMES, FASHION_MNIST_MD5, strict=True)),
        elsewhere=(Path("/usr/share/datasets/fashion-mnist"),),
        advice="install Debian's package dataset-fashion-mnist",
    ),
    Files(
        "cifar10",
        "CIFAR-10",
        "cifar-10-batches-py",
        CIFAR10_NAMES,
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    ),
    Files(
        "cifar100",
        "CIFAR-100",
        "cifar-100-python",
        ("train", "test"),
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
    ),
    Files(
        "svhn",
        "SVHN (cropped digits)",
        "",
        ("train_32x32.mat", "test_32x32.mat"),
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
    ),
    Files(
        "war_and_peace",
        "War and Peace",
        "text",
        ("war_and_peace.txt",),
        advice="save Project Gutenberg's plain text of ebook 2600, without its header and licence",
    ),
)
CATALOG = {row.name: row for row in ROWS}


def get_files(name: str) -> Files:
    """The row of `CATALOG` with that name.

    >>> get_files("cifar10").title
    'CIFAR-10'
    """
    return CATALOG[check_name(name, CATALOG, kind="data set")]


def data_directory(data_dir: Path | str | None = None) -> Path:
    """The one directory that is read and written: the argument, PROBSTEP_DATA, or the default.

    >>> data_directory("/data").as_posix()
    '/data'
    """
    return Path(data_dir or os.environ.get("PROBSTEP_DATA") or DEFAULT_DIRECTORY).expanduser()


def find_file(folder: Path, name: str) -> Path | None:
    """The file, or its unpacked twin without ".gz"; None if neither is there.

    >>> find_file(Path("/nowhere"), "train-images-idx3-ubyte.gz") is None
    True
    """
    twins = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in twins if path.is_file()), None)


def find_folder(files: Files, data_dir: Path | str | None = None) -> Path:
    """The first folder that holds all the files: in the data directory, or elsewhere.

    >>> find_folder(CATALOG["cifar10"], "/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: CIFAR-10 was not found. Missing: ...
    """
    directory = data_directory(data_dir)
    folders = (directory / files.folder, *files.elsewhere)
    missing = [[n for n in files.names if find_file(folder, n) is None] for folder in folders]
    for folder, names in zip(folders, missing, strict=True):
        if not names:
            return folder
    searched = "; ".join(f"{', '.join(n)} in {f}" for f, n in zip(folders, missing, strict=True))
    raise FileNotFoundError(
        f"{files.title} was not found. Missing: {searched}. {_ways_to_get(files, directory)}"
    )


def _ways_to_get(files: Files, directory: Path) -> str:
    """What a person can do about missing files."""
    command = f"run `python -m probstep.bench.data {files.name} --data-dir {directory}`"
    ways = [way for way in (command if files.url else "", files.advice) if way]
    return (
        f"To get it: {', or '.join(ways)}; or name another data directory with data_dir or "
        f"PROBSTEP_DATA (its files lie in {files.folder or 'the directory itself'})."
    )
