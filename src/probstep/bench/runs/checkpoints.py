"""A checkpoint as bytes: tensors and plain data, which cannot execute code nor grow when read."""

import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def encode_checkpoint(state: Mapping[str, Any]) -> bytes:
    """The state as bytes."""
    file = io.BytesIO()
    torch.save(dict(state), file)
    return file.getvalue()


def decode_checkpoint(data: bytes) -> Any:
    """The state in the bytes; nothing in them can execute.

    >>> decode_checkpoint(encode_checkpoint({"epoch": 3}))
    {'epoch': 3}

    Raises:
        Exception: Whatever damage leads torch to.
        ValueError: It would take more memory than a checkpoint of these bytes can.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sizes = [info.file_size for info in archive.infolist()]
    if sum(sizes) > len(data):
        raise ValueError(f"it would unpack to {sum(sizes):,} bytes")  # torch itself packs nothing
    state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    for tensor in _tensors(state):
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"it has a tensor of {tensor.numel():,} numbers that it does not hold")
    return state


def _tensors(state: Any) -> Iterator[Tensor]:
    """All tensors of nested lists, tuples and dicts, whose depth a stranger may have chosen."""
    waiting, seen = [state], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
