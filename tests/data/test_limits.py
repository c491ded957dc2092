"""Files that are no files, or far larger inside than outside: each is refused at once, with what it is."""

import gzip
import os
import re
import socket
import struct
import tracemalloc
import zlib

import numpy as np
import pytest

from twinfold.data import load_dataset
from twinfold.data._readers import csv_file, limits

pytest.importorskip("pandas")
MEGABYTE = 2**20


@pytest.fixture
def small_limits(monkeypatch):
    """Bombs of megabytes, so that the tests are quick."""
    monkeypatch.setattr(limits, "FREE_BYTES", MEGABYTE)


def refused(path, **options) -> str:
    """The message about a file, which must not take much memory."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=re.escape(str(path))) as refusal:
            load_dataset(path, **{"outputs": ["y"], **options})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * MEGABYTE
    return str(refusal.value)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".mat"])
def test_special_files_are_named_and_not_opened(tmp_path, ending):
    os.mkfifo(tmp_path / f"fifo{ending}")
    assert f"fifo{ending} is a FIFO (named pipe), not a file." in refused(tmp_path / f"fifo{ending}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / f"socket{ending}"))
        assert f"socket{ending} is a socket, not a file." in refused(tmp_path / f"socket{ending}")
    (tmp_path / f"device{ending}").symlink_to("/dev/zero")
    assert f"device{ending} is a device, not a file." in refused(tmp_path / f"device{ending}")
    (tmp_path / f"folder{ending}").mkdir()
    assert f"folder{ending} is a folder" in refused(tmp_path / f"folder{ending}")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b",".join(b"c%d" % index for index in range(10**6)), "first line is longer than 2 MiB (at most 10000 columns"),
        (b"t,y" + b"," * 10**6, "the table has 1000002 columns; at most 10000 are read"),
        (b"t,y,u", None),
        (b"a" * 5 * MEGABYTE, "the file has no header"),
        (b"name, " * MEGABYTE, "the file has no header"),
        (b'"' + b"\n" * 5 * MEGABYTE, "the file has no header"),
    ],
    ids=["10^6 columns", "10^6 empty columns", "a table", "one long name", "a long line", "an open quote"],
)
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_the_header_is_read_first(tmp_path, header, message, ending):
    path = tmp_path / f"wide{ending}"
    content = header + b"\n" + b"0,1,2\n1,1,2\n"
    path.write_bytes(content if ending == ".csv" else gzip.compress(content, 1))
    if message is None:
        assert load_dataset(path, outputs=["y"]).runs[0].y.shape == (2, 1)
    else:
        assert message in refused(path)


def test_a_small_file_with_large_contents_csv(tmp_path, small_limits):
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"t,y\n" + b"0,0\n" * MEGABYTE))
    assert "its contents exceed 1 MiB and 50 times its own size" in refused(path)
    rng = np.random.default_rng(0)  # large outside too
    rows = "".join(f"{t},{y}\n" for t, y in enumerate(rng.normal(size=60_000)))
    path.write_bytes(gzip.compress(b"t,y\n" + rows.encode()))
    assert len(load_dataset(path, outputs=["y"]).runs[0].ts) == 60_000


def test_a_small_file_with_large_contents_parquet(tmp_path, small_limits):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pa.table({"t": np.zeros(10**6), "y": np.zeros(10**6)}), path)
    assert path.stat().st_size < 20_000
    assert "its contents exceed 1 MiB and 50 times its own size" in refused(path)
    # A text that every row shares: small in the file and as a dictionary, large as a column.
    rows = np.arange(1000.0)
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1000, np.int32)), pa.array(["x" * 10_000]))
    parquet.write_table(pa.table({"t": rows, "y": rows, "note": text}), path)
    assert "its contents exceed 1 MiB" in refused(path)
    nested = pa.array([[0.0] * 1000] * 1000)  # never read
    parquet.write_table(pa.table({"t": rows, "y": rows, "deep": nested}), path)
    assert len(load_dataset(path, outputs=["y"]).runs[0].ts) == 1000
    parquet.write_table(pa.table({f"c{index}": [0.0] for index in range(10_001)}), path)
    assert "the table has 10001 columns" in refused(path)


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def variable(name: bytes, kind: int, shape: tuple[int, ...], body: bytes) -> bytes:
    head = element(6, struct.pack("<II", kind, 0)) + element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, head + element(1, name) + body)


def compressed(content: bytes) -> bytes:
    packed = zlib.compress(content, 9)
    return struct.pack("<II", 15, len(packed)) + packed


def written(path, *variables: bytes):
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(variables))
    return path


def test_a_small_file_with_large_contents_matlab(tmp_path, small_limits):
    half = compressed(variable(b"t", 9, (1, 6 * 10**5), element(2, bytes(6 * 10**5))))
    path = written(tmp_path / "bomb.mat", half, half)
    assert "its contents exceed 1 MiB and 50 times its own size" in refused(path)
    structs = variable(b"s", 2, (1, 10**9), element(5, struct.pack("<i", 1)) + element(1, b""))
    assert "more than 2000000 structs, fields and cells" in refused(written(path, structs))
    cells = variable(b"c", 1, (1, 10**5), element(14, b"") * 1000)
    assert "exceeds the file" in refused(written(path, cells))


def test_a_wide_matrix_of_matlab_is_not_measurements(tmp_path):
    times = variable(b"t", 6, (1, 2), element(9, struct.pack("<2d", 0, 1)))
    wide = variable(b"y", 9, (2, 10**6), element(2, bytes(2 * 10**6)))
    assert "there is no column 'y(1)'; there are: t." in refused(
        written(tmp_path / "a.mat", times, wide), outputs=["y(1)"]
    )


def test_lines_of_a_long_cell_fall_back_to_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("t,y,note\n0,1,a\n1,2," + "b" * 200_000 + "\n2,x,c\n")
    assert "outputs: column 'y' has 'x' in row 2 after the header" in refused(path)
    assert csv_file.csv_place(path, 0) == "line 2"
