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
        ("t,id,p,q,u\n0,a,1,1,1\n1,a,--,1,1\n", "flights.csv: outputs: column 'p' has '--' in line 3"),
        ("t,id,p,p,u\n0,a,1,1,1\n1,a,1,1,1\n", "flights.csv: outputs: the table has 2 columns 'p'; rename them"),
        # A semicolon in the header, and commas in its names.
        ("t;id;p (a, b);q;u\n0;a;1;1;1\n", "flights.csv: the columns are separated by semicolons"),
        ("t;id;p (a, b, c, d, e);q;u\n0;a;1;1;1\n", "flights.csv: the columns are separated by semicolons"),
        ("t\tid\tp (a, b)\n0\ta\t1\n", "flights.csv: the columns are separated by tabs"),
        # Decimal commas.
        ("t;id;p;q;u\n0,5;a;1,5;1,5;1,5\n", "separated by semicolons; .*not with decimal commas"),
        ('t,id,p,q,u\n0,a,1,1,1\n1,a,"1,5",1,1\n', "column 'p' has '1,5' in line 3.*not with decimal commas"),
        ('t,id,p,q,u\n"0,5",a,1,1,1\n"0,6",a,1,1,1\n', "column 't' has '0,5' in line 2.*not with decimal commas"),
        ("t,id,p,q,u\n0,a,1,1,1\n0,5,a,1,1,1\n", "line 3 has 6 cells, the header 5. .*not with decimal commas"),
        # Lines as an editor counts them: blank lines, line breaks in quotes, any end of line.
        ("\n\nt,id,p,q,u\n0,a,1,1,1\n   \n\t\n\n1,a,x,1,1\n", "column 'p' has 'x' in line 8"),
        ('"t","id",p,q,u\r\n0,"a",1,1,1\r\n1,a,1,1,1\r\n2,a,1,1,on\r\n', "column 'u' has 'on' in line 4"),
        ('t,id,p,q,u,"long\nnote"\n0,a,1,1,1,"b\n\nc"\n1,a,x,1,1,"d"\n', "column 'p' has 'x' in line 6"),
        ('t,id,p,q,u,note\n0,a,1,1,1, "b, c"\n1,a,1,1,1,"a ""b"" c"\n2,a,y,1,1,\n', "column 'p' has 'y' in line 4"),
        ("t,id,p,q,u\r0,a,1,1,1\r1,a,z,1,1\r", "column 'p' has 'z' in line 3"),
        ("t,id,p,q,u\n0,a,1,1,1\n,a,1,1,1\n", "time: column 't' is empty in line 3"),
        ("t,id,p,q,u\n0,a,1,1,1\n\n1,,1,1,1\n", "run: column 'id' is empty in line 4"),
        ("t,id,p,q,u\n1,a,1,1,1\n\n0,a,1,1,1\n", r"goes backwards: line 4 \(0.0\) after line 2 \(1.0\)"),
    ],
)
def test_invalid_files_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        Dataset.from_csv(written(tmp_path, text), **columns())


@pytest.mark.parametrize("name", ["NA", "nan", "null", "None", "N/A", "NULL", "<NA>", "NaN", "-", "0", "true"])
def test_a_run_or_group_may_be_called_like_a_missing_value(tmp_path, name):
    path = written(tmp_path, f"t,id,cell,p,u\n0,{name},{name},NA,1\n1,{name},{name},2,NaN\n")
    data = Dataset.from_csv(path, time="t", run="id", group="cell", outputs=["p"], inputs=["u"])
    assert (data.names, data.groups) == ((name,), (name,))
    np.testing.assert_array_equal(data.runs[0].y[:, 0], [NAN, 2])
    np.testing.assert_array_equal(data.runs[0].w, [[1], [1]])


OFFSET, NAIVE = "2024-01-01T00:00:00+01:00", "2024-01-01T00:00:01"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (OFFSET, NAIVE),
        (NAIVE, OFFSET),
        ("2024-01-01 00:00:00Z", "2024-01-01 00:00:01"),
        ("2024-01-01T00:00:00-0500", "2024-01-02"),
        ("20240101T000000Z", "20240101T000001"),
    ],
)
def test_timestamps_with_and_without_offset_are_refused(tmp_path, one, other):
    path = written(tmp_path, f"t,p\n{one},1\n\n{other},2\n{other},3\n")
    with pytest.raises(ValueError, match="column 't' has timestamps with an offset from UTC") as refusal:
        Dataset.from_csv(path, outputs=["p"])
    assert f"'{one}' in line 2" in str(refusal.value)
    assert f"'{other}' in line 4" in str(refusal.value)


def test_timestamps_with_and_without_offset_in_two_files(tmp_path):
    (tmp_path / "a.csv").write_text(f"t,id,p\n{OFFSET},x,1\n2024-01-01T00:00:02+01:00,x,2\n")
    (tmp_path / "b.csv").write_text("t,id,p\n2024-01-02,x,1\n2024-01-03,x,2\n")
    with pytest.raises(ValueError, match="with an offset from UTC in one file and without in another"):
        load_dataset("*.csv", folder=tmp_path, run="id", outputs=["p"])
    (tmp_path / "b.csv").write_text("t,id,p\n2024-01-02,y,1\n2024-01-03,y,2\n")  # another run may
    assert load_dataset("*.csv", folder=tmp_path, run="id", outputs=["p"]).names == ("x", "y")


@pytest.mark.parametrize("name", ["group of the row", "nothing measured", "row", "index", "level_0", "time"])
def test_columns_of_any_name_keep_their_values(name):
    values = [1.5, 2.5, 3.5]
    frame = pd.DataFrame({"t": [0.0, 1.0, 2.0], "cell": "B5", "other": [7.0, 8.0, 9.0], name: values})
    for options in ({}, {"max_step": 1.0}, {"join": True}):
        arguments = {"outputs": [name], "inputs": ["other"], "x0": [name], "group": "cell", **options}
        run = load_dataset(frame, **arguments).runs[0]
        np.testing.assert_array_equal(run.y[:, 0], values)
        np.testing.assert_array_equal(run.x0, values[:1])
        assert run.group == "B5"
        run = load_dataset(frame, **arguments | {"outputs": ["other"], "inputs": [name]}).runs[0]
        np.testing.assert_array_equal(run.w, np.array(values)[:, None])
    only_inputs = load_dataset(frame, outputs=[], inputs=[name])
    np.testing.assert_array_equal(only_inputs.runs[0].w, np.array(values)[:, None])
    np.testing.assert_array_equal(only_inputs.runs[0].y, np.zeros((3, 1)))


BAD_NAMES = ["a\x00b", "a\nb", "\x1b[31m", "a\ud800", "\ufffe", "x" * 201, " "]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_names_that_no_file_can_hold_are_refused(name):
    names = pd.Series([name, name], dtype=object)
    frame = pd.DataFrame({"t": [0.0, 1.0], "id": names, "p": [1.0, 2.0]})
    with pytest.raises(ValueError, match="run: column 'id': "):
        load_dataset(frame, run="id", outputs=["p"])
    with pytest.raises(ValueError, match="group: "):
        load_dataset(frame, group="id", outputs=["p"])
    for argument in ("outputs", "inputs", "x0"):
        with pytest.raises(ValueError, match=f"{argument}: "):
            load_dataset(frame, **{"outputs": ["p"], argument: [name]})
    with pytest.raises(ValueError, match="outputs: "):
        load_dataset(frame, outputs=["p"], columns={"p": name})
    with pytest.raises(ValueError, match="time: "):
        load_dataset(frame, outputs=["p"], time=name)
    arrays = {"ts": [0.0, 1.0], "ys": [[1.0, 2.0]]}
    for argument, where in (("names", "name of a run"), ("groups", "group of run '0'"), ("output_names",) * 2):
        with pytest.raises(ValueError, match=f"{where}: "):
            Dataset.from_arrays(**arrays, **{argument: [name]})
    assert load_dataset(frame, outputs=["p"]).names == ("0",)  # what is not used does not matter


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
