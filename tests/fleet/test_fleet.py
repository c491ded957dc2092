"""A fleet on disk: read in any layout, resumed, brought up to date; what is broken is named and the rest goes on."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import twinfold as tw
from twinfold.fleet import fit_fleet, read_fleet

TWIN = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.8, positive=True)})
OPTIONS: dict[str, Any] = {"outputs": ["x"], "lanes": 4}
RATES = {"a": 0.4, "b": 0.7, "c": 1.1, "d": 0.9, "e": 0.5}


def table(k: float, until: float = 3.0, start: float = 0.0) -> pd.DataFrame:
    ts = np.round(np.arange(start, until, 0.1), 10)
    return pd.DataFrame({"t": ts, "x": np.exp(-k * ts)})


def values(out) -> dict[str, float]:
    found = read_fleet(out)
    return dict(zip(found["asset"], found["value:k"], strict=True))


def write_csv(folder, rates=RATES):
    folder.mkdir(exist_ok=True)
    for name, k in rates.items():
        table(k).to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["csv", "hive", "days", "many"])
def test_every_layout_gives_the_same_estimates(layout, tmp_path):
    folder = tmp_path / "fleet"
    options: dict[str, Any] = {}
    if layout == "csv":
        write_csv(folder)
    for name, k in RATES.items():
        if layout == "hive":
            (folder / f"asset={name}").mkdir(parents=True)
            table(k).to_parquet(folder / f"asset={name}" / "part.parquet")
        if layout == "days":  # the later one first by name
            (folder / name).mkdir(parents=True)
            table(k, start=1.5).to_csv(folder / name / "1.csv", index=False)
            table(k, until=1.5).to_csv(folder / name / "2.csv", index=False)
    if layout == "many":
        folder.mkdir()
        options = {"asset": "id"}
        for file, names in (("one", "abc"), ("two", "de")):
            rows = [table(RATES[name]).assign(id=name) for name in names]
            pd.concat(rows).sample(frac=1, random_state=0).to_parquet(folder / f"{file}.parquet")
    done = fit_fleet(TWIN, folder, tmp_path / "out", **OPTIONS, **options, partition=2)
    assert (done.assets, done.failed, done.failures) == (5, 0, {})
    assert done.padding < 0.2
    assert values(tmp_path / "out") == pytest.approx(RATES, rel=1e-5)


def test_what_is_broken_is_named_and_the_rest_goes_on(tmp_path):
    folder = tmp_path / "fleet"
    folder.mkdir()
    for name in ("good", "truncated"):
        pd.concat([table(k).assign(id=f"{name}-{k}") for k in (0.4, 0.7)]).to_parquet(folder / f"{name}.parquet")
    whole = (folder / "truncated.parquet").read_bytes()
    (folder / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    table(0.5).rename(columns={"x": "y"}).assign(id="other").to_parquet(folder / "schema.parquet")
    table(0.5).to_parquet(folder / "nameless.parquet")
    nothing = table(0.5).assign(id="nothing", x=np.nan)
    text = table(0.5).assign(id="text", x="?")
    pd.concat([nothing, table(0.9).assign(id="fine")]).to_parquet(folder / "partly.parquet")
    text.to_parquet(folder / "text.parquet")
    lines = []
    done = fit_fleet(TWIN, folder, tmp_path / "out", asset="id", **OPTIONS, log=lines.append)
    assert {name.rsplit("/", 1)[-1] for name in done.failures} == {"truncated.parquet", "nameless.parquet"}
    assert any("nameless.parquet" in line and "no column 'id'" in line for line in lines)
    rows = read_fleet(tmp_path / "out").set_index("asset")
    assert rows.loc[["good-0.4", "good-0.7", "fine"], "value:k"].tolist() == pytest.approx([0.4, 0.7, 0.9], rel=1e-5)
    assert "no measured value" in rows.loc["nothing", "reason"]
    assert "'x'" in rows.loc["other", "reason"]
    assert rows.loc["text", "reason"]
    assert done.failed == 3


def test_new_data_update_only_what_they_change(tmp_path):
    folder, out = write_csv(tmp_path / "fleet"), tmp_path / "out"
    first = fit_fleet(TWIN, folder, out, **OPTIONS, partition=2)
    assert (first.estimated, first.current) == (5, 0)
    stored = {path.name for path in (out / "fit").iterdir()}
    again = fit_fleet(TWIN, folder, out, **OPTIONS, partition=2)
    assert (again.estimated, again.current) == (0, again.partitions)
    assert again.assets == 5
    table(1.3).to_csv(folder / "b.csv", index=False)
    table(0.6).to_csv(folder / "f.csv", index=False)
    (folder / "e.csv").unlink()
    update = fit_fleet(TWIN, folder, out, **OPTIONS, partition=2)
    assert update.estimated == 2
    assert values(out) == pytest.approx({"a": 0.4, "b": 1.3, "c": 1.1, "d": 0.9, "f": 0.6}, rel=1e-5)
    write_csv(folder)
    (folder / "f.csv").unlink()
    fit_fleet(TWIN, folder, out, **OPTIONS, partition=2)
    assert {path.name for path in (out / "fit").iterdir()} == stored
    assert values(out) == pytest.approx(RATES, rel=1e-5)
    with pytest.raises(ValueError, match="give another folder"):
        fit_fleet(TWIN, tmp_path, out, **OPTIONS)


@pytest.mark.slow
def test_periods_show_drift_and_only_new_ones_are_estimated(tmp_path):
    """A rate that grows from span to span; the tail of a span that has not ended is estimated again."""
    ts = np.arange(0, 30) * 0.1
    k = np.where(ts < 1, 0.5, np.where(ts < 2, 0.7, 0.9))
    x = np.exp(-np.concatenate([[0.0], np.cumsum(k[:-1] * 0.1)]))
    data = pd.DataFrame({"t": ts, "x": x})
    folder = tmp_path / "fleet"
    folder.mkdir()
    data.iloc[:25].to_csv(folder / "a.csv", index=False)
    options: dict[str, Any] = OPTIONS | {"period": 1.0}
    fit_fleet(TWIN, folder, tmp_path / "out", **options)
    data.to_csv(folder / "a.csv", index=False)
    done = fit_fleet(TWIN, folder, tmp_path / "out", **options)
    assert done.estimated == 1
    rows = read_fleet(tmp_path / "out")
    assert rows["period"].tolist() == [0, 1, 2]
    assert rows["from"].tolist() == pytest.approx([0.0, 1.0, 2.0])
    assert rows["value:k"].tolist() == pytest.approx([0.5, 0.7, 0.9], rel=1e-3)


def test_a_folder_in_memory_of_fsspec_is_read_like_any_other(tmp_path):
    import fsspec

    system = fsspec.filesystem("memory")
    with system.open("/fleet/a.csv", "w") as file:
        table(0.4).to_csv(file, index=False)
    try:
        done = fit_fleet(TWIN, "memory://fleet", tmp_path / "out", **OPTIONS)
        assert done.assets == 1
        assert values(tmp_path / "out") == pytest.approx({"a": 0.4}, rel=1e-5)
    finally:
        system.rm("/fleet", recursive=True)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no \.parquet or \.csv"):
        fit_fleet(TWIN, tmp_path, tmp_path / "out", **OPTIONS)


@pytest.mark.slow
def test_one_process_and_dask_write_the_same_bytes(tmp_path):
    rng = np.random.default_rng(0)
    folder = write_csv(tmp_path / "fleet", {f"asset{index}": rng.uniform(0.3, 1.2) for index in range(40)})
    for workers in (1, 2):
        fit_fleet(TWIN, folder, tmp_path / f"w{workers}", **OPTIONS, partition=10, workers=workers)
    names = sorted(path.name for path in (tmp_path / "w1" / "fit").iterdir())
    assert len(names) > 2
    for name in names:
        one, two = ((tmp_path / f"w{workers}" / "fit" / name).read_bytes() for workers in (1, 2))
        assert one == two, name
