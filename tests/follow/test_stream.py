"""Lines in, rows out: whatever the lines contain, and wherever the process ends."""

import contextlib
import csv
import dataclasses
import io
import json
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import twinfold as tw
from twinfold.cli import app
from twinfold.follow import InnovationAlarms, _lines, _state_file
from twinfold.follow._lines import Line, split_lines
from twinfold.follow._samples import SampleLayout, SampleReader
from twinfold.workspace import Config, _follow

SYSTEM = """
import jax.numpy as jnp
import twinfold as tw

STATES = ["position", "velocity"]


def twin():
    return tw.Twin(
        lambda x, w, p: jnp.stack([x[1], w[0] - p["k"] * x[0]]),
        params={"k": tw.Unknown(2.0, positive=True)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.append(y, 0.0),
        integrator=tw.Midpoint(),
    )
"""
TOML = """
[data]
files = ["nothing.csv"]
outputs = ["y"]
inputs = ["u"]
group = "asset"

[follow]
process = {position = 0.0, velocity = 0.1}
measurement = 0.05
drift = {k = 0.01}
spread = {k = 0.1}
std = {position = 0.05, velocity = 0.5}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with a model that was not fitted: its training data do not exist, and are not needed."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(TOML)
    workspace = tw.workspace.open_workspace(folder)
    system = workspace.load_system()
    info = tw.ModelInfo(
        states=("position", "velocity"),
        inputs=("u",),
        outputs=("y",),
        dt=0.1,
        config=workspace.config.tables(),
        system_source_sha256=system.sha256,
    )
    (folder / "runs/first").mkdir(parents=True)
    tw.save_model(folder / "runs/first/model.twin", system.twin, about=info)
    return folder


@pytest.fixture(autouse=True)
def compiled_once(monkeypatch, prepared):
    """Commands with the same settings share their compiled fleet, emptied: a process of its own compiles once, too."""
    original = _follow.prepare

    def prepare(workspace, fitted, folder, *, run, log):
        key = workspace.config.follow.model_copy(update={"max_assets": 1}).model_dump_json()
        if key not in prepared:
            prepared[key] = original(workspace, fitted, folder, run=run, log=log)
        found = prepared[key]
        found.fleet.restore([], {}, 1)
        alarms = InnovationAlarms(["y"], window=found.alarms.window, gate=workspace.config.follow.gate)
        return dataclasses.replace(found, alarms=alarms)

    monkeypatch.setattr(_follow, "prepare", prepare)


@pytest.fixture(scope="module")
def prepared():
    return {}


def samples(assets, length, wild=()):
    rng = np.random.default_rng(0)
    for k in range(length):
        for asset in assets:
            y = np.cos(0.1 * k) + 0.05 * rng.normal() + (5.0 if (asset, k) in wild else 0.0)
            yield asset, 0.1 * k, np.cos(0.1 * k), y


def as_csv(rows):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("asset", "t", "u", "y"), *rows])
    return text.getvalue()


def run(project, *arguments, given=None):
    return CliRunner().invoke(app, ["follow", "-C", str(project), *map(str, arguments)], input=given)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_log_and_standard_input_give_the_same_rows(project, tmp_path):
    """As CSV and as JSON lines, into CSV, JSON lines and Parquet."""
    given = list(samples(["a", "b"], 30, wild=[("a", 9)]))
    (tmp_path / "log.csv").write_text(as_csv(given))
    lines = "".join(json.dumps(dict(zip(("asset", "t", "u", "y"), row, strict=True))) + "\n" for row in given)
    (tmp_path / "log.jsonl").write_text(lines)
    done = run(project, tmp_path / "log.csv", "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.stderr
    assert "60 samples of 2 assets, 0 alarms" in done.stderr
    whole = rows_of((tmp_path / "out.csv").read_text())
    assert [row["asset"] for row in whole[:2]] == ["a", "b"]
    assert len(whole) == 60
    wild = whole[18]
    assert wild["y accepted"] == "false"
    assert "outlier" in wild["message"]
    assert float(wild["y low"]) < float(wild["y predicted"]) < float(wild["y high"])
    assert abs(float(whole[-1]["velocity estimate"]) + np.sin(2.9)) < 0.3
    assert 0 < float(whole[-1]["parameter k std"]) < 0.2
    piped = run(project, given=(tmp_path / "log.jsonl").read_text())
    assert piped.exit_code == 0, piped.stderr
    assert sorted(map(str, rows_of(piped.stdout))) == sorted(map(str, whole))
    done = run(project, tmp_path / "log.jsonl", "--out", tmp_path / "out.jsonl")
    assert done.exit_code == 0, done.stderr
    objects = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert objects[18]["y accepted"] is False
    assert objects[18]["score"] is None  # before the first window is complete
    import pandas as pd

    done = run(project, tmp_path / "log.csv", "--out", tmp_path / "out.parquet")
    assert done.exit_code == 0, done.stderr
    table = pd.read_parquet(tmp_path / "out.parquet")
    np.testing.assert_array_equal(table["position estimate"], [each["position estimate"] for each in objects])
    assert table["alarm"].dtype == bool


def test_an_alarm_is_raised_and_is_the_exit_code(project, tmp_path):
    given = [(asset, t, u, y + (0.6 * np.sin(7 * t) if t > 4 and asset == "=sick\"" else 0.0)) for asset, t, u, y in
             samples(["well", '=sick"'], 120)]  # fmt: skip
    done = run(project, "--set", "follow.gate=1e-9", given=as_csv(given))
    assert done.exit_code == 1, done.stderr
    assert "ALARM: asset '=sick\"'" in done.stderr
    assert "'well'" not in done.stderr
    raised = [row for row in rows_of(done.stdout) if row["alarm"] == "true"]
    assert {row["asset"] for row in raised} == {'=sick"'}
    assert float(raised[0]["t"]) > 4
    assert float(raised[0]["score"]) > float(raised[0]["limit"])


HOSTILE = b"\n".join(
    [
        b"\x00\xff\xfe garbage before the header",
        b"asset,t,u,y,colour",
        b"a,0,0,1,red",
        b"a,0.1,0,1",  # a cell is missing
        b"a,0.1,0,0.99,red,more",
        b"a,zero,0,0.99,red",
        b"a,,0,0.99,red",
        b"a,0.1,0,broken,red",  # taken as missing
        b"a,0.2,0,1_0,red",
        b"\xff\xfe\x00\x01binary",
        b"a" * 100_000,
        b"a" * (3 * 2**16) + b",0.2,0,1,red",
        b"",
        b"asset,t,u,y,colour",  # the logger was restarted
        b"a,0.1,0,0.98,red",  # back in time
        b"a,0.3,NaN,0.97,red",
        b"a,0.4,0,1e308,red",
        b"a,0.5,0,-inf,red",
        b"a,1e999,0,1,red",
        b"\x1b[31m,0.5,0,1,red",
        b"<script>alert(1)</script>,0.5,0,1,red",
        b"x" * 300 + b",0.5,0,1,red",
        b'"../../etc/passwd",0.5,0,1,red',
        b"a,0.6,0,0.9,red",
    ]
)


def test_hostile_lines_are_reported_by_number_and_contained(project):
    done = run(project, given=HOSTILE)
    assert done.exit_code == 0, done.stderr
    said = done.stderr
    for number, words in {
        1: "not text in UTF-8",
        4: "4 cells, the header has 5",
        5: "6 cells",
        6: "t: zero is not a time",
        7: "the time is missing",
        8: "y: broken is not a number: taken as missing",
        9: "1_0 is not a number",
        10: "not text",
        11: "longer than 65536 bytes",
        12: "longer than 65536 bytes",
        19: "the time is missing",
        20: "control characters",
        22: "too long",
    }.items():
        assert f"line {number}: " in said, number
        assert words in next(line for line in said.splitlines() if line.startswith(f"line {number}: "))
    assert "\x1b" not in said
    assert "Columns that are not used: colour." in said
    rows = rows_of(done.stdout)
    mine = {row["t"]: row for row in rows if row["asset"] == "a"}
    assert len([row for row in rows if row["asset"] == "a"]) == 8
    assert {row["asset"] for row in rows} == {"a", "<script>alert(1)</script>", "../../etc/passwd"}
    assert mine["0.3"]["message"] == "A missing input was held at its last value."
    assert mine["0.4"]["y accepted"] == mine["0.5"]["y accepted"] == "false"
    assert mine["0.6"]["ok"] == "true"
    assert abs(float(mine["0.6"]["position estimate"]) - 0.9) < 0.2
    assert "10 samples of 3 assets" in said


def test_hostile_json(project):
    lines = [
        '{"t": 0, "u": 0, "y": 1, "asset": "a"}',
        "[" * 5000,
        '{"t": 1' + "0" * 5000 + ', "u": 0, "y": 1}',
        "[1, 2]",
        '{"t": 0.1, "u": 0, "y": {"deep": 1}, "asset": "a"}',
        '{"t": 0.2, "u": 0, "y": true, "asset": ["a"]}',
        '{"t": "2024-05-01T12:00:00Z", "u": 0, "y": "1.5", "asset": 7}',
        '{"t": 0.3, "u": null, "y": null, "asset": "a", "__proto__": 1}',
        '{"t": 0.4, "u": 0, "y": NaN, "asset": "a"}',
    ]
    done = run(project, "--format", "jsonl", given="\n".join(lines))
    assert done.exit_code == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["asset"], row["t"]) for row in rows if row["asset"] == "7"] == [("7", 1714564800.0)]
    assert [row["t"] for row in rows if row["asset"] == "a"] == [0.0, 0.1, 0.3, 0.4]
    for number in (2, 3, 4, 6):
        assert f"line {number}: " in done.stderr


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "no header"),
        ("a,b\n1,2\n", "line 1: no header with the column 't'"),
        ("t,y\n0,1\n", "no column for the input u"),
        ("t,u,u,y\n0,1,1,1\n", "two columns u"),
    ],
)
def test_a_stream_that_cannot_be_understood_is_refused(project, given, words):
    done = run(project, given=given)
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("follow.drift={q=1.0}", "no parameter 'q'; there are: k"),
        ("follow.process={position=1.0}", "no value for velocity"),
        ("follow.measurement={z=1.0}", "there is no 'z'"),
        ("follow.measurement=0", "follow.measurement"),
        ("follow.gate=2", "follow.gate"),
        ("follow.x0=[1.0]", "follow.x0 has 1 values"),
        ("follow.process=estimate", "cannot be read"),
    ],
)
def test_wrong_settings_are_named(project, change, words):
    done = run(project, "--set", change, given="t,u,y\n0,0,1\n")
    assert done.exit_code == 2
    assert words in done.stderr


def test_more_assets_than_allowed_are_left_out(project):
    done = run(project, "--set", "follow.max_assets=2", given=as_csv(samples(["a", "b", "c"], 3)))
    assert {row["asset"] for row in rows_of(done.stdout)} == {"a", "b"}
    assert "asset 'c': left out" in done.stderr
    assert done.exit_code == 0


def test_resumed_bit_for_bit(project, tmp_path):
    """In two pieces, from the log and from standard input; and after a crash that left half a row."""
    given = as_csv(samples(["a", "b"], 40))
    log, state, out = tmp_path / "log.csv", tmp_path / "one.state", tmp_path / "out.csv"
    log.write_text(given)
    assert run(project, log, "--out", tmp_path / "whole.csv").exit_code == 0
    whole = (tmp_path / "whole.csv").read_text()

    lines = given.splitlines(keepends=True)
    log.write_text("".join(lines[:35]))
    assert run(project, log, "--out", out, "--state", state).exit_code == 0
    log.write_text(given)
    with out.open("a") as file:
        file.write("a,3.0,half a r")
    done = run(project, log, "--out", out, "--state", state)
    assert "Resumed from" in done.stderr
    assert "Continuing after line 35" in done.stderr
    assert sorted(out.read_text().splitlines()) == sorted(whole.splitlines())

    first = run(project, "--state", tmp_path / "two.state", given="".join(lines[:50]))
    second = run(project, "--state", tmp_path / "two.state", given=lines[0] + "".join(lines[50:]))
    assert "is missing" in second.stderr
    both = rows_of(first.stdout) + rows_of(second.stdout)
    assert sorted(map(str, both)) == sorted(map(str, rows_of(whole)))

    # A state of something else is refused and kept.
    before = state.read_bytes()
    refused = run(project, log, "--state", state, "--set", "follow.gate=1e-3", "--out", out)
    assert refused.exit_code == 2
    assert "another model or other settings" in refused.stderr
    assert state.read_bytes() == before
    state.write_bytes(before[: len(before) // 2])
    damaged = run(project, log, "--state", state, "--out", out)
    assert damaged.exit_code == 2
    assert "damaged" in damaged.stderr


def test_a_page(project, tmp_path):
    names = ["a", "<img src=x onerror=alert(1)>"]
    done = run(project, "--page", tmp_path / "page", given=as_csv(samples(names, 25)))
    assert done.exit_code == 0, done.stderr
    page = (tmp_path / "page" / "index.html").read_text()
    assert "50 samples of 2 assets" in page
    assert "&lt;img src=x" in page
    assert "<img src=x" not in page


def test_a_model_file_without_its_configuration(project, tmp_path):
    """A model file and its system.py are enough."""
    (tmp_path / "system.py").write_text(SYSTEM)
    (tmp_path / "elsewhere.twin").write_bytes((project / "runs/first/model.twin").read_bytes())
    given = as_csv(samples(["a"], 5))
    done = CliRunner().invoke(
        app, ["follow", "-C", str(tmp_path), "--model", str(tmp_path / "elsewhere.twin")], input=given
    )
    assert done.exit_code == 0, done.stderr
    assert rows_of(done.stdout) == rows_of(run(project, given=given).stdout)


def test_lines_across_blocks():
    content = b"one\r\ntwo\n" + b"x" * (_lines.MAX_LINE + 5) + b"\nfour\nlast"
    for size in (1, 7, 1000, 10**6):
        blocks = (content[k : k + size] for k in range(0, len(content), size))
        found = [line for part in split_lines(blocks) for line in part]
        assert [line.number for line in found] == [1, 2, 3, 4, 5]
        assert [found[k].content for k in (0, 1, 3, 4)] == [b"one", b"two", b"four", b"last"]
        assert [line.too_long for line in found] == [False, False, True, False, False]


def test_units_and_missing_values():
    layout = SampleLayout(
        "t", ("u",), ("y",), columns={"y": "Y [mm]"}, scale={"y": 1e-3}, offset={"y": 1.0}, missing=[-999]
    )
    reader = SampleReader(layout)
    assert reader.begin(Line(1, b'"t","u","Y [mm]"', False)) == ""
    assert reader.read(Line(2, b"0,1, 500 ", False))[0] == (2, "plant", 0.0, (1.0,), (1.5,))
    sample, complaint = reader.read(Line(3, b"1,-999.0,-999", False))
    assert complaint == ""
    assert sample is not None
    assert np.isnan(sample.w + sample.y).all()


def test_the_configuration_round_trips():
    tables = {"data": {"files": ["a"], "outputs": ["y"]}, "follow": {"process": {"x": 0.1}, "drift": {"k": 0.1}}}
    config = Config.model_validate(tables)
    assert config.follow.process == {"x": 0.1}
    assert tw.workspace._config.parse_config(config.toml()) == config


@pytest.mark.slow
def test_after_kill_9_less_than_a_second_is_missing(project, tmp_path):
    state = tmp_path / "live.state"
    command = [sys.executable, "-m", "twinfold", "follow", "-C", str(project), "--state", str(state)]
    with (tmp_path / "rows.csv").open("wb") as rows:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=rows, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    process.stdin.write(b"t,u,y\n")
    sent, began = 0, time.monotonic()
    while sent < 400:
        process.stdin.write(f"{0.1 * sent},0,{np.cos(0.14 * sent)}\n".encode())
        process.stdin.flush()
        sent += 1
        time.sleep(0.01)
        while sent == 1 and (tmp_path / "rows.csv").read_bytes().count(b"\n") < 2:
            time.sleep(0.1)  # it compiles
            began = time.monotonic()
    rate = sent / (time.monotonic() - began)
    process.kill()
    process.wait()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    found = _state_file.read_state(state)
    assert found is not None
    assert 0 < sent - found[0]["samples"] <= 1.0 * rate
    assert np.isclose(found[1]["belief.t"][0], 0.1 * (found[0]["samples"] - 1))
