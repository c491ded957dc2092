"""The MAT-file format of MATLAB 5 to 7, read with every length checked before it is used.

scipy reads more of the format, but a damaged file can end the whole process there; here it is a `ValueError`.
Reference: MathWorks, "MAT-File Format", level 5.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

HEADER = 128
LARGEST = 2**31  # bytes that a compressed variable may unpack to
DEEPEST = 32  # structs in structs in ...
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXTS = {2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, CHAR, FIRST_NUMERIC, LAST_NUMERIC = 1, 2, 4, 6, 15
COMPLEX = 0x0800


def parse_mat(content: bytes) -> dict[str, Any]:
    """The variables in a MAT-file: arrays (vectors without their dimension of one), texts, and dicts for structs.

    An array of structs or cells is a list. What is neither (objects, functions, sparse matrices) is None.

    **Raises:** `ValueError` that says what is wrong with the file.
    """
    if content[:19] == b"MATLAB 7.3 MAT-file" or content[512:516] == b"\x89HDF":
        raise ValueError("MATLAB 7.3 files are not read; save it with save(..., '-v7')")
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("it has no header of MATLAB version 5 to 7")
    try:
        return dict(_variables(content[HEADER:], order))
    except (struct.error, zlib.error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise ValueError(f"it is damaged ({error})") from None


def _variables(content: bytes, order: str) -> Iterator[tuple[str, Any]]:
    reader = _Reader(content, order)
    while reader.left >= 8:
        kind, data = reader.element()
        if kind == COMPRESSED:
            kind, data = _Reader(_unpacked(data), order).element()
        if kind == MATRIX:
            yield _matrix(data, order, 0)


def _unpacked(data: bytes) -> bytes:
    unpack = zlib.decompressobj()
    content = unpack.decompress(data, LARGEST)
    if not unpack.eof:
        raise ValueError("a compressed variable is cut short, or too large")
    return content


@dataclass
class _Reader:
    """The elements of a buffer, one after the other."""

    content: bytes
    order: str
    at: int = 0

    @property
    def left(self) -> int:
        return len(self.content) - self.at

    def element(self) -> tuple[int, bytes]:
        """The type and the bytes of the next element."""
        kind, size = struct.unpack_from(f"{self.order}II", self.content, self.at)
        if kind >> 16:  # small: both in one word, the data in the next
            kind, size, start, end = kind & 0xFFFF, kind >> 16, self.at + 4, self.at + 8
            if size > 4:
                raise ValueError("a small element is larger than it can be")
        else:
            start, end = self.at + 8, self.at + 8 + size
            if kind != COMPRESSED:
                end += -size % 8
        if start + size > len(self.content):
            raise ValueError("it is cut short")
        self.at = end
        return kind, self.content[start : start + size]

    def numbers(self) -> np.ndarray:
        """The next element as a vector of numbers."""
        kind, data = self.element()
        if kind not in NUMBERS:
            raise ValueError(f"an element of type {kind} stands where numbers should")
        return np.frombuffer(data, np.dtype(self.order + NUMBERS[kind]))


def _matrix(data: bytes, order: str, depth: int) -> tuple[str, Any]:
    """The name and the value of a variable, a field or a cell."""
    if not data:
        return "", np.zeros(0)
    if depth > DEEPEST:
        raise ValueError("structs are nested too deeply")
    reader = _Reader(data, order)
    flags, shape = int(reader.numbers()[:1].sum()), tuple(int(size) for size in reader.numbers())
    name = reader.element()[1].decode("latin-1")
    kind = flags & 0xFF
    if any(size < 0 for size in shape):
        raise ValueError(f"'{name}' has a negative size")
    if kind == CELL:
        return name, _listed([_matrix(reader.element()[1], order, depth + 1)[1] for _ in range(_count(shape, reader))])
    if kind == STRUCT:
        return name, _listed(list(_structs(reader, order, _count(shape, reader), depth)))
    if kind == CHAR:
        coded, text = reader.element()
        coding = TEXTS.get(coded, "latin-1")
        little = {"<": "-le", ">": "-be"}[order] if coding in ("utf-16", "utf-32") else ""
        return name, text.decode(coding + little)
    if FIRST_NUMERIC <= kind <= LAST_NUMERIC and not flags & COMPLEX:
        values = reader.numbers()
        if len(values) != np.prod(shape, dtype=object):
            raise ValueError(f"'{name}' has {len(values)} values for a size of {shape}")
        values = values.astype(values.dtype.newbyteorder("=")).reshape(shape, order="F")
        return name, values.reshape(-1) if sum(size != 1 for size in shape) <= 1 else values
    return name, None


def _count(shape: tuple[int, ...], reader: _Reader) -> int:
    """How many elements a cell or struct has, none of them smaller than its tag."""
    count = int(np.prod(shape, dtype=object))
    if count > reader.left:
        raise ValueError(f"a size of {shape} is more than the file holds")
    return count


def _structs(reader: _Reader, order: str, count: int, depth: int) -> Iterator[dict[str, Any]]:
    length = int(reader.numbers()[:1].sum())
    text = reader.element()[1]
    if not 0 < length <= max(len(text), 1):
        raise ValueError("the names of a struct's fields are damaged")
    fields = [text[at : at + length].split(b"\0")[0].decode("latin-1") for at in range(0, len(text), length)]
    for _ in range(count):
        yield {field: _matrix(reader.element()[1], order, depth + 1)[1] for field in fields}


def _listed(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
