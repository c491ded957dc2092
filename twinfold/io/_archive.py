"""Arrays in one uncompressed .npz file; every size is checked against the file before anything is allocated."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np

from twinfold.io._atomic import atomic_write
from twinfold.io._regular import check_regular_file

MAX_ARRAYS = 100_000


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an uncompressed .npz file atomically."""
    content = io.BytesIO()  # NumPy up to 2.0 leaves the archive open if the disk is full
    np.savez(content, **arrays)  # type: ignore[arg-type]
    with atomic_write(path) as file:
        file.write(content.getbuffer())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of such a file, in the order in which they were written.

    Nothing is unpickled, and nothing larger than the file is allocated: a header that declares a larger array is an
    error, and so is compression.

    **Raises:** `ValueError` that says what is wrong with the file; `OSError`.
    """
    check_regular_file(path, "it")
    size = os.path.getsize(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MAX_ARRAYS or sum(member.file_size for member in members) > size:
                raise ValueError("its contents are larger than the file")
            if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
                raise ValueError("it is compressed or encrypted")
            return {member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members}
    except OSError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise a dozen types for damaged files
        raise ValueError(str(error) or "it is truncated") from None


def _array(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("unknown version of the array format")
    shape, columns_first, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "biufc" or any(length < 0 for length in shape):
        raise ValueError("an array does not contain numbers")
    start, count = stream.tell(), 1
    for length in shape:  # Python integers do not overflow
        count *= length
    if count * dtype.itemsize != len(content) - start:
        raise ValueError(f"an array of shape {shape} does not match its size in the file")
    values = np.frombuffer(content, dtype, count, start) if count else np.zeros(0, dtype)
    return values.reshape(shape, order="F" if columns_first else "C").copy()
