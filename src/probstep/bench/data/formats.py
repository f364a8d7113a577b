"""Readers of the standard file formats: a path in, tensors out, or an error that names the file."""

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from probstep.bench.files import read_file

from .mat import read_mat
from .pickled import read_pickle

IDX_UNSIGNED_BYTES = b"\x00\x00\x08"
CIFAR_CLASSES = {"labels": 10, "coarse_labels": 20, "fine_labels": 100}

# More than this a file does not hold, whatever it says of itself: it is refused before it is
# unpacked. The largest set of the catalog has 73,257 samples, its text 3.2 million characters.
MOST_SAMPLES = 100_000
MOST_GREY = MOST_SAMPLES * 28 * 28 + 16  # bytes of an IDX file
MOST_COLOUR = MOST_SAMPLES * (3 * 32 * 32 + 128)  # bytes: images, and what is said of them
MOST_TEXT = 16_000_000  # bytes
MOST_DIMENSIONS = 4
GZIP = 31  # zlib's word for gzip's header and checksum around what it unpacks


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file leads to into one error that names the file and a remedy."""
    damages = (ArithmeticError, AttributeError, EOFError, LookupError, RuntimeError, TypeError)
    try:
        yield
    except (*damages, ValueError, zlib.error, MemoryError) as error:
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
    stored = read_file(path, MOST_GREY)
    with _naming(path):
        content = _unpack_idx(stored) if path.suffix == ".gz" else stored
        shape, start = _idx_shape(content), 4 + 4 * content[3]
        size = math.prod(shape)
        _require(len(content) == start + size, f"{len(content) - start} bytes instead of {size}")
        return torch.frombuffer(bytearray(content), dtype=torch.uint8)[start:].view(shape)


def _idx_shape(content: bytes) -> list[int]:
    """The shape that the beginning of an IDX file tells, if a file can have it."""
    _require(content[:3] == IDX_UNSIGNED_BYTES, "not an IDX file of unsigned bytes")
    sizes = content[4 : 4 + 4 * content[3]]
    _require(content[3] <= MOST_DIMENSIONS, f"{content[3]} dimensions")
    _require(len(sizes) == 4 * content[3] > 0, "no shape")
    shape = [int.from_bytes(sizes[k : k + 4], "big") for k in range(0, len(sizes), 4)]
    _require(math.prod(shape) <= MOST_GREY, f"a shape of {shape}, which is more than there can be")
    return shape


def _unpack_idx(packed: bytes) -> bytes:
    """Unpack a file as far as its shape says, and a byte more if there is one."""
    head = zlib.decompressobj(GZIP).decompress(packed, 4 + 4 * MOST_DIMENSIONS)
    most = 4 + 4 * head[3] + math.prod(_idx_shape(head))
    stream = zlib.decompressobj(GZIP)
    content = stream.decompress(packed, most + 1)
    _require(len(content) > most or stream.eof, "it is cut off")
    _require(not stream.unused_data.strip(b"\0"), "more follows after its end")
    return content


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


def read_cifar(path: Path, labels: str = "labels") -> tuple[Tensor, Tensor]:
    """One file of CIFAR's python version: images (n, 3, 32, 32) of bytes, and labels (n,).

    Args:
        path: The file.
        labels: "labels" for CIFAR-10, "fine_labels" for CIFAR-100.
    """
    stored = read_file(path, MOST_COLOUR)
    with _naming(path):
        content = read_pickle(stored)
        _require(isinstance(content, dict), "no table of images and labels")
        images, classes = (_entry(content, name) for name in ("data", labels))
        _require(isinstance(images, np.ndarray), f"images in a {type(images).__name__}")
        is_list = isinstance(classes, list) and all(type(label) is int for label in classes)
        _require(is_list, "labels that are no list of whole numbers")
        _require(images.shape == (len(classes), 3072), f"images of shape {images.shape}")
        targets = torch.tensor(classes)
        _require_labels(targets, 0, CIFAR_CLASSES[labels] - 1)
        return torch.from_numpy(images.copy()).view(-1, 3, 32, 32), targets.long()


def _entry(content: dict[bytes, Any], name: str) -> Any:
    _require(name.encode() in content, f"no {name}")
    return content[name.encode()]


def read_svhn(path: Path) -> tuple[Tensor, Tensor]:
    """A .mat file of SVHN's cropped digits: images (n, 3, 32, 32) of bytes, and labels (n,)."""
    stored = read_file(path, MOST_COLOUR)
    with _naming(path):
        content = read_mat(stored, ("X", "y"), MOST_COLOUR)
        images, labels = torch.from_numpy(content["X"]), torch.from_numpy(content["y"]).flatten()
        _require(images.dtype == torch.uint8, f"images of {images.dtype}, not of bytes")
        expected = (32, 32, 3, len(labels))
        _require(images.shape == expected, f"images of shape {tuple(images.shape)}")
        _require_labels(labels, 1, 10)
        return images.permute(3, 2, 0, 1).contiguous(), labels.long() % 10  # zeros are labelled 10


def read_text(path: Path) -> Tensor:
    """A UTF-8 text as the ranks of its characters: 0 for the most frequent one."""
    stored = read_file(path, MOST_TEXT)
    with _naming(path):
        text = stored.decode("utf-8")
        _require(len(text) > 0, "it is empty")
        codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
        _, first, inverse, counts = np.unique(
            codes, return_index=True, return_inverse=True, return_counts=True
        )
        rank = np.empty(len(counts), dtype=np.int64)
        rank[np.lexsort((first, -counts))] = np.arange(len(counts))  # ties: who comes first
        return torch.from_numpy(rank[inverse])
