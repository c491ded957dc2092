"""Alarms of a fleet: what an asset's twin leaves over and how its scalars drift, against the healthy part of the fleet.

The features of a period are the size and the mean of the residual of each output and, with two or more healthy periods,
the change of each scalar since them. Limits come from the first periods of all assets. Their centre is the median and
their spread 1.4826 times the median absolute deviation, since a fleet may have sick assets from the start; the rest is
`monitor`: a running mean for each asset, with a stated false-alarm rate per period.
"""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.fleet._fit import TABLES
from twinfold.fleet._results import read_about, read_table, write_table
from twinfold.io import unknown_name, write_json
from twinfold.monitor._alarm import Alarm
from twinfold.monitor._life import Life
from twinfold.monitor._limits import MIN_HEALTHY, FeatureLimits
from twinfold.parallel import map_tasks, select_executor
from twinfold.parallel._executor import Progress

if TYPE_CHECKING:
    import pandas as pd

ALARMS, SUMMARY = "monitor", "alarms.json"
MAX_REFERENCE = 100_000  # healthy rows that limits are computed from
CONFIDENCE, HORIZON = 0.9, 1000  # of the remaining life
COLUMNS = (
    *("asset", "period", "periods", "score", "running", "limit", "severity", "alarm", "first_alarm"),
    *("changed", "change", "health", "remaining", "low", "high", "note"),
)


@dataclass(frozen=True)
class FleetAlarms:
    """The result of `monitor_fleet`: the number of assets judged, those in alarm (the worst first), and why not all.

    `worst` has the name and the severity, the running score divided by its limit, of up to 100 assets.

    **Example:**

    ```python
    from pathlib import Path

    alarms = tw.fleet.FleetAlarms(Path("results"), 1000, 1, (("cell 7", 3.2),), {}, False)
    alarms.worst[0][0]  # "cell 7"
    ```
    """

    folder: Path
    assets: int
    alarms: int
    worst: tuple[tuple[str, float], ...]
    failures: dict[str, str]
    interrupted: bool


def monitor_fleet(
    out: str | Path,
    *,
    healthy: int = 1,
    false_alarm_rate: float = 0.001,
    smoothing: float = 0.2,
    health: str = "",
    threshold: float | None = None,
    falling: bool = True,
    workers: int = 1,
    scheduler: str = "",
    progress: bool | Progress = False,
    log: Callable[[str], None] = lambda line: None,
) -> FleetAlarms:
    """Judge every asset of a fitted fleet, period by period, and write alarms and remaining lives.

    **Arguments:** `out`, the folder of `fit_fleet`; `healthy`: the first periods of each asset that count as healthy;
    `false_alarm_rate` of a healthy asset in each period; `smoothing` of the running mean, see `Monitor.calibrate`;
    `health`, the scalar that wears, and `threshold`, its value at the end of life (`falling=False` if it rises to it);
    `workers`, `scheduler`, `progress`, `log`: see `fit_fleet`.

    **Returns:** a `FleetAlarms`; the row of each asset is in `out/monitor/*.parquet`, see `read_fleet`.

    **Raises:** `ValueError` if there are too few healthy rows, or no such scalar.

    **Example:**

    ```python
    rng, ts = np.random.default_rng(0), np.linspace(0, 2, 21)
    for index in range(12):
        noise = 0.2 if index == 7 else 0.01
        x = np.exp(-0.7 * ts) + noise * rng.normal(size=21)
        tw.io.write_csv(f"plants/{index}.csv", zip(ts, x), columns=["t", "x"])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.7, positive=True)})
    tw.fleet.fit_fleet(twin, "plants", "results", outputs=["x"], lanes=4)
    tw.fleet.monitor_fleet("results").worst[0][0]  # "7"
    ```
    """
    out = Path(out).absolute()
    paths = sorted((out / TABLES).glob("*.parquet"))
    about = next((each for each in map(read_about, paths) if each is not None), None)
    if about is None:
        raise FileNotFoundError(f"{out / TABLES}: there are no results; run `twinfold fleet fit` first.")
    if health and health not in about["labels"]:
        raise ValueError(f"health: the fleet has no scalar {unknown_name(health, about['labels'])}")
    if bool(health) != (threshold is not None):
        raise ValueError("The remaining life needs both health and threshold: give both, or neither.")
    limits = _limits(paths, about, healthy, false_alarm_rate)
    wear = (health, threshold, falling) if threshold is not None else None
    task = PartitionAlarms(limits, about["labels"], about["outputs"], healthy, smoothing, wear, out / ALARMS)
    waiting = [path for path in paths if not task.is_current(path)]
    report = map_tasks(
        task,
        waiting,
        executor=select_executor(workers, scheduler),
        done=lambda outcome: log(f"{outcome.task.name}: {outcome.reason}") if outcome.reason else None,
        progress=progress,
    )
    return _collect(out, paths, {each.task.name: each.reason for each in report.outcomes if each.reason}, report)


@dataclass(frozen=True, eq=False)
class PartitionAlarms:
    """A function of the table of a partition that writes the table of its alarms."""

    limits: FeatureLimits
    labels: list[str]
    outputs: list[str]
    healthy: int
    smoothing: float
    wear: tuple[str, float, bool] | None
    out: Path

    def signature(self, path: Path) -> str:
        """A hash of the table and of all that its alarms depend on."""
        limits = [self.limits.mean.tolist(), self.limits.spread.tolist(), self.limits.count]
        settings = [self.limits.names, limits, self.limits.false_alarm_rate, self.healthy, self.smoothing, self.wear]
        about = read_about(path) or {}
        text = json.dumps([about.get("signature"), about.get("settings"), settings])
        return hashlib.sha256(text.encode()).hexdigest()

    def is_current(self, path: Path) -> bool:
        """Whether the stored alarms are those of this table."""
        return (read_about(self.out / path.name) or {}).get("signature") == self.signature(path)

    def __call__(self, path: Path) -> None:
        table = read_table(path)
        rows = [self._asset(str(name), rows) for name, rows in table.groupby("asset", sort=True)]
        alarms = sorted(((row["severity"], row["asset"]) for row in rows if row["alarm"]), reverse=True)
        about = {"signature": self.signature(path), "assets": len(rows), "alarms": len(alarms), "worst": alarms[:100]}
        write_table(self.out / path.name, rows, about, COLUMNS)

    def _asset(self, name: str, rows: "pd.DataFrame") -> dict[str, Any]:
        alarm, judgement, first_alarm = Alarm.start(self.limits, smoothing=self.smoothing), None, -1
        features = features_of(rows, self.labels, self.outputs, self.healthy)
        periods = rows["period"].tolist()
        for index, period in enumerate(periods):
            alarm, judgement = alarm.update({key: float(value[index]) for key, value in features.items()})
            first_alarm = period if judgement.alarm and first_alarm < 0 else first_alarm
        assert judgement is not None
        deviation = alarm.running / self.limits.spread
        largest = int(np.argmax(np.abs(deviation)))
        notes = [rows["reason"].iloc[-1]]
        notes += [f"not judged, not finite: {', '.join(judgement.missing)}"] if judgement.missing else []
        return {
            "asset": name,
            "period": int(periods[-1]),
            "periods": len(periods),
            "score": judgement.score,
            "running": judgement.running,
            "limit": judgement.limit,
            "severity": judgement.running / judgement.limit,
            "alarm": bool(judgement.alarm),
            "first_alarm": int(first_alarm),
            "changed": self.limits.names[largest] if alarm.judged else "",
            "change": float(deviation[largest]) if alarm.judged else math.nan,
        } | self._life(rows, notes)

    def _life(self, rows: "pd.DataFrame", notes: list[str]) -> dict[str, Any]:
        """The health in the last period and the remaining life; `notes` are continued."""
        found = dict.fromkeys(("health", "remaining", "low", "high"), math.nan)
        if self.wear is not None:
            name, threshold, falling = self.wear
            values, errors = (rows[f"{kind}:{name}"].to_numpy(dtype=float) for kind in ("value", "error"))
            found["health"] = float(values[-1])
            first = values[: self.healthy][np.isfinite(values[: self.healthy])]
            try:
                life = Life.start(float(np.median(first)) if len(first) else math.nan, threshold, falling=falling)
                for value, error in zip(values, errors, strict=True):
                    life = life.update(float(value), float(error) if math.isfinite(error) else 0.0)
                rest = life.remaining(confidence=CONFIDENCE, horizon=HORIZON)
                found |= {"remaining": rest.median, "low": rest.low, "high": rest.high}
                notes = [*notes, rest.note]
            except ValueError as error:
                notes = [*notes, str(error)]
        return found | {"note": "; ".join(note for note in notes if note)}


def features_of(rows: "pd.DataFrame", labels: list[str], outputs: list[str], healthy: int) -> dict[str, np.ndarray]:
    """The features of the periods of one asset."""
    found = {}
    for output in outputs:
        rms = rows[f"rms:{output}"].to_numpy(dtype=float)
        found[f"{output}.size"] = np.log(np.maximum(rms, 1e-300))  # closer to normal than the size itself
        found[f"{output}.mean"] = rows[f"mean:{output}"].to_numpy(dtype=float)
    if healthy > 1:
        for label in labels:
            change = rows[f"change:{label}"].to_numpy(dtype=float)
            first = change[:healthy]
            found[f"{label}.change"] = change - (np.nanmean(first) if np.isfinite(first).any() else np.nan)
    return found


def _limits(paths: list[Path], about: dict[str, Any], healthy: int, rate: float) -> FeatureLimits:
    if healthy < 1:
        raise ValueError(f"healthy={healthy}: give at least one period.")
    if not 0 < rate < 0.5:
        raise ValueError(f"false_alarm_rate={rate:g}: the rate per period must be between 0 and 0.5.")
    each = math.ceil(MAX_REFERENCE / len(paths))
    parts: list[dict[str, np.ndarray]] = []
    for path in paths:
        taken = 0
        for _, rows in read_table(path).groupby("asset", sort=True):
            features = features_of(rows, about["labels"], about["outputs"], healthy)
            parts.append({name: values[:healthy] for name, values in features.items()})
            taken += healthy
            if taken >= each:
                break
    names = tuple(parts[0])
    values = np.concatenate([np.stack([part[name] for name in names], axis=1) for part in parts])
    values = values[np.isfinite(values).all(axis=1)]
    if len(values) < MIN_HEALTHY:
        raise ValueError(f"{len(values)} healthy rows with finite features: at least {MIN_HEALTHY} are needed.")
    centre = np.median(values, axis=0)
    spread = 1.4826 * np.median(np.abs(values - centre), axis=0)
    if healthy > 1:  # deviations from an own mean of so many values are smaller than those of a new value
        own = np.array([name.endswith(".change") for name in names])
        spread = np.where(own, spread * np.sqrt(healthy / (healthy - 1)), spread)
    floor = 1e-9 * np.maximum(np.abs(centre), np.finfo(float).tiny)  # what does not vary is no reason for an alarm
    rises = np.ones(len(names), bool)
    falls = np.array([not name.endswith(".size") for name in names])  # a smaller residual is no fault
    return FeatureLimits(
        names, len(values), rate, centre, np.maximum(spread, floor), np.stack([rises, falls]), np.zeros(len(names))
    )


def _collect(out: Path, paths: list[Path], failures: dict[str, str], report: Any) -> FleetAlarms:
    stored = [about for path in paths if (about := read_about(out / ALARMS / path.name)) is not None]
    worst = sorted((tuple(each) for about in stored for each in about["worst"]), reverse=True)[:100]
    result = FleetAlarms(
        folder=out,
        assets=sum(about["assets"] for about in stored),
        alarms=sum(about["alarms"] for about in stored),
        worst=tuple((name, severity) for severity, name in worst),
        failures=failures,
        interrupted=report.interrupted,
    )
    write_json(out / SUMMARY, {"assets": result.assets, "alarms": result.alarms, "worst": result.worst})
    return result
