"""Tables to data sets: reading, filling and sorting, and the messages about invalid tables."""

import sys

import numpy as np
import pytest

from twinfold.data import Dataset, load_dataset

pd = pytest.importorskip("pandas")

NAN = np.nan

CSV = """t, id, p, q, u
0.0,007,1.0,10.0,
0.1,007,2.0,,3.5
0.0,b,0.30000000000000004,,1.0
0.3,007,,40.0,
0.7,007,5.0,,4.5
2.0,b,NaN,-1,
"""


def written(folder, text: str):
    path = folder / "flights.csv"
    path.write_text(text)
    return path


def columns(**changed) -> dict:
    return {"time": "t", "run": "id", "outputs": ["p", "q"], "inputs": ["u"]} | changed


@pytest.mark.parametrize(("fill", "filled"), [("hold", [3.5, 3.5, 3.5, 4.5]), ("linear", [3.5, 3.5, 3.5 + 1 / 3, 4.5])])
def test_csv_with_two_runs_and_missing_values(tmp_path, fill, filled):
    data = Dataset.from_csv(written(tmp_path, CSV), **columns(x0=["p"], fill=fill))
    assert data.names == ("007", "b")
    assert (data.output_names, data.input_names) == (("p", "q"), ("u",))
    first, second = data.runs
    np.testing.assert_array_equal(first.ts, [0.0, 0.1, 0.3, 0.7])
    np.testing.assert_array_equal(first.y, [[1, 10], [2, NAN], [NAN, 40], [5, NAN]])
    np.testing.assert_allclose(np.asarray(first.w)[:, 0], filled, rtol=1e-14)
    np.testing.assert_array_equal(second.ts, [0, 2])
    np.testing.assert_array_equal(second.y, [[0.1 + 0.2, NAN], [NAN, -1]])  # every digit as written
    np.testing.assert_array_equal(second.w, [[1], [1]])
    np.testing.assert_array_equal([first.x0, second.x0], [[1], [0.1 + 0.2]])


def test_a_csv_round_trip(tmp_path):
    rng = np.random.default_rng(0)
    ts = [np.cumsum(rng.uniform(0.1, 1, n)) for n in (6, 4)]
    ys = [np.where(rng.uniform(size=(len(t), 2)) < 0.3, NAN, rng.normal(size=(len(t), 2))) for t in ts]
    ws = [rng.normal(size=(len(t), 1)) for t in ts]
    data = Dataset.from_arrays(ts, ys, inputs=ws, names=["a", "b"], output_names=["p", "q"], input_names=["u"])
    frame = pd.concat(
        pd.DataFrame({"t": t, "id": name, "p": y[:, 0], "q": y[:, 1], "u": w[:, 0]})
        for name, t, y, w in zip("ab", ts, ys, ws, strict=True)
    )
    assert load_dataset(frame, **columns()).fingerprint() == data.fingerprint()
    frame.to_csv(tmp_path / "out.csv", index=False)
    assert Dataset.from_csv(tmp_path / "out.csv", **columns()).fingerprint() == data.fingerprint()


@pytest.mark.parametrize("parsed", [True, False])
def test_timestamps_become_seconds_since_the_first_row_of_the_run(parsed):
    stamps = [
        "2024-03-31T00:59:59.5+00:00",
        "2024-03-31T03:00:00+02:00",  # half a second later, in another time zone
        "2025-01-01 00:00:00Z",
        "2024-03-31T01:00:01Z",
        "2025-01-01T00:00:00.000000250Z",
    ]
    times = pd.to_datetime(pd.Series(stamps), format="ISO8601", utc=True) if parsed else stamps
    frame = pd.DataFrame({"t": times, "id": [1, 1, 2, 1, 2], "p": np.arange(5)})
    data = load_dataset(frame, time="t", run="id", outputs=["p"])
    assert data.names == ("1", "2")
    np.testing.assert_array_equal(data.runs[0].ts, [0, 0.5, 1.5])
    np.testing.assert_array_equal(data.runs[1].ts, [0, 250e-9])
    np.testing.assert_array_equal(data.runs[0].y[:, 0], [0, 1, 3])


def test_durations_are_seconds_and_one_run_needs_no_name():
    frame = pd.DataFrame({"t": pd.to_timedelta([1.5, 2.0], unit="s"), "p": ["1e3", 2]})
    (run,) = load_dataset(frame, time="t", outputs=["p"]).runs
    assert run.name == "0"
    np.testing.assert_array_equal(run.ts, [1.5, 2.0])
    np.testing.assert_array_equal(run.y[:, 0], [1000, 2])


def test_sort_orders_the_rows_of_a_run_with_all_their_channels():
    frame = pd.DataFrame({"t": [2.0, 0.0, 1.0], "p": [20.0, 0.0, 10.0], "u": [NAN, NAN, 5.0], "x": [3, 1, 2]})
    data = load_dataset(frame, time="t", outputs=["p"], inputs=["u"], x0=["x"], sort=True)
    (run,) = data.runs
    np.testing.assert_array_equal(run.ts, [0, 1, 2])
    np.testing.assert_array_equal(run.y[:, 0], [0, 10, 20])
    np.testing.assert_array_equal(np.asarray(run.w)[:, 0], [5, 5, 5])
    np.testing.assert_array_equal(run.x0, [1])


def table(**changed):
    cells = {"t": [0.0, 1.0, 2.0], "id": ["a"] * 3, "p": [1.0, 2.0, 3.0], "q": [NAN] * 3, "u": [0.0] * 3}
    return pd.DataFrame(cells | changed)


@pytest.mark.parametrize(
    ("frame", "changed", "message"),
    [
        (1.0, {}, "source is a float; give paths, or a table of pandas"),
        (
            table(),
            {"time": "tt"},
            "time: there is no column 'tt'; there are: t, id, p, q, u. Did you mean 't'",
        ),
        (table(), {"outputs": ["pp"]}, "outputs: there is no column 'pp'.*Did you mean 'p'"),
        (table(), {"inputs": ["zzz"]}, "inputs: there is no column 'zzz'; there are: t, id, p, q, u.$"),
        (table(), {"run": "ID"}, "run: there is no column 'ID'"),
        (table(), {"x0": ["xx"]}, "x0: there is no column 'xx'"),
        (table(), {"outputs": "p"}, "outputs='p': give a list of columns"),
        (table(), {"outputs": ["p", "p"]}, "output_names: 'p' names two columns"),
        (table().set_axis(list("ttpqu"), axis=1), {"run": ""}, "time: the table has 2 columns 't'"),
        (table().iloc[:0], {}, "the table has no rows"),
        (table(t=[0.0, NAN, 1.0]), {}, "time: column 't' is empty in row 1; every row needs a time"),
        (
            table(t=[0.0, np.inf, 1.0]),
            {},
            "time: column 't' has 'inf' in row 1, which is not a finite number",
        ),
        (table(t=["0", "soon", "1"]), {}, "time: column 't' has 'soon' in row 1"),
        (table(t=["01/02/2024", "x", "y"]), {}, "time: column 't' has '01/02/2024' in row 0.*ISO 8601"),
        (
            table(t=[0.0, 2.0, 1.5]),
            {},
            r"time: run 'a' goes backwards: row 2 \(1.5\) after row 1 \(2.0\); pass sort=True",
        ),
        (
            table(t=["2024-01-02", "2024-01-01", "2024-01-03"]),
            {},
            r"time: run 'a' goes backwards: row 1 \(2024-01-01T.*\) after row 0 \(2024-01-02T",
        ),
        (
            table(t=[0.0, 1.0, 1.0]),
            {},
            r"time: run 'a' has the same time twice: row 2 \(1.0\) after row 1 \(1.0\)",
        ),
        (
            table(t=[0.0, 1.0, 0.0]),
            {"sort": True},
            r"has the same time twice: row 2 \(0.0\) after row 0 \(0.0\)",
        ),
        (table(id=["a", None, "a"]), {}, "run: column 'id' is empty in row 1"),
        (table(id=["a", "a", "b"]), {}, "ts of run 'b' has shape .* at least two times"),
        (table(p=[1.0, "high", "low"]), {}, "outputs: column 'p' has 'high' in row 1, which is not a number"),
        (table(p=pd.to_datetime(["2024-01-01"] * 3)), {}, "outputs: column 'p' has '2024.* in row 0"),
        (table(p=[1.0, 2.0, -np.inf]), {}, "outputs: column 'p' has '-inf' in row 2, which is not a finite"),
        (table(p=[NAN] * 3), {}, "ys of run 'a' has no measured value"),
        (table(u=["on", 1.0, 1.0]), {}, "inputs: column 'u' has 'on' in row 0"),
        (table(u=[NAN] * 3), {}, "inputs: column 'u' has no value in run 'a'"),
        (
            table(u=[0.0, NAN, 1.0]),
            {"fill": "refuse"},
            "inputs: column 'u' is empty in row 1 of run 'a'; pass fill=",
        ),
        (table(), {"x0": ["q"]}, r"x0 of run 'a' is not finite: \[nan\]"),
    ],
)
def test_invalid_tables_are_refused(frame, changed, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(frame, **columns(**changed))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "flights.csv: the file is empty"),
        ("t,id,p,q,u\n", "flights.csv: the table has no rows"),
        ("t,p,q,u\n0,1,1,1\n", "flights.csv: run: there is no column 'id'; there are: t, p, q, u"),
        ("t;id;p\n0;a;1\n", "flights.csv: the columns are separated by semicolons"),
        (
            "t,id,p,q,u\n0,a,1,1,1\n1,a,1,1,1,9,9\n",
            "flights.csv: the file is not a comma-separated table.*line 3",
        ),
        ("t,id,p,q,u\n0,a,1,1,1,9\n1,a,1,1,1,9\n", "flights.csv: the file is not a comma-separated table"),
        ('t,id,p,q,u\n0,a,1,1,"1\n', "flights.csv: "),
        ("t,id,p,q,u\n0,a,1,1,1\n1,a,--,1,1\n", "flights.csv: outputs: column 'p' has '--' in row 1"),
    ],
)
def test_invalid_files_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        Dataset.from_csv(written(tmp_path, text), **columns())


def test_a_missing_or_binary_file_is_named(tmp_path):
    path = tmp_path / "flights.csv"
    with pytest.raises(FileNotFoundError, match=r"there is no file '.*flights\.csv'"):
        Dataset.from_csv(path, **columns())
    path.write_bytes(b"t,id\n\xff\xfe\x00,\x80")
    with pytest.raises(ValueError, match=r"flights\.csv: "):
        Dataset.from_csv(path, **columns())


def test_an_unknown_fill_is_refused(tmp_path):
    with pytest.raises(ValueError, match='fill=\'guess\': give "hold", "linear" or "refuse"'):
        Dataset.from_csv(written(tmp_path, CSV), **columns(fill="guess"))


def test_from_csv_needs_outputs(tmp_path):
    with pytest.raises(ValueError, match="outputs is empty; name at least one column"):
        Dataset.from_csv(written(tmp_path, CSV), **columns(outputs=[]))


def test_without_pandas_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'twinfold\[table\]'"):
        load_dataset(None, **columns())
