"""A reader of CIFAR's pickles that calls nothing: numbers, byte strings, lists, dicts, arrays of bytes.

A pickle is a program for a machine with a stack, and Python's machine calls what the program names.
Even numpy's own functions can be made to follow a false pointer by it. This machine has only the
instructions that CIFAR's files need. It knows three names of numpy's, calls none of them, and makes
an array from its bytes and its shape alone. So no file can do worse than raise ValueError.

The instructions are those of Python's `pickletools`, in the protocols 2 to 4.
"""

import math
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MOST_INSTRUCTIONS = 2_000_000  # the largest of CIFAR's files has 260,000
LONGEST_NAME = 100


@dataclass(frozen=True)
class _Name:
    """What a pickle asks for, by name: a mark on the stack, never the thing itself."""

    text: str


NDARRAY, DTYPE = _Name("numpy.ndarray"), _Name("numpy.dtype")
REBUILD = (  # numpy has renamed its module
    _Name("numpy.core.multiarray._reconstruct"),
    _Name("numpy._core.multiarray._reconstruct"),
)
KNOWN = {name.text: name for name in (NDARRAY, DTYPE, *REBUILD)}
EMPTY_ARRAY, BYTES = _Name("an array without its state"), _Name("the type of bytes")


def read_pickle(content: bytes) -> Any:
    """Return what a pickle holds; every string is `bytes`, whatever kind of string it was.

    >>> read_pickle(pickle.dumps({"labels": [3, 1]}, protocol=2))
    {b'labels': [3, 1]}

    Raises:
        ValueError: It is damaged, or holds anything that CIFAR's files do not.
    """
    machine = _Machine(content)
    try:
        return machine.run()
    except (IndexError, KeyError, struct.error) as error:
        raise ValueError("its instructions do not fit together") from error


@dataclass
class _Machine:
    """The content, how far it is read, and the stack, marks and memory of the instructions."""

    content: bytes
    at: int = 0
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memory: dict[int, Any] = field(default_factory=dict)

    def run(self) -> Any:
        """Follow the instructions to their end; return what is then on the stack."""
        for _ in range(MOST_INSTRUCTIONS):
            code = self.take(1)
            if code == pickle.STOP:
                return self.stack.pop()
            if code not in INSTRUCTIONS:
                raise ValueError(f"it has an instruction {code!r} that CIFAR's files do not have")
            act, argument = INSTRUCTIONS[code]
            act(self, argument)
        raise ValueError(f"it has more than {MOST_INSTRUCTIONS} instructions")

    def take(self, size: int) -> bytes:
        """The next bytes of the content."""
        start, self.at = self.at, self.at + size
        if size < 0 or self.at > len(self.content):
            raise ValueError(f"{len(self.content) - start} bytes instead of {size}")
        return self.content[start : self.at]

    def number(self, layout: str) -> int:
        """The next number of the content."""
        value: int = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def line(self) -> str:
        """The next line of the content, which is a part of a name."""
        end = self.content.find(b"\n", self.at, self.at + LONGEST_NAME)
        if end < 0:
            raise ValueError("a name without an end")
        return self.take(end + 1 - self.at)[:-1].decode("latin1")

    def since_mark(self) -> list[Any]:
        """Take from the stack all that was put there after the last mark."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items


def _skip(machine: _Machine, size: Any) -> None:
    machine.take(size)


def _put(machine: _Machine, value: Any) -> None:
    machine.stack.append(value)


def _put_new(machine: _Machine, make: Callable[[], Any]) -> None:
    machine.stack.append(make())


def _put_number(machine: _Machine, layout: str) -> None:
    machine.stack.append(machine.number(layout))


def _put_string(machine: _Machine, layout: str) -> None:
    machine.stack.append(machine.take(machine.number(layout)))


def _put_mark(machine: _Machine, _: None) -> None:
    machine.marks.append(len(machine.stack))


def _put_name(machine: _Machine, _: None) -> None:
    machine.stack.append(_known(f"{machine.line()}.{machine.line()}"))


def _put_stacked_name(machine: _Machine, _: None) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    if not (isinstance(name, bytes) and isinstance(module, bytes)):
        raise ValueError("a name that is no string")
    machine.stack.append(_known((module + b"." + name)[:LONGEST_NAME].decode("latin1")))


def _known(text: str) -> _Name:
    if text not in KNOWN:
        raise ValueError(f"it asks for {text}")
    return KNOWN[text]


def _remember(machine: _Machine, layout: str) -> None:
    machine.memory[machine.number(layout)] = machine.stack[-1]


def _remember_next(machine: _Machine, _: None) -> None:
    machine.memory[len(machine.memory)] = machine.stack[-1]


def _recall(machine: _Machine, layout: str) -> None:
    machine.stack.append(machine.memory[machine.number(layout)])


def _join(machine: _Machine, count: int) -> None:
    if len(machine.stack) < count:
        raise IndexError
    items = tuple(machine.stack[-count:])
    del machine.stack[-count:]
    machine.stack.append(items)


def _join_since_mark(machine: _Machine, _: None) -> None:
    machine.stack.append(tuple(machine.since_mark()))


def _extend(machine: _Machine, _: None) -> None:
    items = machine.since_mark()
    _top(machine, list).extend(items)


def _append(machine: _Machine, _: None) -> None:
    item = machine.stack.pop()
    _top(machine, list).append(item)


def _set_items(machine: _Machine, _: None) -> None:
    items = machine.since_mark()
    _set(_top(machine, dict), items)


def _set_item(machine: _Machine, _: None) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _set(_top(machine, dict), [key, value])


def _set(target: dict[bytes, Any], items: list[Any]) -> None:
    keys = items[::2]
    if not all(isinstance(key, bytes) for key in keys):  # others can take for ever to hash
        raise ValueError("a key that is no string")
    target.update(zip(keys, items[1::2], strict=True))


def _top(machine: _Machine, kind: type) -> Any:
    if not isinstance(machine.stack[-1], kind):
        raise ValueError(f"something else where a {kind.__name__} should be")
    return machine.stack[-1]


def _call(machine: _Machine, _: None) -> None:
    """What numpy would make here, still without its state."""
    arguments, name = machine.stack.pop(), machine.stack.pop()
    if not isinstance(arguments, tuple) or not arguments or not isinstance(name, _Name):
        raise ValueError("a call of nothing that can be called")
    if name in REBUILD and arguments[0] is NDARRAY:
        machine.stack.append(EMPTY_ARRAY)
    elif name is DTYPE and isinstance(arguments[0], bytes) and arguments[0] == b"u1":
        machine.stack.append(BYTES)
    else:
        raise ValueError("it asks for something else than an array of bytes")


def _build(machine: _Machine, _: None) -> None:
    """Give the thing on the stack its state; that of the type of bytes says nothing more."""
    state, target = machine.stack.pop(), machine.stack.pop()
    if target is not EMPTY_ARRAY and target is not BYTES:
        raise ValueError("it sets the state of something else than an array")
    machine.stack.append(_array(state) if target is EMPTY_ARRAY else target)


def _array(state: Any) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    if not isinstance(state, tuple) or len(state) != 5:
        raise ValueError("an array with another state than numpy gives it")
    _, shape, kind, by_columns, content = state
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or kind is not BYTES or not isinstance(content, bytes):
        raise ValueError("an array that is not of bytes")
    if math.prod(shape) != len(content):
        raise ValueError(f"{len(content)} bytes for the shape {shape}")
    order: Any = "F" if by_columns is True else "C"
    return np.frombuffer(content, np.uint8).reshape(shape, order=order)


INSTRUCTIONS: dict[bytes, tuple[Callable[[_Machine, Any], None], Any]] = {
    pickle.PROTO: (_skip, 1),
    pickle.FRAME: (_skip, 8),
    pickle.NONE: (_put, None),
    pickle.NEWTRUE: (_put, True),
    pickle.NEWFALSE: (_put, False),
    pickle.EMPTY_TUPLE: (_put, ()),
    pickle.EMPTY_LIST: (_put_new, list),
    pickle.EMPTY_DICT: (_put_new, dict),
    pickle.BININT1: (_put_number, "<B"),
    pickle.BININT2: (_put_number, "<H"),
    pickle.BININT: (_put_number, "<i"),
    pickle.SHORT_BINSTRING: (_put_string, "<B"),
    pickle.BINSTRING: (_put_string, "<i"),
    pickle.SHORT_BINBYTES: (_put_string, "<B"),
    pickle.BINBYTES: (_put_string, "<I"),
    pickle.BINBYTES8: (_put_string, "<Q"),
    pickle.SHORT_BINUNICODE: (_put_string, "<B"),
    pickle.BINUNICODE: (_put_string, "<I"),
    pickle.MARK: (_put_mark, None),
    pickle.GLOBAL: (_put_name, None),
    pickle.STACK_GLOBAL: (_put_stacked_name, None),
    pickle.BINPUT: (_remember, "<B"),
    pickle.LONG_BINPUT: (_remember, "<I"),
    pickle.MEMOIZE: (_remember_next, None),
    pickle.BINGET: (_recall, "<B"),
    pickle.LONG_BINGET: (_recall, "<I"),
    pickle.TUPLE1: (_join, 1),
    pickle.TUPLE2: (_join, 2),
    pickle.TUPLE3: (_join, 3),
    pickle.TUPLE: (_join_since_mark, None),
    pickle.APPEND: (_append, None),
    pickle.APPENDS: (_extend, None),
    pickle.SETITEM: (_set_item, None),
    pickle.SETITEMS: (_set_items, None),
    pickle.REDUCE: (_call, None),
    pickle.BUILD: (_build, None),
}
