"""Small data sets in the standard file formats, for tests that need files but no real data."""

import gzip
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
from scipy.io import savemat

IDX_NAMES = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
CIFAR10_BATCHES = 5


def idx_bytes(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\x00\x00\x08" + bytes([array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def draw(shape: tuple[int, ...], high: int = 256) -> np.ndarray:
    return np.random.default_rng(0).integers(0, high, shape, dtype=np.uint8)


def write_idx(folder: Path, train: int = 60, test: int = 10) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for names, count in zip(IDX_NAMES, (train, test), strict=True):
        for name, array in zip(names, (draw((count, 28, 28)), draw((count,), 10)), strict=True):
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
    return folder


def cifar_bytes(count: int, labels: str = "labels", classes: int = 10) -> bytes:
    content = {"data": draw((count, 3072)), labels: draw((count,), classes).tolist()}
    return pickle.dumps(content, protocol=3)  # the newest that names modules in plain text


def write_cifar10(folder: Path, per_batch: int = 10, test: int = 10) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for k in range(1, CIFAR10_BATCHES + 1):
        (folder / f"data_batch_{k}").write_bytes(cifar_bytes(per_batch))
    (folder / "test_batch").write_bytes(cifar_bytes(test))
    return folder


def write_cifar100(folder: Path, train: int = 50, test: int = 10) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train").write_bytes(cifar_bytes(train, "fine_labels", 100))
    (folder / "test").write_bytes(cifar_bytes(test, "fine_labels", 100))
    return folder


def write_svhn(folder: Path, train: int = 73, test: int = 26) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("test", test)):
        labels = draw((count, 1), 10) + 1
        savemat(folder / f"{name}_32x32.mat", {"X": draw((32, 32, 3, count)), "y": labels})
    return folder


def write_text(folder: Path, characters: int = 20_000) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(chr(97 + code) for code in draw((characters,), 26))
    (folder / "war_and_peace.txt").write_text(text, encoding="utf-8")
    return folder


def tar_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def write_everything(directory: Path) -> Path:
    """A data directory with a small version of every data set."""
    write_idx(directory / "MNIST/raw", 600, 100)
    write_idx(directory / "FashionMNIST/raw", 600, 100)
    write_cifar10(directory / "cifar-10-batches-py", per_batch=100, test=100)
    write_cifar100(directory / "cifar-100-python", train=500, test=100)
    write_svhn(directory, train=400, test=100)
    write_text(directory / "text")
    return directory
