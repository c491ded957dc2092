"""Getting the battery files: where they are looked for, unpacked, checked and shown."""

import csv
import io
import json
import os
import re
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.nasa_files import archives_in_an_archive, operation, table_rows, write_csv, write_set5, zipped
from twinfold_studies.nasa import fetch, find_data, load
from twinfold_studies.nasa.location import cache_folder
from twinfold_studies.nasa.unpack import members
from typer.testing import CliRunner

from twinfold.cli import app


@pytest.fixture
def mat(tmp_path) -> bytes:
    return write_set5(tmp_path / "made" / "B0005.mat", [operation(), operation("charge"), operation()]).read_bytes()


# Where the data are


def test_find_prefers_what_it_is_given_then_the_data_folder_then_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TWINFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TWINFOLD_DATA", str(tmp_path / "data"))
    with pytest.raises(FileNotFoundError) as error:
        find_data()
    assert str(tmp_path / "data" / "nasa_battery") in str(error.value)
    assert str(tmp_path / "cache" / "nasa_battery") in str(error.value)
    assert "twinfold data nasa-battery --from PATH|URL" in str(error.value)
    (tmp_path / "cache" / "nasa_battery").mkdir(parents=True)
    assert find_data() == tmp_path / "cache" / "nasa_battery"
    (tmp_path / "data" / "nasa_battery").mkdir(parents=True)
    assert find_data() == tmp_path / "data" / "nasa_battery"
    assert find_data(tmp_path) == tmp_path
    with pytest.raises(FileNotFoundError, match="nowhere"):
        find_data(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, "home/.cache/twinfold"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/twinfold"),
        ("darwin", {}, "home/Library/Caches/twinfold"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/twinfold/Cache"),
        ("linux", {"TWINFOLD_CACHE": "mine"}, "mine"),
    ],
)
def test_the_cache_folder_of_each_platform(monkeypatch, platform, variables, folder):
    for name in ("TWINFOLD_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    assert cache_folder() == Path(folder)


# Folders and archives


def test_archives_in_an_archive(tmp_path, mat):
    (tmp_path / "set5.zip").write_bytes(archives_in_an_archive(mat))
    out = tmp_path / "out"
    first = fetch(tmp_path / "set5.zip", out, on_error="raise")
    name = "5. Battery Data Set/1. BatteryAgingARC/B0005.mat"
    assert (first.written, first.unchanged, first.skipped) == ((name,), (), ())
    assert (out / name).read_bytes() == mat
    assert [discharge.name for discharge in load(out, verify=True)] == ["B0005/0", "B0005/1"]
    written = (out / name).stat().st_mtime_ns
    again = fetch(f"file://{tmp_path / 'set5.zip'}", out)  # twice is once
    assert (again.written, again.unchanged) == ((), (name,))
    assert (out / name).stat().st_mtime_ns == written


def test_a_folder_with_an_archive_in_it(tmp_path, mat):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "B0006.mat").write_bytes(mat)
    (source / "notes.txt").write_text("left where it is")
    (source / "more.zip").write_bytes(zipped(**{"B0005.mat": mat}))
    fetched = fetch(source, tmp_path / "out")
    assert sorted(fetched.written) == ["deep/B0006.mat", "more/B0005.mat"]
    with pytest.raises(ValueError, match="contains the target"):
        fetch(source, source / "out")


def test_the_cache_is_the_target_unless_told(tmp_path, monkeypatch, mat):
    monkeypatch.setenv("TWINFOLD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TWINFOLD_DATA", raising=False)
    assert fetch(tmp_path / "made" / "B0005.mat").folder == tmp_path / "cache" / "nasa_battery"
    assert len(load()) == 2


def test_a_changed_file_is_noticed(tmp_path, mat):
    out = tmp_path / "out"
    fetch(tmp_path / "made", out)
    write_set5(tmp_path / "made" / "B0006.mat", [operation()])
    fetch(tmp_path / "made", out)
    entry = json.loads((out / "manifest.json").read_text())["files"]["B0005.mat"]
    assert entry["bytes"] == len(mat)
    assert re.fullmatch("[0-9a-f]{64}", entry["sha256"])
    (out / "B0005.mat").write_bytes(mat[:-1] + b"!")
    assert len(load(out)) == 3  # the size is right; the contents are compared when asked
    found = load(out, verify=True)
    assert found.cells == ("B0006",)
    assert str(found.skipped[0]).startswith("B0005.mat: checksum mismatch: the file has changed; get it again")
    (out / "B0005.mat").write_bytes(mat[:-9])
    assert f"the file has {len(mat) - 9} bytes instead of {len(mat)}" in str(load(out).skipped[0])
    (out / "B0005.mat").unlink()
    with pytest.raises(ValueError, match=r"B0005\.mat: the file is missing"):
        load(out, on_error="raise")
    assert fetch(tmp_path / "made", out).written == ("B0005.mat",)
    assert load(out, verify=True).skipped == ()


def test_no_member_gets_out_of_the_target(tmp_path, mat):
    link = zipfile.ZipInfo("link.mat")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("../out.mat", "/tmp/absolute.mat", "a/../../b.mat", "..\\back.mat", "C:\\drive.mat"):
            archive.writestr(name, mat)
        archive.writestr(link, "/etc/passwd")
        archive.writestr("good.mat", mat)
    (tmp_path / "bad.zip").write_bytes(buffer.getvalue())
    fetched = fetch(tmp_path / "bad.zip", tmp_path / "deep" / "out")
    assert fetched.written == ("good.mat",)
    reasons = [skipped.reason for skipped in fetched.skipped]
    assert reasons == ["its path leads outside of the target"] * 5 + ["a symbolic link"]
    assert str(fetched.skipped[0]).startswith("bad.zip: ../out.mat: ")
    outside = {path.name for path in tmp_path.rglob("*.mat")}
    assert outside == {"good.mat", "B0005.mat"}
    with pytest.raises(ValueError, match=r"bad\.zip: \.\./out\.mat: its path leads outside"):
        fetch(tmp_path / "bad.zip", tmp_path / "deep" / "out", on_error="raise")


def test_a_link_in_the_target_is_not_followed(tmp_path, mat):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set.zip").write_bytes(zipped(**{"sub/B0005.mat": mat, "B0006.mat": mat}))
    fetched = fetch(tmp_path / "set.zip", tmp_path / "out")
    assert fetched.written == ("B0006.mat",)
    assert "a link in the target leads outside of it" in str(fetched.skipped[0])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_sizes_are_checked(tmp_path, mat, monkeypatch):
    (tmp_path / "set.zip").write_bytes(zipped(**{"a.mat": mat, "b.mat": mat, "zeros.csv": b"0" * 1_000_000}))
    with pytest.raises(ValueError, match="the total size exceeds 100000 bytes"):
        list(members(tmp_path / "set.zip", lambda name, reason: None, tmp_path, max_bytes=100_000))
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 500_000}))
    fetched = fetch(tmp_path / "set.zip", tmp_path / "out")
    assert fetched.written == ("a.mat", "b.mat")
    assert "it needs 1000000 bytes, more than the free space of the disk" in str(fetched.skipped[0])


def test_damaged_archives(tmp_path, mat):
    whole = zipped(**{"a.mat": mat, "b.mat": mat, "inner.zip": b"not an archive"})
    middle = bytearray(whole)
    middle[200] ^= 0xFF  # within the first member
    (tmp_path / "middle.zip").write_bytes(middle)
    fetched = fetch(tmp_path / "middle.zip", tmp_path / "out")
    assert fetched.written == ("b.mat",)
    assert [skipped.file for skipped in fetched.skipped] == ["middle.zip: a.mat", "middle.zip: inner.zip"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["b.mat", "manifest.json"]
    (tmp_path / "half.zip").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"half\.zip: not an archive, or truncated"):
        fetch(tmp_path / "half.zip", tmp_path / "out")
    deep = archives_in_an_archive(mat)
    for _ in range(4):
        deep = zipped(**{"more.zip": deep})
    (tmp_path / "deep.zip").write_bytes(deep)
    with pytest.raises(ValueError, match="more than 4 levels of nested archives"):
        fetch(tmp_path / "deep.zip", tmp_path / "out")


def test_sources_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file or folder"):
        fetch(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ValueError, match="begins with http, https or file"):
        fetch("ftp://example.org/set.zip", tmp_path / "out")
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(ValueError, match=r"notes\.txt: neither a folder nor a \.zip"):
        fetch(tmp_path / "notes.txt", tmp_path / "out")


def per_cycle_tables(folder: Path, count: int) -> Path:
    """Tables of another publication of the same measurements: one a cycle, without the columns that are read."""
    folder.mkdir()
    for index in range(count):
        (folder / f"{index:05d}.csv").write_text("Voltage_measured,Current_measured,Time\n4.2,-2.0,0.0\n4.1,-2.0,9.0\n")
    return folder


def test_a_source_without_discharges_is_refused_and_not_copied(tmp_path):
    tables = per_cycle_tables(tmp_path / "cleaned", 281)
    looked_for = "battery, discharge_index, time_s, voltage_measured_V, current_measured_A"
    archive = tmp_path / "cleaned.zip"
    archive.write_bytes(zipped(**{path.name: path.read_bytes() for path in tables.iterdir()}))
    for source, count in ((tables, 281), (archive, 281), (tables / "00000.csv", 1)):
        with pytest.raises(ValueError, match=f"has no discharges: none of its {count} files is one of .*{looked_for}"):
            fetch(source, tmp_path / "out")
        assert list((tmp_path / "out").iterdir()) == []
    with pytest.raises(ValueError, match=f"has no discharges: none of its 281 files is one of .*{looked_for}"):
        load(tables)
    write_csv(tables / "log.csv", table_rows("B0005", 0))  # one is enough: the others may belong to it
    assert len(fetch(tables, tmp_path / "out").written) == 282


def test_special_files_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "log.csv")
    with pytest.raises(ValueError, match=r"log\.csv is a FIFO \(named pipe\), not a file"):
        fetch(tmp_path / "log.csv", tmp_path / "out")
    with pytest.raises(ValueError, match=r"log\.csv is a FIFO \(named pipe\), not a file"):
        load(tmp_path / "log.csv")


# The command


def call(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["data", "nasa-battery", *map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def test_the_command_shows_flags_and_what_was_skipped(tmp_path):
    bad = operation(Time=np.zeros(3))
    early = operation(Voltage_measured=operation()["data"]["Voltage_measured"] + 0.5)
    turned = operation(Current_measured=-operation()["data"]["Current_measured"])
    path = write_set5(tmp_path / "in" / "B0005.mat", [operation(), bad, early, turned])
    code, output = call("--from", path, "--out", tmp_path / "out", "--flags", "--table", tmp_path / "table.csv")
    assert code == 0, output
    assert "B0005/2  above_cutoff: the load ends at 3.10 V, 0.40 V above the cut-off of 2.7 V" in output
    assert "skipped  B0005.mat, cell B0005, cycle 1: truncated: Time has 3 values" in output
    assert "note  B0005.mat, cell B0005, cycle 3: the current has the sign of a charge (2 A)" in output
    assert re.search(r"above_cutoff +1 +B0005 1", output)
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["cell"], row["index"], row["clean"], row["cycle"]) for row in rows] == [
        ("B0005", "0", "True", "0"),
        ("B0005", "2", "False", "2"),
        ("B0005", "3", "True", "3"),
    ]
    assert "above_cutoff" in rows[1]["flags"]
    code, output = call("--out", tmp_path / "out", "--strict")
    assert (code, "B0005.mat, cell B0005, cycle 1" in output) == (2, True)


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_the_command_fails_if_nothing_is_found(tmp_path, strict):
    tables = per_cycle_tables(tmp_path / "cleaned", 3)
    code, output = call("--from", tables, "--out", tmp_path / "out", *strict)
    assert (code, "has no discharges" in output) == (2, True)
    assert list((tmp_path / "out").iterdir()) == []
    code, output = call("--out", tables, *strict)
    assert (code, "has no discharges" in output) == (2, True)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "B0005.mat").write_bytes(b"no MATLAB file")
    code, output = call("--out", tmp_path / "broken", *strict)
    assert code == 2
    assert "B0005.mat: not readable as a MATLAB file" in output
    assert strict or "No discharge was found. Looked for: NASA's .mat files, or tables with the columns" in output
