"""Files and tables of every kind give the same data set; a message names the file that cannot be read."""

import dataclasses
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from twinfold.data import Dataset, load_dataset
from twinfold.data._readers.mat5 import parse_mat

pd = pytest.importorskip("pandas")

NAN = np.nan
NAMES = {"time": "t", "inputs": ["u"], "outputs": ["p", "q"]}


def table(start: float = 0.0, rows: int = 6):
    t = start + 0.25 * np.arange(rows)
    q = np.where(np.arange(rows) % 2, NAN, t**2)
    return pd.DataFrame({"t": t, "u": np.sin(t), "p": np.cos(t), "q": q})


@pytest.fixture
def expected() -> Dataset:
    frame = table()
    return Dataset.from_arrays(
        [frame["t"]],
        [frame[["p", "q"]].to_numpy()],
        inputs=[frame[["u"]].to_numpy()],
        output_names=["p", "q"],
        input_names=["u"],
    )


def as_polars(folder):
    return pytest.importorskip("polars").from_pandas(table())


def as_lazy(folder):
    return as_polars(folder).lazy()


def as_xarray(folder):
    pytest.importorskip("xarray")
    return table().set_index("t").to_xarray()


def as_index(folder):
    return table().set_index("t")


def as_csv(folder):
    table().to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def as_zipped_csv(folder):
    table().to_csv(folder / "a.csv.gz", index=False)
    return str(folder / "*.csv.gz")


def as_parquet(folder):
    pytest.importorskip("pyarrow")
    table().set_index("t").to_parquet(folder / "a.parquet")
    return [folder / "a.parquet"]


def as_mat(folder):
    scipy = pytest.importorskip("scipy.io")
    frame = table()
    log = {"u": frame["u"].to_numpy()[:, None], "p": frame["p"].to_numpy(), "q": frame["q"].to_numpy(), "rate": 4.0}
    scipy.savemat(folder / "a.mat", {"t": frame["t"].to_numpy(), "log": log, "note": "bench 2"})
    return folder / "a.mat"


KINDS = [table, as_polars, as_lazy, as_xarray, as_index, as_csv, as_zipped_csv, as_parquet, as_mat]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_gives_the_same_data(kind, tmp_path, expected):
    source = table() if kind is table else kind(tmp_path)
    data = load_dataset(source, **NAMES)
    assert data.names == (("a",) if isinstance(source, str | Path | list) else ("0",))
    unnamed = dataclasses.replace(data, runs=(dataclasses.replace(data.runs[0], name="0", group="0"),))
    assert unnamed.fingerprint() == expected.fingerprint()


def test_columns_units_and_missing_values():
    frame = pd.DataFrame({"ms": [0, 500, 1000], "P": ["1.0", "-999", "n/a"], "T": [20.0, 21.0, -999.0], "p": [7, 7, 7]})
    data = load_dataset(
        frame,
        time="t",
        outputs=["p", "T"],
        columns={"t": "ms", "p": "P"},
        scale={"t": 1e-3, "p": 100.0},
        offset={"T": 273.15, "p": 1.0},
        missing=[-999, "n/a"],
    )
    run = data.runs[0]
    np.testing.assert_allclose(run.ts, [0, 0.5, 1.0], rtol=1e-15)
    np.testing.assert_allclose(run.y, [[101.0, 293.15], [NAN, 294.15], [NAN, NAN]], rtol=1e-15)


def test_several_files_are_runs_named_after_them(tmp_path):
    for index in (2, 10, 1):
        table(start=index).to_csv(tmp_path / f"day {index}.csv", index=False)
    data = load_dataset(["day *.csv"], folder=tmp_path, **NAMES)
    assert data.names == ("day 1", "day 10", "day 2")
    assert [run.ts[0] for run in data.runs] == [1, 10, 2]
    (tmp_path / "more").mkdir()
    table().to_csv(tmp_path / "more" / "day 1.csv", index=False)
    names = load_dataset("**/*.csv", folder=tmp_path, **NAMES).names
    assert set(names) == {"day 1", "day 10", "day 2", "more/day 1"}
    # However the folder is given.
    assert load_dataset("**/*.csv", folder=os.path.relpath(tmp_path), **NAMES).names == names
    assert load_dataset("day 2.csv", folder=tmp_path, blocks=2, block_gap=0, **NAMES).groups == ("day 2", "day 2")


def test_a_time_step_replaces_the_column_of_times():
    frame = table(rows=5).drop(columns="t")
    for source in (frame, frame.assign(t="noon")):  # a column that is called like the times is not read
        (run,) = load_dataset(source, dt=0.1, **NAMES).runs
        np.testing.assert_allclose(run.ts, 0.1 * np.arange(5), rtol=1e-15)
        np.testing.assert_array_equal(run.y[:, 0], frame["p"])
    # Counted in each run, also if its rows are not together.
    several = frame.assign(id=["a", "b", "a", "b", "a"])
    assert [len(run.ts) for run in load_dataset(several, dt=0.1, run="id", **NAMES).runs] == [3, 2]
    np.testing.assert_allclose(load_dataset(several, dt=0.1, run="id", **NAMES).runs[1].ts, [0, 0.1])
    # Rows without a value at the end are none.
    longer = pd.concat([frame, pd.DataFrame({"u": [NAN] * 3, "p": NAN, "q": NAN, "other": 1.0})])
    assert len(load_dataset(longer, dt=0.1, **NAMES).runs[0].ts) == 5
    with pytest.raises(ValueError, match=r"no column 't'.*give the time step: dt"):
        load_dataset(frame, **NAMES)
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"dt": 0.0}, "dt=0.0: give a positive"),
        ({"dt": 0.1, "join": True}, "dt and join exclude"),
        ({"dt": 0.1, "scale": {"t": 2.0}}, "scale: there is no column in use called 't'"),
    ]
    for changes, message in mistakes:
        with pytest.raises(ValueError, match=message):
            load_dataset(frame, **NAMES, **changes)


RECORDS = {"est": {"u": "uEst", "p": "yEst"}, "val": {"u": "uVal", "p": "yVal"}}


def side_by_side():
    """Two records of 5 and 3 samples in one table, as benchmarks of system identification are published."""
    return {
        "uEst": np.arange(5.0),
        "yEst": np.array([1.0, NAN, 3.0, NAN, 5.0]),
        "uVal": np.array([7.0, 8.0, 9.0]),
        "yVal": np.array([-1.0, -2.0, -3.0]),
    }


@pytest.mark.parametrize("ending", ["csv", "mat", "frame"])
def test_records_side_by_side_are_runs(ending, tmp_path):
    columns, source = side_by_side(), tmp_path / f"bench.{ending}"
    frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    if ending == "csv":
        frame.to_csv(source, index=False)
    elif ending == "mat":
        pytest.importorskip("scipy.io").savemat(source, {**columns, "Ts": 4.0})
    else:
        source = frame
    options: dict[str, Any] = {"inputs": ["u"], "outputs": ["p"], "records": RECORDS, "scale": {"p": 10.0}}
    data = load_dataset(source, dt=4.0, **options)
    assert data.names == ("est", "val")
    est, val = data.runs
    np.testing.assert_array_equal(est.y[:, 0], 10 * columns["yEst"])  # a gap is not the end
    np.testing.assert_array_equal(val.y[:, 0], 10 * columns["yVal"])
    assert val.w is not None
    np.testing.assert_array_equal(val.w[:, 0], columns["uVal"])
    np.testing.assert_array_equal(val.ts, [0, 4, 8])


def test_records_with_times_and_of_several_files(tmp_path):
    frame = pd.DataFrame({name: pd.Series(values) for name, values in side_by_side().items()})
    frame = frame.assign(t=np.arange(5.0), tVal=[0.0, 0.5, 1.0, NAN, NAN])
    own = {"est": RECORDS["est"], "val": RECORDS["val"] | {"t": "tVal"}}
    options: dict[str, Any] = {"inputs": ["u"], "outputs": ["p"]}
    data = load_dataset(frame, records=own, **options)
    np.testing.assert_array_equal(data.runs[0].ts, np.arange(5.0))
    np.testing.assert_array_equal(data.runs[1].ts, [0, 0.5, 1])
    for name in ("a", "b"):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    both = load_dataset("*.csv", folder=tmp_path, records=own, **options)
    assert both.names == ("a est", "a val", "b est", "b val")
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"records": {"est": {"y": "yEst"}}}, "records.est: there is no column in use called 'y'"),
        (
            {"records": {"est": {"u": "uEst", "p": "yest"}}, "dt": 1.0},
            "records.est: .*no column 'yest'.*Did you mean 'yEst'",
        ),
        ({"records": RECORDS, "run": "id"}, "records and run exclude"),
    ]
    for changes, message in mistakes:
        with pytest.raises(ValueError, match=message):
            load_dataset(frame, **options, **changes)


def test_a_run_continues_in_the_next_file(tmp_path):
    for part, start in enumerate((0.0, 1.5)):
        table(start).assign(id="007").to_csv(tmp_path / f"{part}.csv", index=False)
    data = load_dataset("*.csv", folder=tmp_path, run="id", **NAMES)
    assert data.names == ("007",)
    np.testing.assert_allclose(data.runs[0].ts, 0.25 * np.arange(12))
    table(1.0).assign(id="007").to_csv(tmp_path / "2.csv", index=False)
    with pytest.raises(
        ValueError, match=r"run '007' goes backwards: line 2 of .*2\.csv \(1\.0\) after line 7 of .*1\.csv"
    ):
        load_dataset("*.csv", folder=tmp_path, run="id", **NAMES)


def test_a_struct_array_of_matlab_is_one_run_each(tmp_path):
    scipy = pytest.importorskip("scipy.io")
    runs = np.zeros(2, dtype=[("t", object), ("y", object)])
    runs[0] = (np.arange(3.0), np.arange(6.0).reshape(3, 2))
    runs[1] = (np.arange(4.0), -np.arange(8.0).reshape(4, 2))
    scipy.savemat(tmp_path / "a.mat", {"exp": runs})
    data = load_dataset(tmp_path / "a.mat", outputs=["second"], columns={"second": "y(2)"})
    assert data.names == ("exp(1)", "exp(2)")
    np.testing.assert_array_equal(data.runs[1].y[:, 0], [-1, -3, -5, -7])


def test_a_matlab_file_is_read_as_scipy_reads_it(tmp_path):
    scipy = pytest.importorskip("scipy.io")
    rng = np.random.default_rng(0)
    written = {
        "a": rng.normal(size=(3, 2)),
        "n": rng.integers(-5, 5, (1, 4)).astype(np.int16),
        "text": "größe",
        "deep": {"b": {"c": np.arange(3.0)}, "cells": np.array([np.arange(2.0), "x"], dtype=object)},
        "none": np.zeros((0, 0)),
        "complex": np.array([1j]),
    }
    for compressed in (False, True):
        scipy.savemat(tmp_path / "a.mat", written, do_compression=compressed)
        found = parse_mat((tmp_path / "a.mat").read_bytes(), max_unpacked=10_000)
        np.testing.assert_array_equal(found["a"], written["a"])
        np.testing.assert_array_equal(found["n"], written["n"][0])
        np.testing.assert_array_equal(found["deep"]["b"]["c"], [0, 1, 2])
        np.testing.assert_array_equal(found["deep"]["cells"][0], [0, 1])
        assert found["deep"]["cells"][1] == "x"
        assert found["text"] == "größe"
        assert found["complex"] is None


def test_channels_of_different_rates_are_joined_on_time(tmp_path):
    fast = pd.DataFrame({"t": 0.1 * np.arange(7), "p": np.arange(7.0)})
    slow = pd.DataFrame({"t": [0.0, 0.3, 0.35, 0.6], "q": [1.0, 2.0, 3.0, 4.0], "u": [5.0, 6.0, 7.0, 8.0]})
    fast.to_csv(tmp_path / "fast.csv", index=False)
    slow.to_csv(tmp_path / "slow.csv", index=False)
    data = load_dataset(["slow.csv", "fast.csv"], folder=tmp_path, join=True, **NAMES)
    assert len(data) == 1
    run = data.runs[0]
    np.testing.assert_allclose(run.ts, [0, 0.1, 0.2, 0.3, 0.35, 0.4, 0.5, 0.6], atol=1e-12)
    np.testing.assert_array_equal(run.y[:, 0], [0, 1, 2, 3, NAN, 4, 5, 6])
    np.testing.assert_array_equal(run.y[:, 1], [1, NAN, NAN, 2, 3, NAN, NAN, 4])
    np.testing.assert_array_equal(np.asarray(run.w)[:, 0], [5, 5, 5, 6, 7, 7, 7, 8])


def test_files_of_the_same_name_are_joined_run_by_run(tmp_path):
    stamps = pd.date_range("2026-01-01", periods=4, freq="250ms", tz="UTC")
    for run in ("a", "b"):
        (tmp_path / "fast").mkdir(exist_ok=True)
        (tmp_path / "slow").mkdir(exist_ok=True)
        pd.DataFrame({"t": stamps, "p": 1.0, "u": 0.0}).to_csv(tmp_path / "fast" / f"{run}.csv", index=False)
        pd.DataFrame({"t": stamps[1::2], "q": 2.0}).to_csv(tmp_path / "slow" / f"{run}.csv", index=False)
    data = load_dataset(["fast/*.csv", "slow/*.csv"], folder=tmp_path, join=True, **NAMES)
    assert data.names == ("a", "b")
    np.testing.assert_array_equal(data.runs[1].ts, [0, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(data.runs[1].y[:, 1], [NAN, 2, NAN, 2])


def test_a_join_names_what_is_missing(tmp_path):
    pd.DataFrame({"t": [0.0, 1.0], "p": 1.0}).to_csv(tmp_path / "fast.csv", index=False)
    pd.DataFrame({"t": [0.0, 1.0], "u": 0.0}).to_csv(tmp_path / "slow.csv", index=False)
    both = {"source": ["fast.csv", "slow.csv"], "folder": tmp_path, "join": True}
    with pytest.raises(ValueError, match="outputs: no file has a column 'Q'"):
        load_dataset(**both, **NAMES, columns={"q": "Q"})
    with pytest.raises(ValueError, match="group: no file has a column 'cell'"):
        load_dataset(**both, time="t", inputs=["u"], outputs=["p"], group="cell")
    pd.DataFrame({"t": ["2026-01-01", "2026-01-02"], "u": 0.0}).to_csv(tmp_path / "slow.csv", index=False)
    with pytest.raises(ValueError, match="column 't' holds numbers in one file and timestamps in another"):
        load_dataset(**both, time="t", inputs=["u"], outputs=["p"])


def test_a_source_without_outputs_has_one_of_zeros():
    data = load_dataset(table(), time="t", inputs=["u"], outputs=[])
    np.testing.assert_array_equal(data.runs[0].y, np.zeros((6, 1)))
    assert len(data.output_names) == 1


def test_a_run_is_cut_at_long_steps():
    t = np.r_[np.arange(6.0), 10 + np.arange(5.0), 30]
    frame = pd.DataFrame({"t": t, "p": t, "u": 0.0, "q": 1.0, "x": 2 * t})
    with pytest.warns(UserWarning, match="1 isolated rows"):
        data = load_dataset(frame, max_step=2.0, x0=["x"], **NAMES)
    assert data.names == ("0[0]", "0[1]")
    assert data.groups == ("0", "0")
    np.testing.assert_array_equal([run.x0 for run in data.runs], [[0], [20]])
    with pytest.warns(UserWarning, match="isolated"):
        both = load_dataset(frame, max_step=2.0, blocks=2, block_gap=1, x0=["x"], **NAMES)
    assert both.names == ("0[0][0]", "0[0][1]", "0[1][0]", "0[1][1]")
    assert set(both.groups) == {"0"}
    np.testing.assert_array_equal([run.x0 for run in both.runs], [[0], [8], [20], [26]])
    shuffled = load_dataset(frame.iloc[::-1], blocks=3, sort=True, **NAMES)
    assert shuffled.fingerprint() == load_dataset(frame, blocks=3, **NAMES).fingerprint()


def test_runs_of_an_xarray_dimension():
    xr = pytest.importorskip("xarray")
    p = np.array([[0.0, 1, 2], [5, 6, NAN]])
    source = xr.Dataset(
        {"p": (("id", "t"), p), "q": (("id", "t"), 2 * p), "u": (("id", "t"), 0 * p)},
        {"t": [0.0, 0.5, 1.5], "id": ["a", "b"]},
    )
    data = load_dataset(source, run="id", **NAMES)
    assert data.names == ("a", "b")
    assert [len(run.ts) for run in data.runs] == [3, 2]
    with pytest.raises(ValueError, match=r"dimension 'sensor'.*isel\(sensor=0\)"):
        load_dataset(source.expand_dims("sensor"), run="id", **NAMES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs": ["pp"]}, "outputs: there is no column 'pp'.*Did you mean 'p'"),
        ({"outputs": ["t"]}, "is the column of times"),
        ({"columns": {"p": "P"}}, "outputs: there is no column 'P'"),
        ({"columns": {"z": "P"}}, "columns: there is no column in use called 'z'"),
        ({"scale": {"v": 2.0}}, "scale: there is no column in use called 'v'"),
        ({"scale": {"p": 0.0}}, "not zero"),
        ({"offset": {"p": np.inf}}, "finite"),
        ({"time": "clock"}, "time: there is no column 'clock'"),
        ({"run": "id"}, "run: there is no column 'id'"),
        ({"missing": list(np.cos(0.25 * np.arange(6))), "outputs": ["p"]}, "no measured value"),
        ({"max_step": 1e-9}, "has 6 rows, and no two are within max_step=1e-09"),
        ({"blocks": 1}, "blocks=1: a run is cut into at least 2"),
        ({"blocks": 2, "block_gap": -1}, "block_gap=-1: give the number of samples"),
        ({"block_gap": 1}, "block_gap=1: it separates blocks"),
    ],
)
def test_invalid_arguments(changes, message, tmp_path):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        load_dataset(table(), **{**NAMES, **changes})


def test_missing_and_invalid_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file 'data/\*.csv'"):
        load_dataset("data/*.csv", folder=tmp_path, **NAMES)
    with pytest.raises(ValueError, match="is a folder"):
        load_dataset(str(tmp_path), **NAMES)
    for name, content, message in (
        ("a.parquet", b"PAR1 but no more", "not a readable Parquet file"),
        ("a.mat", b"MATLAB 5.0 MAT-file" + bytes(300), "not a readable MATLAB file|there is no vector"),
        ("a.csv.gz", b"\x1f\x8b\x08 cut short", "not a comma-separated table"),
        ("a.csv", b"t;u;p;q\n0;1;2;3\n", "separated by semicolons"),
        ("a.csv", b"t;u\n0;1,5\n1;2,5\n", "separated by semicolons"),  # decimal commas: rows longer than the header
        ("b.csv", b"", "empty"),
        ("c.csv", b"t,u,p,q\n", "no rows"),
        ("d.csv", b"t,u,p,q\n0,1,2,3\n0,1,2,3\n", "same time twice"),
        ("e.csv", b"t,u,p,q\n0001-01-01,1,2,3\n9999-01-01,1,2,3\n", "century|not a number"),  # pandas 2 has no year 1
        ("f.xls", b"x", "ending"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message) as refusal:
            load_dataset(name, folder=tmp_path, **NAMES)
        assert name in str(refusal.value)
    with pytest.raises(ValueError, match="source is a int"):
        load_dataset(3, **NAMES)


@pytest.mark.parametrize("kind", [as_csv, as_mat, as_parquet], ids=lambda kind: kind.__name__)
def test_damaged_files_are_read_or_refused(kind, tmp_path):
    """Bytes cut off, exchanged and doubled: a data set or a ValueError, nothing else."""
    path = kind(tmp_path)
    path = path[0] if isinstance(path, list) else path
    whole, rng = path.read_bytes(), random.Random(1)
    refused = 0
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            place = rng.randrange(len(content))
            content[place : place + 1] = rng.choice([b"", b"\xff", b",", b"\n", b"e", bytes([rng.randrange(256)]) * 3])
        path.write_bytes(bytes(content) if rng.random() < 0.7 else whole[: rng.randrange(len(whole))])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load_dataset(path, **NAMES)
        except ValueError:
            refused += 1
    assert refused > 5
