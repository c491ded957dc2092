"""Hostile files and settings, read through Python: each gives a clear error or a correct result."""

import csv
import io
import traceback
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import twinfold as tw
from campaign import hostile
from campaign.engine import Case, Group, scaled
from twinfold.io._names import check_name
from twinfold.workspace import read_config
from twinfold.workspace._config import parse_config

PACKAGE = str(Path(tw.__file__).parent)
MIN_MESSAGE = 20  # characters
MANY_RUNS = 100_000


def refused(attempt: Callable[[], Any]) -> Any:
    """What `attempt` returns, or None after an error that the library itself raised, with a message."""
    try:
        return attempt()
    except (ValueError, OSError) as error:
        reason = error
    last = traceback.extract_tb(reason.__traceback__)[-1].filename
    assert last.startswith(PACKAGE), f"the error comes from {last}: {reason}"
    assert len(str(reason)) > MIN_MESSAGE, reason
    return None


def read_plainly(raw: bytes) -> dict[str, list] | None:
    """A table as Python's own reader has it, if it is one without doubt: what a result must equal."""
    try:
        rows = list(csv.reader(io.StringIO(raw.decode("utf-8-sig")), strict=True))
        head, body = rows[0], [row for row in rows[1:] if row]
        if len(set(head)) < len(head) or any(len(row) != len(head) for row in body):
            return None
        return {
            name: [row[k].strip() if name == "run" else float(row[k]) if row[k].strip() else np.nan for row in body]
            for k, name in enumerate(head)
        }
    except (ValueError, IndexError, csv.Error):
        return None


def check_runs(data: tw.Dataset) -> None:
    """Whatever was read is finite, increasing in time, and has names that every format can hold."""
    for run in data.runs:
        check_name(run.name, "run")
        assert np.isfinite(run.ts).all()
        assert (np.diff(run.ts) > 0).all()
        assert run.w is None or np.isfinite(run.w).all()
        assert not np.isinf(run.y).any()


def try_table(raw: bytes, name: str, folder: Path, **options: Any) -> tw.Dataset | None:
    """Write a file and load it."""
    (folder / name).write_bytes(raw)
    options = {"inputs": ["u"], "outputs": ["x", "v"]} | options
    data = refused(lambda: tw.load_dataset(folder / name, **options))
    if data is not None:
        check_runs(data)
    return data


def try_csv(seed: int, folder: Path) -> None:
    """A CSV file that is read must have the values that Python's own reader finds."""
    raw = hostile.csv(np.random.default_rng(seed))
    data, plain = try_table(raw, "log.csv", folder, run="run"), read_plainly(raw)
    if data is None or plain is None or "t" not in plain:
        return
    assert {run.name for run in data.runs} == set(plain["run"])
    for run in data.runs:
        rows = [k for k, name in enumerate(plain["run"]) if name == run.name]
        assert [plain["t"][k] for k in rows] == run.ts.tolist()
        for column, name in enumerate(("x", "v")):
            np.testing.assert_array_equal(run.y[:, column], [plain[name][k] for k in rows])


def try_csv_gz(seed: int, folder: Path) -> None:
    """A compressed CSV file."""
    try_table(hostile.csv_gz(np.random.default_rng(seed)), "log.csv.gz", folder, run="run")


def try_parquet(seed: int, folder: Path) -> None:
    """A Parquet file."""
    random = np.random.default_rng(seed)
    try_table(hostile.parquet(random), "log.parquet", folder, **({"run": "run"} if random.random() < 0.5 else {}))


def try_mat(seed: int, folder: Path) -> None:
    """A MATLAB file."""
    try_table(hostile.mat(np.random.default_rng(seed)), "log.mat", folder)


def check_config(config: Any) -> None:
    """Nothing was guessed: what was understood can be written down and understood again."""
    assert parse_config(config.toml()) == config


def try_toml(seed: int, folder: Path) -> None:
    """A configuration file."""
    (folder / "twinfold.toml").write_bytes(hostile.toml(np.random.default_rng(seed)))
    config = refused(lambda: read_config(folder / "twinfold.toml"))
    if config is not None:
        check_config(config)


def try_override(seed: int, folder: Path) -> None:
    """Up to three settings of the command line."""
    random = np.random.default_rng(seed)
    (folder / "twinfold.toml").write_text(hostile.TOML)
    settings = [hostile.override(random) for _ in range(int(random.integers(1, 4)))]
    config = refused(lambda: read_config(folder / "twinfold.toml", settings))
    if config is not None:
        check_config(config)


@cache
def good_model() -> tuple[bytes, tw.Twin]:
    """A model file, and the twin in it."""
    import tempfile

    import jax

    twin = tw.Twin(tw.GreyBox(lambda x: -x, tw.MLP(width=3, depth=1))).initialise(jax.random.key(0), states=2)
    about = tw.ModelInfo(states=("x", "v"), outputs=("x", "v"), units={"x": "m"}, dt=0.1, x0_example=(1.0, 0.0))
    with tempfile.TemporaryDirectory() as folder:
        tw.save_model(Path(folder) / "model.twin", twin, about=about)
        return (Path(folder) / "model.twin").read_bytes(), twin


def try_model(seed: int, folder: Path) -> None:
    """A model file; one that is read has valid names and the arrays of the twin."""
    import equinox as eqx

    good, twin = good_model()
    path, marker = folder / "model.twin", folder / "executed"
    path.write_bytes(hostile.model(good, np.random.default_rng(seed), str(marker)))
    about = refused(lambda: tw.read_info(path))
    back = refused(lambda: tw.load_model(path, twin))
    hostile.assert_nothing_executed(marker)
    if about is not None:
        for name in (*about.states, *about.inputs, *about.outputs, *about.units):
            check_name(name, "model file")
    if back is not None:
        assert about is not None
        assert eqx.tree_equal(back, twin)


def numbered(label: str, attempt: Callable[[int, Path], None], count: int) -> Callable[[int, float], Iterable[Case]]:
    """Cases that differ by their seed."""

    def cases(seed: int, scale: float) -> Iterable[Case]:
        for index in range(scaled(count, scale)):
            yield Case(f"{label}/{index:05d}", partial(attempt, 1_000_000 * seed + index))

    return cases


def try_many_runs(folder: Path) -> None:
    """A table of very many short runs: the time must not grow faster than their number."""
    rows = (f"{run},{t},0,1,2\n" for run in range(MANY_RUNS) for t in (0, 1))
    data = try_table(("run,t,u,x,v\n" + "".join(rows)).encode(), "log.csv", folder, run="run")
    assert data is not None
    assert len(data) == MANY_RUNS


def try_word(word: str, folder: Path) -> None:
    """A run whose name looks like a missing value or a number is a run."""
    data = try_table(hostile.CSV.replace(",a,", f",{word},").encode(), "log.csv", folder, run="run")
    assert data is not None
    assert data.names == (word, "b")


def csv_cases(seed: int, scale: float) -> Iterable[Case]:
    """Plain and compressed tables, and a long one."""
    yield Case("csv/many runs", try_many_runs)
    yield from (Case(f"csv/run called {word}", partial(try_word, word)) for word in hostile.WORDS)
    yield from numbered("csv", try_csv, 2400)(seed, scale)
    yield from numbered("csv.gz", try_csv_gz, 600)(seed, scale)


CSV = Group("CSV files, plain and compressed", csv_cases)
PARQUET = Group("Parquet files", numbered("parquet", try_parquet, 1500))
MAT = Group("MATLAB files", numbered("mat", try_mat, 1500))
TOML = Group("Configuration files", numbered("toml", try_toml, 1500))
OVERRIDES = Group("Settings of the command line (--set)", numbered("set", try_override, 1500))
MODEL = Group("Model files", numbered("model", try_model, 2000))
