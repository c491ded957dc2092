"""Alarms and pages of a fleet: the sick assets are found, the healthy ones are not, and the pages hold all of them."""

import json
import math

import numpy as np
import pandas as pd
import pytest

import twinfold as tw
from twinfold.fleet import monitor_fleet, read_fleet, report_fleet
from twinfold.fleet._fit import TABLES
from twinfold.fleet._results import write_table

HEALTHY, PERIODS = 3, 6


def synthetic(folder, assets, drifting=(), noisy=(), wearing=()):
    """Tables as `fit_fleet` writes them: k with an error of 1 %, a residual of size 0.01."""
    rng = np.random.default_rng(0)
    rows = []
    for index in range(assets):
        name, own = f"asset {index:05d}", rng.normal() * 0.1
        for period in range(PERIODS):
            change = own + 0.01 * rng.normal() + (0.3 if index in drifting and period >= HEALTHY else 0.0)
            change -= 0.05 * period if index in wearing else 0.0
            size = 0.01 * math.exp(0.1 * rng.normal()) * (4 if index in noisy and period >= HEALTHY else 1)
            numbers = {"value:k": math.exp(change), "error:k": 0.01, "change:k": change, "rms:x": size}
            keys = {"asset": name, "period": period, "from": float(period), "to": period + 0.9, "samples": 10}
            rest = {"score": size, "correlation": 1.0, "reason": "", "digest": f"{index}-{period}"}
            rows.append(keys | rest | numbers | {"mean:x": 0.003 * rng.normal()})
    half = len(rows) // 2 // PERIODS * PERIODS
    about = {"labels": ["k"], "outputs": ["x"], "failures": {}, "settings": "s"}
    for name, part in (("one", rows[:half]), ("two", rows[half:])):
        write_table(folder / TABLES / f"{name}.parquet", part, about | {"signature": name}, list(rows[0]))
    return folder


def test_sick_assets_are_found_and_the_rate_of_false_alarms_is_kept(tmp_path):
    out = synthetic(tmp_path, 1000, drifting=(3, 700), noisy=(11,))
    found = monitor_fleet(out, healthy=HEALTHY, false_alarm_rate=0.001)
    assert found.assets == 1000
    assert {"asset 00003", "asset 00700", "asset 00011"} <= {name for name, _ in found.worst}
    assert found.alarms - 3 <= 5  # one is expected
    rows = read_fleet(out, "monitor").set_index("asset")
    assert rows.loc["asset 00003", "changed"] == "k.change"
    assert rows.loc["asset 00011", "changed"] == "x.size"
    assert rows.loc["asset 00003", "first_alarm"] == HEALTHY
    before = {path.name: path.stat().st_mtime_ns for path in (out / "monitor").iterdir()}
    monitor_fleet(out, healthy=HEALTHY, false_alarm_rate=0.001)
    assert {path.name: path.stat().st_mtime_ns for path in (out / "monitor").iterdir()} == before


def test_remaining_life_follows_the_wear(tmp_path):
    """exp(-0.05 n) reaches 0.6 of its first value after ln(1/0.6) / 0.05 = 10.2 periods; 5 have passed."""
    out = synthetic(tmp_path, 20, wearing=(4,))
    first = read_fleet(out).query("asset == 'asset 00004'")["value:k"].iloc[0]
    monitor_fleet(out, healthy=1, health="k", threshold=0.6 * first)
    row = read_fleet(out, "monitor").set_index("asset").loc["asset 00004"]
    assert row["low"] <= 5.2 <= row["high"]
    assert 2 <= row["remaining"] <= 10
    with pytest.raises(ValueError, match="no scalar 'q'"):
        monitor_fleet(out, health="q", threshold=1.0)
    with pytest.raises(ValueError, match="both health and threshold"):
        monitor_fleet(out, health="k")


def test_pages_hold_every_asset_and_few_rows(tmp_path):
    out = synthetic(tmp_path, 1000, drifting=(3,))
    monitor_fleet(out, healthy=HEALTHY)
    page = report_fleet(out, title="<b>Cells</b>")
    text = page.read_text()
    assert "&lt;b&gt;Cells" in text
    assert len(text) < 100_000
    assert "http" not in text.replace("http://www.w3.org", "")  # offline
    script = (page.parent / "data" / "assets.js").read_text()
    rows = json.loads(script.removeprefix("fleetAssets(").removesuffix(");\n"))
    assert len(rows) == 1000
    assert rows[0][0] == "asset 00003"
    assert rows[0][4] == 1
    data = (page.parent / "data" / f"{rows[0][1]}.js").read_text()
    number, _, stored = data.removeprefix("fleetData(").removesuffix(");\n").partition(", ")
    asset = json.loads(stored)["assets"]["asset 00003"]
    assert int(number) == rows[0][1]
    assert len(asset["rows"]) == PERIODS
    assert asset["alarm"]["alarm"] is True


def test_commands(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from twinfold.cli import app

    def call(*arguments: str):
        result = CliRunner().invoke(app, ["fleet", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    monkeypatch.chdir(synthetic(tmp_path, 50, drifting=(3,)))
    assert call("monitor", ".", "--healthy", "3", "-q").exit_code == 1
    result = call("report", ".")
    assert result.exit_code == 0
    assert (tmp_path / "report" / "index.html").exists()
    assert call("monitor", "nowhere").exit_code == 2


@pytest.mark.slow
def test_a_fleet_of_a_project(tmp_path, monkeypatch):
    """From a fitted project to alarms, through the commands; a bad file is named and the exit code says so."""
    from typer.testing import CliRunner

    from twinfold.cli import app

    def call(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, list(arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    tw.workspace.new_project(tmp_path / "plant", template="tank")
    monkeypatch.chdir(tmp_path / "plant")
    call("fit", "--set", "fit.seeds=1", "--set", "fit.adam_epochs=5", "--set", "fit.lm_steps=5", "-q")
    (file,) = (tmp_path / "plant" / "data").glob("*.csv")
    table, cells = pd.read_csv(file), tmp_path / "tanks"
    cells.mkdir()
    for name, runs in (("one", (1, 2)), ("two", (3, 4))):
        table[table["run"].isin(runs)].to_csv(cells / f"{name}.csv", index=False)
    options = ["--asset", "run", "--workers", "2", "--lanes", "4", "-q"]
    code, text = call("fleet", "fit", str(cells), *options)
    assert code == 0, text
    assert "4 assets in 2 partitions: 4 estimates" in text
    pd.DataFrame({"run": ["bad"], "t": [0.0]}).to_csv(cells / "bad.csv", index=False)
    code, text = call("fleet", "fit", str(cells), *options)
    assert code == 1
    assert "5 assets in 3 partitions: 0 estimates" in text
    rows = read_fleet("runs/fleet").set_index("asset")
    assert rows.loc["bad", "reason"]
    assert call("fleet", "report")[0] == 0
