"""A reader of MAT-5 files, for plain arrays of real numbers: all that SVHN needs.

The format is described in MathWorks' "MAT-File Format": a header of 128 bytes, then elements, each
a type, a size and that many bytes; a matrix is an element of elements, and may be packed by zlib.
Every size is checked before it is used, and how much is unpacked altogether has a limit, so that no
file can do worse than raise ValueError.
"""

import math
import zlib
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

HEADER_BYTES = 128
LITTLE_ENDIAN_MAT_5 = b"\x00\x01IM"  # the end of the header: the version and the byte order
MATRIX, COMPRESSED = 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<f4", 9: "<f8"}
CLASSES = {6: np.float64, 9: np.uint8}  # MATLAB may store either in fewer bytes than it has
COMPLEX = 0x08
MOST_ELEMENTS = 100  # of a file, and of a matrix; each of SVHN's has two, and four

Array = np.ndarray[Any, np.dtype[Any]]
Element = tuple[int, memoryview]


def read_mat(content: bytes, names: Collection[str], most: int) -> dict[str, Array]:
    """Return the arrays of those names, of uint8 or double; others are skipped.

    Args:
        content: The file.
        names: The names of the arrays.
        most: How many bytes all that is packed may have, and how many an array may have.

    Raises:
        ValueError: The content is damaged, or not such a file.
    """
    if content[HEADER_BYTES - 4 : HEADER_BYTES] != LITTLE_ENDIAN_MAT_5:
        raise ValueError("not a MAT-5 file of little-endian numbers")
    found = {}
    for kind, body in _elements(memoryview(content)[HEADER_BYTES:]):
        if kind == COMPRESSED:
            kind, body = _unpack(body, most)
            most -= len(body)
        if kind != MATRIX:
            continue
        flags, shape, name, *numbers = _parts(body)
        if (key := bytes(name[1]).decode("latin1")) in names:
            found[key] = _array(most, flags, shape, *numbers)
    if missing := set(names) - found.keys():
        raise ValueError(f"no array {' and no array '.join(sorted(missing))}")
    return found


def _elements(content: memoryview) -> Iterator[Element]:
    """Split a content into its elements: the type and the bytes of each."""
    for _ in range(MOST_ELEMENTS):
        if not content:
            return
        if len(content) < 8:
            raise ValueError(f"{len(content)} bytes where an element should begin")
        kind, size = (int.from_bytes(content[k : k + 4], "little") for k in (0, 4))
        start, end = 8, 8 + size
        if kind >> 16:  # a small element: its size, its type, and up to 4 bytes
            kind, size = kind & 0xFFFF, kind >> 16
            start, end = 4, 4 + size
            if size > 4:
                raise ValueError(f"{size} bytes in a small element")
        if end > len(content):
            raise ValueError(f"{len(content) - start} bytes instead of {size}")
        yield kind, content[start:end]
        content = content[end if kind == COMPRESSED else -(-end // 8) * 8 :]
    if content:
        raise ValueError(f"more than {MOST_ELEMENTS} elements")


def _unpack(packed: memoryview, most: int) -> Element:
    """Return the element inside a compressed one, which is never unpacked beyond its size."""
    stream = zlib.decompressobj()
    tag = stream.decompress(packed, 8)
    kind, size = (int.from_bytes(tag[k : k + 4], "little") for k in (0, 4))
    if size > most:
        raise ValueError(f"a packed element of {size} bytes, which is more than there can be")
    body = stream.decompress(stream.unconsumed_tail, max(size, 1))
    rest = stream.decompress(stream.unconsumed_tail, 1)  # reads the checksum, too
    if len(body) != size or rest or not stream.eof:
        raise ValueError(f"a packed element that does not unpack to {size} bytes")
    return kind, memoryview(body)


def _parts(matrix: memoryview) -> list[Element]:
    """Return a matrix's flags, shape, name and numbers."""
    parts = list(_elements(matrix))
    if len(parts) < 3:
        raise ValueError(f"a matrix of {len(parts)} parts")
    return parts


def _array(most: int, flags: Element, shape: Element, *numbers: Element) -> Array:
    """Return an array, whose numbers are stored column by column."""
    if len(flags[1]) != 8 or flags[1][0] not in CLASSES or flags[1][1] & COMPLEX:
        raise ValueError("an array that is not of real bytes or doubles")
    if len(numbers) != 1 or numbers[0][0] not in NUMBERS or len(shape[1]) % 4:
        raise ValueError("an array without a shape or without numbers")
    sizes = [int(size) for size in np.frombuffer(shape[1], "<i4")]
    stored = np.frombuffer(numbers[0][1], NUMBERS[numbers[0][0]])
    if min(sizes, default=-1) < 0 or math.prod(sizes) != len(stored):
        raise ValueError(f"{len(stored)} numbers for the shape {tuple(sizes)}")
    if len(stored) * np.dtype(CLASSES[flags[1][0]]).itemsize > most:
        raise ValueError(f"an array of {len(stored)} numbers, which is more than there can be")
    return stored.astype(CLASSES[flags[1][0]]).reshape(sizes, order="F")
