"""Arrays in one file (.npz), read with every size checked against the file before anything is allocated."""

import io
import os
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from twinfold.io._atomic import atomic_write

MOST = 100_000  # arrays in a file
# What reading a damaged archive, or a damaged header of an array, may raise beside ValueError.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
    EOFError,
    RuntimeError,
    KeyError,
    IndexError,
    TypeError,
    SyntaxError,
    OverflowError,
    MemoryError,
)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an uncompressed .npz file; it replaces the file at `path` as a whole."""
    with atomic_write(path) as file:
        np.savez(file, allow_pickle=False, **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of such a file, in the order in which they were written.

    Nothing is unpickled, and nothing is allocated that is larger than the file itself: a header that promises more is
    an error, and so is compression.

    **Raises:** `ValueError` that says what is wrong with the file; `OSError`.
    """
    size = os.path.getsize(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MOST or sum(member.file_size for member in members) > size:
                raise ValueError("it promises more than it holds")
            if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
                raise ValueError("it is compressed or encrypted")
            return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
    except DAMAGED as error:
        raise ValueError(str(error) or "it is cut short") from None


def _array(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array is of an unknown kind")
    shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "biufc" or any(length < 0 for length in shape):
        raise ValueError("an array holds something other than numbers")
    start, count = stream.tell(), 1
    for length in shape:  # as Python's whole numbers: they do not overflow
        count *= length
    if count * dtype.itemsize != len(content) - start:
        raise ValueError(f"an array of shape {shape} does not fill its place")
    values = np.frombuffer(content, dtype, count, start) if count else np.zeros(0, dtype)
    return values.reshape(shape, order="F" if columns_first else "C").copy()
