"""A checkpoint as bytes: tensors and plain data, which cannot execute code nor grow when read."""

import io
import pickletools
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Nesting = tuple[int, int]  # depth, number of items
NESTING = ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "REDUCE", "NEWOBJ", "BINPERSID")
DEEPEST = 100
MOST_ITEMS = 100_000


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
        if sum(sizes) > len(data):  # torch itself packs nothing
            raise ValueError(f"it would unpack to {sum(sizes):,} bytes")
        for info in archive.infolist():
            if info.filename.endswith(".pkl"):
                _check_tuples(archive.read(info))
    state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    for tensor in _tensors(state):
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"it has a tensor of {tensor.numel():,} numbers that it does not hold")
    return state


def _check_tuples(program: bytes) -> None:
    """Refuse a pickle that nests tuples without end.

    One that is a key takes Python for ever, or all of its stack, to hash. So what the instructions
    leave on the stack is followed here: how deep it is nested, and how many items it has if each is
    counted wherever it occurs. Lists and dicts are no keys and count as one.
    """
    stack: list[Nesting] = []
    marks: list[int] = []  # how high the stack was
    memory: dict[Any, Nesting] = {}
    for code, argument, _ in pickletools.genops(program):
        if code.name in ("BINPUT", "LONG_BINPUT"):
            memory[argument] = stack[-1]
        elif code.name in ("BINGET", "LONG_BINGET"):
            stack.append(memory[argument])
        elif code.name == "MARK":
            marks.append(len(stack))
        else:
            items = _take(stack, marks, code.stack_before)
            nesting = _around(items) if code.name in NESTING else (0, 1)
            stack += [nesting] * len(code.stack_after)


def _take(stack: list[Nesting], marks: list[int], operands: Sequence[object]) -> list[Nesting]:
    """Take an instruction's operands from the stack: so many, or so many and all since a mark."""
    start = len(stack) - len(operands)
    if pickletools.markobject in operands:
        start = marks.pop() - operands.index(pickletools.markobject)
    if start < 0:
        raise ValueError("its instructions do not fit together")
    items = stack[start:]
    del stack[start:]
    return items


def _around(items: Sequence[Nesting]) -> Nesting:
    """The nesting of what has these items."""
    depth = 1 + max((depth for depth, _ in items), default=0)
    count = 1 + sum(count for _, count in items)
    if depth > DEEPEST or count > MOST_ITEMS:
        raise ValueError("it nests tuples without end")
    return depth, count


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
