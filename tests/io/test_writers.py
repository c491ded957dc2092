"""Tables and JSON: numbers keep their digits, non-finite ones are null, a failed write leaves the old file."""

import csv
import gzip
import json
import resource

import numpy as np
import pytest

from twinfold.io import json_safe, write_csv, write_json, write_json_lines, write_text
from twinfold.io._archive import write_arrays

THIRD = 1 / 3
LARGE = {"a": np.zeros(10_000)}


def test_json_has_plain_values_only():
    value = {1: (np.float32(0.5), np.int64(3)), "array": np.array([[1.0, np.inf], [np.nan, -np.inf]]), "b": True}
    assert json_safe(value) == {"1": [0.5, 3], "array": [[1.0, None], [None, None]], "b": True}
    assert json.loads(json.dumps(json_safe({"x": {2.0}, "y": None, "z": "t"}))) == {"x": [2.0], "y": None, "z": "t"}


def test_json_files(tmp_path):
    write_json(tmp_path / "a" / "b.json", {"third": THIRD, "nan": float("nan")})
    assert json.loads((tmp_path / "a" / "b.json").read_text()) == {"third": THIRD, "nan": None}


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_json_lines(name, tmp_path):
    write_json_lines(tmp_path / name, ({"i": i, "value": THIRD / i if i else np.inf} for i in range(3)))
    content = (tmp_path / name).read_bytes()
    lines = (gzip.decompress(content) if name.endswith("gz") else content).decode().splitlines()
    assert [json.loads(line) for line in lines] == [{"i": i, "value": THIRD / i if i else None} for i in range(3)]


def test_tables(tmp_path):
    path = tmp_path / "a.csv"
    write_csv(path, [{"name": "a, b", "value": THIRD}, {"name": 'c"d', "value": float("nan")}])
    with path.open(newline="") as file:
        assert list(csv.reader(file)) == [["name", "value"], ["a, b", repr(THIRD)], ['c"d', "nan"]]
    write_csv(path, ((i, i * THIRD) for i in range(2)), columns=["i", "value"])
    assert path.read_text().split() == ["i,value", "0,0.0", f"1,{THIRD!r}"]
    write_csv(path, [])
    assert path.read_text().strip() == ""
    with pytest.raises(ValueError, match="extra"):
        write_csv(path, [{"name": 1}, {"name": 2, "extra": 3}])
    assert path.read_text().strip() == ""


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    write_text(tmp_path / "a.jsonl", "old")

    def rows():
        yield {"i": 1}
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        write_json_lines(tmp_path / "a.jsonl", rows())
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]
    assert (tmp_path / "a.jsonl").read_text() == "old"


@pytest.mark.parametrize(
    "write", [lambda path: write_json(path, "x" * 100_000), lambda path: write_arrays(path, LARGE)]
)
def test_a_file_that_cannot_be_written_is_named_and_the_old_one_is_left(write, tmp_path):
    path = tmp_path / "a.json"
    write_text(path, "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match=f"File too large, so the file was not written: '{path}'"):
            write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "old"
