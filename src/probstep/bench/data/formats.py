"""Readers of the standard file formats: a path in, tensors out, or an error that names the file."""

import gzip
import math
import pickle
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .mat import read_mat

IDX_UNSIGNED_BYTES = b"\x00\x00\x08"
CIFAR_CLASSES = {"labels": 10, "coarse_labels": 20, "fine_labels": 100}

# What CIFAR's archives hold besides strings and lists: arrays, made by one function of numpy's,
# whose module's name has changed over the years.
_rebuild_array = np.empty(0).__reduce__()[0]
ALLOWED_IN_PICKLES = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _rebuild_array,
    ("numpy._core.multiarray", "_reconstruct"): _rebuild_array,
}


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file leads to into one error that names the file and a remedy."""
    damages = (ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError)
    of_formats = (ValueError, zlib.error, gzip.BadGzipFile, pickle.UnpicklingError)
    try:
        yield
    except (*damages, *of_formats, MemoryError) as error:  # a damaged size may ask for any memory
        raise ValueError(
            f"{path} is damaged or no such file as its name says "
            f"({str(error) or type(error).__name__}). "
            "Delete it and get it again."
        ) from error


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise ValueError(complaint)


def _require_labels(labels: Tensor, least: int, most: int) -> None:
    """Raise unless these are whole numbers in that range, one per sample and at least one."""
    _require(labels.dim() == 1 and len(labels) > 0, f"labels of shape {tuple(labels.shape)}")
    is_label = (labels >= least) & (labels <= most) & (labels == labels.long())
    wrong = labels[~is_label]
    _require(
        not len(wrong), f"labels from {least} to {most} were expected, not {wrong[:1].tolist()}"
    )


def read_idx(path: Path) -> Tensor:
    """An IDX file of unsigned bytes, packed with gzip or not: MNIST and its relatives."""
    with _naming(path):
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        _require(content[:3] == IDX_UNSIGNED_BYTES, "not an IDX file of unsigned bytes")
        start = 4 + 4 * content[3]
        shape = [int.from_bytes(content[k : k + 4], "big") for k in range(4, start, 4)]
        size = math.prod(shape)
        _require(len(content) == start + size, f"{len(content) - start} bytes instead of {size}")
        return torch.frombuffer(bytearray(content), dtype=torch.uint8)[start:].view(shape)


def read_idx_images(path: Path) -> Tensor:
    """An IDX file of images (n, 28, 28) of bytes."""
    images = read_idx(path)
    with _naming(path):
        _require(images.shape[1:] == (28, 28), f"images of shape {tuple(images.shape)}")
        return images


def read_idx_labels(path: Path, classes: int = 10) -> Tensor:
    """An IDX file of labels (n,) below the number of classes."""
    labels = read_idx(path)
    with _naming(path):
        _require_labels(labels, 0, classes - 1)
        return labels.long()


class _PlainUnpickler(pickle.Unpickler):
    """Unpickles arrays, strings, numbers and their lists and dicts; refuses everything else."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in ALLOWED_IN_PICKLES:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}")
        return ALLOWED_IN_PICKLES[module_name, global_name]


def read_cifar(path: Path, labels: str = "labels") -> tuple[Tensor, Tensor]:
    """One file of CIFAR's python version: images (n, 3, 32, 32) of bytes, and labels (n,).

    Args:
        path: The file.
        labels: "labels" for CIFAR-10, "fine_labels" for CIFAR-100.
    """
    with _naming(path), path.open("rb") as file:
        content = _PlainUnpickler(file, encoding="latin1").load()
        images, classes = content["data"], content[labels]
        _require(isinstance(images, np.ndarray), f"images in a {type(images).__name__}")
        _require(images.dtype == np.uint8, f"images of {images.dtype}, not of bytes")
        _require(images.shape == (len(classes), 3072), f"images of shape {images.shape}")
        classes = torch.tensor(classes)
        _require_labels(classes, 0, CIFAR_CLASSES[labels] - 1)
        return torch.from_numpy(images.copy()).view(-1, 3, 32, 32), classes.long()


def read_svhn(path: Path) -> tuple[Tensor, Tensor]:
    """A .mat file of SVHN's cropped digits: images (n, 3, 32, 32) of bytes, and labels (n,)."""
    with _naming(path):
        content = read_mat(path.read_bytes(), ("X", "y"))
        images, labels = torch.from_numpy(content["X"]), torch.from_numpy(content["y"]).flatten()
        _require(images.dtype == torch.uint8, f"images of {images.dtype}, not of bytes")
        expected = (32, 32, 3, len(labels))
        _require(images.shape == expected, f"images of shape {tuple(images.shape)}")
        _require_labels(labels, 1, 10)
        return images.permute(3, 2, 0, 1).contiguous(), labels.long() % 10  # zeros are labelled 10


def read_text(path: Path) -> Tensor:
    """A UTF-8 text as the ranks of its characters: 0 for the most frequent one."""
    with _naming(path):
        text = path.read_bytes().decode("utf-8")
        codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        _, first, inverse, counts = np.unique(
            codes, return_index=True, return_inverse=True, return_counts=True
        )
        rank = np.empty(len(counts), dtype=np.int64)
        rank[np.lexsort((first, -counts))] = np.arange(len(counts))  # ties: who comes first
        return torch.from_numpy(rank[inverse])
