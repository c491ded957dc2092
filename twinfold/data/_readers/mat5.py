"""A parser for MATLAB files of version 5 to 7.

Why not `scipy.io.loadmat`: on a damaged file SciPy's reader can crash the process with a segmentation fault. Here every
size is checked against the bytes that the file contains before it is used, so that damage is a `ValueError`.

Reference: MathWorks, "MAT-File Format", level 5.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.data._readers.limits import TooLarge

HEADER_BYTES = 128
TAG_BYTES = 8
MAX_NESTING = 32  # of structs and cells
MAX_ELEMENTS = 2_000_000  # of all arrays of structs and cells
NUMBER_DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXT_ENCODINGS = {2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, CHAR, FIRST_NUMERIC, LAST_NUMERIC = 1, 2, 4, 6, 15
COMPLEX = 0x0800


def parse_mat(content: bytes, *, max_unpacked: int) -> dict[str, Any]:
    """The variables in a MATLAB file: arrays (vectors without their singleton dimension), texts, and dicts for structs.

    An array of structs or cells is a list. Any other variable (object, function, sparse matrix) is None.

    **Arguments:** `content` of the file; `max_unpacked`, how many bytes its compressed variables may have in all.

    **Raises:** `ValueError` that describes the defect.
    """
    if content[:19] == b"MATLAB 7.3 MAT-file" or content[512:516] == b"\x89HDF":
        raise ValueError("MATLAB 7.3 files are not supported; save it with save(..., '-v7')")
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("it has no header of MATLAB version 5 to 7")
    try:
        return dict(_variables(memoryview(content)[HEADER_BYTES:], order, max_unpacked))
    except (struct.error, zlib.error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise ValueError(f"it is damaged ({error})") from None


def _variables(content: memoryview, order: str, max_unpacked: int) -> Iterator[tuple[str, Any]]:
    elements, remaining = _Elements(content, order, _Budget(MAX_ELEMENTS)), max_unpacked
    while elements.remaining >= TAG_BYTES:
        kind, data = elements.read()
        if kind == COMPRESSED:
            unpacked = _unpacked(data, remaining, max_unpacked)
            remaining -= len(unpacked)
            kind, data = elements.inside(unpacked).read()
        if kind == MATRIX:
            yield _matrix(elements.inside(data), 0)


def _unpacked(data: memoryview, remaining: int, limit: int) -> memoryview:
    unpack = zlib.decompressobj()
    content = unpack.decompress(data, remaining + 1)
    if len(content) > remaining:
        raise TooLarge(limit)
    if not unpack.eof:
        raise ValueError("a compressed variable is truncated")
    return memoryview(content)


@dataclass
class _Budget:
    """The number of structs and cells that may still be read."""

    remaining: int


@dataclass
class _Elements:
    """The elements of a buffer, read in sequence; `order` is the byte order."""

    content: memoryview
    order: str
    budget: _Budget
    position: int = 0

    def inside(self, content: memoryview) -> "_Elements":
        """The elements of another buffer of the same file."""
        return _Elements(content, self.order, self.budget)

    def count(self, shape: tuple[int, ...], per_item: int) -> int:
        """The number of items of a cell or struct array, each of which has `per_item` elements."""
        count = math.prod(shape)
        if count * per_item * TAG_BYTES > self.remaining:
            raise ValueError(f"a size of {shape} exceeds the file")
        self.budget.remaining -= count * max(per_item, 1)
        if self.budget.remaining < 0:
            raise ValueError(f"it contains more than {MAX_ELEMENTS} structs, fields and cells")
        return count

    @property
    def remaining(self) -> int:
        return len(self.content) - self.position

    def read(self) -> tuple[int, memoryview]:
        """The type and the data of the next element."""
        kind, size = struct.unpack_from(f"{self.order}II", self.content, self.position)
        if kind >> 16:  # small element: type and size in one word, the data in the next
            kind, size, start, end = kind & 0xFFFF, kind >> 16, self.position + 4, self.position + TAG_BYTES
            if size > 4:
                raise ValueError("a small element is larger than four bytes")
        else:
            start = self.position + TAG_BYTES
            end = start + size
            if kind != COMPRESSED:
                end += -size % 8
        if start + size > len(self.content):
            raise ValueError("it is truncated")
        self.position = end
        return kind, self.content[start : start + size]

    def numbers(self) -> np.ndarray:
        """The next element as a vector of numbers."""
        kind, data = self.read()
        if kind not in NUMBER_DTYPES:
            raise ValueError(f"an element of type {kind} is in the place of numbers")
        return np.frombuffer(data, np.dtype(self.order + NUMBER_DTYPES[kind]))


def _matrix(elements: _Elements, depth: int) -> tuple[str, Any]:
    """The name and the value of a variable, field or cell."""
    if not elements.remaining:
        return "", np.zeros(0)
    if depth > MAX_NESTING:
        raise ValueError("structs are nested too deeply")
    flags, shape = int(elements.numbers()[:1].sum()), tuple(int(size) for size in elements.numbers())
    name = bytes(elements.read()[1]).decode("latin-1")
    kind = flags & 0xFF
    if any(size < 0 for size in shape):
        raise ValueError(f"'{name}' has a negative size")
    if kind == CELL:
        cells = [_matrix(elements.inside(elements.read()[1]), depth + 1)[1] for _ in range(elements.count(shape, 1))]
        return name, _unwrapped(cells)
    if kind == STRUCT:
        return name, _unwrapped(list(_structs(elements, shape, depth)))
    if kind == CHAR:
        encoding, text = elements.read()
        codec = TEXT_ENCODINGS.get(encoding, "latin-1")
        suffix = {"<": "-le", ">": "-be"}[elements.order] if codec in ("utf-16", "utf-32") else ""
        return name, bytes(text).decode(codec + suffix)
    if FIRST_NUMERIC <= kind <= LAST_NUMERIC and not flags & COMPLEX:
        values = elements.numbers()
        if len(values) != math.prod(shape):
            raise ValueError(f"'{name}' has {len(values)} values for a size of {shape}")
        values = values.astype(values.dtype.newbyteorder("=")).reshape(shape, order="F")
        return name, values.reshape(-1) if sum(size != 1 for size in shape) <= 1 else values
    return name, None


def _structs(elements: _Elements, shape: tuple[int, ...], depth: int) -> Iterator[dict[str, Any]]:
    length = int(elements.numbers()[:1].sum())
    text = bytes(elements.read()[1])
    if not 0 < length <= max(len(text), 1):
        raise ValueError("the field names of a struct are damaged")
    fields = [text[start : start + length].split(b"\0")[0].decode("latin-1") for start in range(0, len(text), length)]
    for _ in range(elements.count(shape, len(fields))):
        yield {field: _matrix(elements.inside(elements.read()[1]), depth + 1)[1] for field in fields}


def _unwrapped(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
