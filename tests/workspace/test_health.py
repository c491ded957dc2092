"""`twinfold monitor` with a health: capacity and remaining life run by run, a fade while healthy, and resuming."""

import csv
import shutil
from typing import Any

import numpy as np
import pytest

import twinfold as tw
from twinfold.workspace import fit_workspace, load_fitted, open_workspace
from twinfold.workspace._config import MonitorConfig
from twinfold.workspace._health import compared
from twinfold.workspace._monitor import monitor_workspace

TS = np.linspace(0.0, 4.0, 41)
NOISE = 0.002
SYSTEM = """import twinfold as tw

def twin():
    field = lambda x, p: -x / p["tau"]
    return tw.Twin(field, params={"tau": tw.Unknown(1.0, positive=True)}, integrator=tw.RK4())

def half_life(twin, p):
    return 0.6931471805599453 * p["tau"]
"""
SETTINGS = ["monitor.health=half_life", "monitor.estimate=tau", 'monitor.threshold="80%"']


def write_runs(path, taus, *, first=0, seed=0):
    """Runs of x' = -x / tau with noise, named in their order."""
    rng = np.random.default_rng(seed)
    rows = [
        {"run": f"r{first + k:03d}", "t": t, "x": x}
        for k, tau in enumerate(taus)
        for t, x in zip(TS, np.exp(-TS / tau) + NOISE * rng.normal(size=len(TS)) * (TS > 0), strict=True)
    ]
    tw.io.write_csv(path, rows)
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("health")
    (folder / "system.py").write_text(SYSTEM)
    write_runs(folder / "train.csv", np.full(4, 1.5), seed=9)
    (folder / "twinfold.toml").write_text(
        '[data]\nfiles = ["train.csv"]\nrun = "run"\noutputs = ["x"]\n[fit]\nseeds = 1\nlm_steps = 10\n'
        '[run]\nfolder = "runs/a"\n'
    )
    assert fit_workspace(open_workspace(folder), progress=False).metrics["twin"]["train"]["rmse"] < 2 * NOISE
    write_runs(folder / "healthy.csv", np.full(10, 1.5), seed=1)
    write_runs(folder / "fading.csv", 1.5 - 0.02 * np.arange(10), seed=1)
    write_runs(folder / "new.csv", 1.5 - 0.01 * np.arange(1, 16), first=10, seed=2)
    write_runs(folder / "more.csv", 1.5 - 0.01 * np.arange(1, 26), first=10, seed=2)
    return folder


def watched(folder, out, new, settings=SETTINGS, **options) -> tuple[Any, list[dict[str, Any]]]:
    workspace = open_workspace(folder, settings)
    options = {"healthy": [str(folder / "healthy.csv")], "window": 20} | options
    verdict = monitor_workspace(workspace, load_fitted(workspace), [str(folder / new)], folder=out, **options)
    table = out / "life.csv"
    if not table.exists():
        return verdict, []
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = ("health", "error", "remaining", "low", "high")
    return verdict, [row | {name: float(row[name] or "nan") for name in numbers} for row in rows]


def test_health_and_remaining_life_of_every_run(folder, tmp_path):
    verdict, rows = watched(folder, tmp_path, "new.csv")
    assert [row["run"] for row in rows] == [f"r{k:03d}" for k in range(25)]
    true = np.log(2) * np.concatenate([np.full(10, 1.5), 1.5 - 0.01 * np.arange(1, 16)])
    health, error = (np.array([row[name] for row in rows]) for name in ("health", "error"))
    np.testing.assert_allclose(health, true, atol=5e-3)
    assert 0.5 < np.sqrt(np.mean(((health - true) / error) ** 2)) < 2
    # 80 % of 1.5 is 1.2, after 30 fading runs: 15 remain.
    assert rows[-1]["low"] <= 15 <= rows[-1]["high"]
    assert "half_life in run 'r024'" in verdict.message
    assert "until it stays beyond 0.83" in verdict.message
    assert "fades while it counts as healthy" not in verdict.message
    assert (tmp_path / "life.png").stat().st_size > 5000


def test_a_unit_that_fades_while_it_counts_as_healthy_is_noticed(folder, tmp_path):
    verdict, _ = watched(folder, tmp_path, "new.csv", healthy=[str(folder / "fading.csv")])
    assert "half_life: The unit fades while it counts as healthy: the health falls by 0.12" in verdict.message


@pytest.mark.slow
def test_resumed_it_is_as_if_called_once(folder, tmp_path):
    _, rows = watched(folder, tmp_path / "once", "more.csv")
    watched(folder, tmp_path / "twice", "new.csv")
    shutil.copy(folder / "more.csv", tmp_path / "more.csv")
    verdict, resumed = watched(folder, tmp_path / "twice", "more.csv", resume=True)
    assert len(resumed) == 35
    for one, other in zip(rows, resumed, strict=True):
        np.testing.assert_allclose(other["health"], one["health"], rtol=1e-6)
        assert other["run"] == one["run"]
        assert other["remaining"] == pytest.approx(one["remaining"], abs=1, nan_ok=True)
    assert "in run 'r034'" in verdict.message
    changed = [*SETTINGS[:2], "monitor.threshold=0.9"]
    with pytest.raises(ValueError, match="have changed since the state was saved"):
        watched(folder, tmp_path / "twice", "more.csv", changed, resume=True)


def test_any_threshold_also_one_that_has_been_passed(folder, tmp_path):
    settings = ["monitor.health=tau", "monitor.threshold=1.4"]
    verdict, rows = watched(folder, tmp_path, "new.csv", settings)
    assert rows[-1]["remaining"] == 0.0
    assert "Its life has ended: the threshold was passed at cycle 2" in verdict.message
    assert watched(folder, tmp_path / "none", "new.csv", [])[1] == []


def test_only_the_chosen_outputs_are_compared():
    y = np.stack([TS, TS + 1], axis=1)
    data = tw.Dataset.from_arrays(TS, [y], output_names=["a", "b"])
    left = compared(data, MonitorConfig(outputs=("a",))).runs[0].y
    np.testing.assert_array_equal(left[:, 0], y[:, 0])
    assert left[0, 1] == 1.0
    assert np.isnan(left[1:, 1]).all()
    assert compared(data, MonitorConfig()) is data


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["monitor.health=tau"], r"monitor\.health needs monitor\.threshold"),
        (
            ["monitor.health=charge", "monitor.threshold=1"],
            r"monitor\.health is 'charge'; it must be in monitor\.estim",
        ),
        (["monitor.health=half_life", "monitor.threshold=1"], r"monitor\.estimate is empty"),
        ([*SETTINGS[:1], "monitor.threshold=1", "monitor.estimate=tua"], r"no parameter 'tua'"),
        ([*SETTINGS, "monitor.outputs=y"], r"monitor\.outputs: there is no output 'y'"),
        ([*SETTINGS[:2], "monitor.threshold=2.0"], "has already passed the threshold 2"),
        ([*SETTINGS[:2], "monitor.threshold=most"], r"monitor\.threshold is 'most'"),
    ],
)
def test_settings_that_cannot_be_are_refused(folder, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        watched(folder, tmp_path, "new.csv", settings)
