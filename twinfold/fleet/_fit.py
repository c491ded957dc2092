"""Estimate the scalars of every asset of a fleet: partition by partition, here or on Dask, resumable."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold._core import tree_structure_text
from twinfold._version import __version__
from twinfold.fleet._estimate import MAX_STEPS
from twinfold.fleet._partition import PartitionFit
from twinfold.fleet._results import read_about
from twinfold.fleet._source import FleetSource, Partition
from twinfold.fleet._variables import AssetVariables
from twinfold.io import write_json
from twinfold.io._lock import lock_folder
from twinfold.model import Twin
from twinfold.parallel import TaskOutcome, map_tasks, select_executor
from twinfold.parallel._executor import Progress

PLAN, TABLES = "plan.json", "fit"
ASSETS = 500  # per partition


@dataclass(frozen=True)
class FleetFit:
    """The result of `fit_fleet`: how many assets, what failed and why, what it cost.

    `failures` maps a file or partition to the reason why it has no results; `failed` counts assets (and periods) that
    have a row with a reason instead of numbers. `current` partitions had nothing new.

    **Example:**

    ```python
    tw.io.write_csv("plants/a.csv", [{"t": t, "x": np.exp(-0.5 * t)} for t in np.linspace(0, 2, 21)])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.7, positive=True)})
    done = tw.fleet.fit_fleet(twin, "plants", "results", outputs=["x"], lanes=4)
    done.assets, done.failures  # 1, {}
    ```
    """

    folder: Path
    partitions: int
    current: int
    assets: int
    rows: int
    estimated: int
    failed: int
    failures: dict[str, str]
    padding: float
    interrupted: bool


def fit_fleet(
    twin: Twin,
    folder: str | Path,
    out: str | Path,
    *,
    outputs: Sequence[str],
    parameters: Sequence[str] | None = None,
    time: str = "t",
    inputs: Sequence[str] = (),
    asset: str = "",
    period: float | None = None,
    layout: Mapping[str, Any] | None = None,
    storage: Mapping[str, Any] | None = None,
    max_steps: int = MAX_STEPS,
    partition: int = ASSETS,
    lanes: int | None = None,
    workers: int = 1,
    scheduler: str = "",
    progress: bool | Progress = False,
    log: Callable[[str], None] = lambda line: None,
) -> FleetFit:
    """Estimate scalars of a twin for every asset of a fleet; all else, the learned parts above all, stays as it is.

    The initial state of an asset is estimated as well if the twin's `initial` is an `Unknown(per_run=True)`. The same
    call resumes, and takes up new data: partitions of which no file has changed are skipped, and of the others only
    assets (and periods) with new samples are estimated again.

    **Arguments:**

    - `twin`, fitted; `folder` of the measurements, a path or an address of fsspec: Parquet or CSV files, one or several
      for each asset (`asset=A/*.parquet`, `A/*.csv`, `A.csv`); `out`, the folder of the results.
    - `outputs`, `inputs`, `time`: columns; `layout`, further options of `load_dataset`; `storage`, those of fsspec.
    - `asset`: the column that names the assets, if files have several; each file or folder in `folder` is then a
      partition, and an asset is in one of them.
    - `parameters` to estimate, scalars by name: by default every `Unknown` scalar.
    - `period`: cut each asset into spans of so many seconds and estimate each by itself, to see drift.
    - `max_steps` of Levenberg-Marquardt; 0 scores the twin as it is, without an estimate; `partition`, assets
      read at a time; `lanes`, assets computed at a time (default: 32 on a CPU, 4096 on a GPU).
    - `workers`, `scheduler`: see `parallel.select_executor`; `progress`, see `parallel.map_tasks`; `log`, called with a
      line for each file or partition that fails.

    **Returns:** a `FleetFit`; the estimates are in `out/fit/*.parquet`, see `read_fleet`.

    **Raises:** `ValueError` if `out` has the results of another way of cutting the fleet into partitions.

    **Example:**

    ```python
    for name, k in {"a": 0.5, "b": 0.8, "c": 1.1}.items():
        rows = [{"t": t, "x": np.exp(-k * t)} for t in np.linspace(0, 2, 21)]
        tw.io.write_csv(f"plants/{name}.csv", rows)
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.7, positive=True)})
    done = tw.fleet.fit_fleet(twin, "plants", "results", outputs=["x"], lanes=4)
    done.assets, done.failed  # 3, 0
    tw.fleet.read_fleet("results")["value:k"].tolist()  # [0.5, 0.8, 1.1]
    ```
    """
    out = Path(out).absolute()
    variables = AssetVariables.of(twin, parameters)
    source = FleetSource(_address(folder), asset, time, dict(storage or {}))
    columns = dict(layout or {}) | {"outputs": list(outputs), "inputs": list(inputs), "time": time}
    settings = fingerprint(variables, columns, period, max_steps)
    with lock_folder(out):
        parts = source.partitions(_partition_count(source, out, partition))
        task = PartitionFit(variables, source, columns, period, max_steps, lanes, out / TABLES, settings)
        _remove_stale(task, parts)
        waiting = [each for each in parts if not task.is_current(each)]
        if len(waiting) < len(parts):
            log(f"{len(parts) - len(waiting)} of {len(parts)} partitions have nothing new.")

        def note(outcome: TaskOutcome[Partition, dict[str, Any]]) -> None:
            found = (outcome.value or {}).get("failures", {})
            for name, reason in found.items() if not outcome.reason else [(outcome.task.name, outcome.reason)]:
                log(f"{name}: {reason}")

        report = map_tasks(
            task,
            waiting,
            cost=lambda each: float(each.bytes),
            executor=select_executor(workers, scheduler),
            done=note,
            progress=progress,
        )
        return _summary(out, task, parts, len(parts) - len(waiting), report.outcomes, report.interrupted)


def fingerprint(variables: AssetVariables, *settings: Any) -> str:
    """A hash of the twin, its variables and further settings."""
    digest = hashlib.sha256(json.dumps([__version__, variables.names, settings], default=str, sort_keys=True).encode())
    digest.update(tree_structure_text(variables.twin).encode())
    for leaf in jax.tree.leaves(eqx.filter(variables.twin, eqx.is_array)):
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:24]


def _address(folder: str | Path) -> str:
    """The folder as fsspec reads it; a local one is absolute, for workers elsewhere."""
    text = str(folder)
    return text if "://" in text else str(Path(text).absolute())


def _partition_count(source: FleetSource, out: Path, assets: int) -> int:
    """How many partitions there are; decided once for a folder of results, so that an asset stays in its own."""
    path = out / PLAN
    if path.exists():
        plan = json.loads(path.read_text(encoding="utf-8"))
        if (plan["folder"], plan["asset"]) != (source.folder, source.asset):
            raise ValueError(
                f"out={str(out)!r} has results of {plan['folder']} with asset={plan['asset']!r}; give another folder."
            )
        return plan["partitions"]
    count = 1 if source.asset else math.ceil(len({file.asset for file in source.files()}) / assets)
    write_json(path, {"folder": source.folder, "asset": source.asset, "partitions": count})
    return count


def _remove_stale(task: PartitionFit, parts: Sequence[Partition]) -> None:
    """Delete the tables of partitions that have no file any more."""
    wanted = {task.path(each) for each in parts}
    for path in task.out.glob("*.parquet"):
        if path not in wanted:
            path.unlink()


def _summary(
    out: Path, task: PartitionFit, parts: Sequence[Partition], current: int, outcomes: Sequence[Any], interrupted: bool
) -> FleetFit:
    failures = {outcome.task.name: outcome.reason for outcome in outcomes if outcome.reason}
    done = [outcome.value for outcome in outcomes if outcome.value is not None]
    stored = [read_about(task.path(part)) for part in parts if part.name not in failures]
    known = [each for each in stored if each is not None]
    for each in known:
        failures |= each["failures"]
    samples = sum(each["samples"] for each in done)
    padded = sum(each["samples"] / (1 - each["padding"]) for each in done if each["samples"])
    return FleetFit(
        folder=out,
        partitions=len(parts),
        current=current,
        assets=sum(each["assets"] for each in known),
        rows=sum(each["rows"] for each in known),
        estimated=sum(each["estimated"] for each in done),
        failed=sum(each["failed"] for each in known),
        failures=failures,
        padding=1 - samples / padded if padded else 0.0,
        interrupted=interrupted,
    )
