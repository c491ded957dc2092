"""The estimator of a fitted twin, as [follow] of the configuration describes it; what is not set there comes from data.

Estimating the noise and calibrating the alarms takes a while, so both are kept in a file beside the model: a process
that is restarted is ready at once, with the same numbers.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from twinfold.data import Dataset, Run
from twinfold.data._noise import output_noise
from twinfold.estimate import AbstractGaussianFilter, ExtendedKalmanFilter, Noise, UnscentedKalmanFilter, fit_noise
from twinfold.follow import Fleet, InnovationAlarms
from twinfold.io import unknown_name, write_text
from twinfold.model import Twin, Unknown
from twinfold.monitor._limits import FeatureLimits
from twinfold.workspace._config import FollowConfig
from twinfold.workspace._fit import Fitted, seen_split
from twinfold.workspace._start_std import start_std
from twinfold.workspace._workspace import Workspace

PREPARED = "follow.json"
ESTIMATORS = {"ekf": ExtendedKalmanFilter, "ukf": UnscentedKalmanFilter}
MAX_RUNS, MAX_SAMPLES = 40, 2000  # of the data that noise and alarms are taken from, the latter of each run
GUESS = 0.01  # of the range of a state: the process noise of a sample that the search begins with
START = 0.1  # of the range of a state: how uncertain it is at first, where nothing else is known


@dataclass(frozen=True, eq=False)
class Prepared:
    """What `twinfold follow` needs: the `fleet` and its `alarms`, and the `key` of everything they depend on.

    `std`: standard deviations of the state at the first sample.
    """

    fleet: Fleet
    alarms: InnovationAlarms
    key: str
    std: list[float]


def prepare(
    workspace: Workspace, fitted: Fitted, folder: Path, *, run: str | None, log: Callable[[str], None]
) -> Prepared:
    """Build fleet and alarms; estimates are read from `folder`, or made and written there.

    **Raises:** `ValueError` that names the setting to change.
    """
    config, twin = workspace.config.follow, plant_twin(fitted.twin)
    for name, table in (("drift", config.drift), ("spread", config.spread)):
        for each in table:
            if each not in twin.params:
                raise ValueError(f"follow.{name}: the twin has no parameter {unknown_name(each, twin.params)}")
    kept = folder / PREPARED
    key = estimate_key(config, fitted, run)
    known = read_kept(kept, key)
    if known is None:
        known = estimate_noise(workspace, fitted, twin, run, log)
        write_text(kept, json.dumps({"key": key, **known}, indent=2) + "\n")
    noise = Noise(known["process"], known["measurement"], drift=config.drift)
    estimator = make_estimator(config, twin, noise, run)
    fleet = _fleet(config, workspace, fitted, estimator, known["std"])
    options = _alarm_options(config)
    if known["limits"] is None and known["healthy"]:
        alarms = _calibrate(workspace, fitted, fleet, options, log)
        known["limits"] = None if not alarms.calibrated_on else _plain_limits(alarms.limits)
        known["healthy"] = False
        write_text(kept, json.dumps({"key": key, **known}, indent=2) + "\n")
        fleet.restore([], {}, 0)
    limits = None if known["limits"] is None else _limits(known["limits"])
    alarms = InnovationAlarms(fitted.info.outputs, **options, limits=limits)
    about = [key, known["process"], known["measurement"], known["std"], known["limits"]]
    return Prepared(fleet, alarms, hashlib.sha256(json.dumps(about).encode()).hexdigest(), known["std"])


def plant_twin(twin: Twin) -> Twin:
    """The twin for a plant that it was not fitted on: its start is not one of those that were estimated."""
    if not isinstance(twin.initial, Unknown):
        return twin
    return eqx.tree_at(lambda twin: (twin.initial, twin.warmup), twin, (None, None), is_leaf=lambda node: node is None)


def estimate_key(config: FollowConfig, fitted: Fitted, run: str | None) -> str:
    """What the estimates depend on, in one text."""
    parts = [
        config.model_dump(exclude={"asset", "band", "max_assets"}),
        fitted.info.data_fingerprint,
        fitted.info.system_source_sha256,
        run,
    ]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    for leaf in jax.tree.leaves(eqx.filter(fitted.twin, eqx.is_array)):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def read_kept(path: Path, key: str) -> dict[str, Any] | None:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        names = ("process", "measurement", "std", "limits", "healthy")
        return {name: stored[name] for name in names} if stored["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def estimate_noise(
    workspace: Workspace,
    fitted: Fitted,
    twin: Twin,
    run: str | None,
    log: Callable[[str], None],
    *,
    starts: Callable[[Dataset], Dataset] | None = None,
) -> dict[str, Any]:
    """Noise and start: as set, or from the data, for a filter. With `starts`, which gives each run the state at its
    beginning, for simulations from there: the start is then as uncertain as its estimate.
    """
    config, info = workspace.config.follow, fitted.info
    process = _by_name("process", config.process, info.states)
    measurement = _by_name("measurement", config.measurement, info.outputs)
    std = None if config.std is None else _by_name("std", config.std, info.states)
    wanted = process is None or measurement is None
    try:
        split = seen_split(workspace, fitted)
        part = "training" if split.valid is None else "validation"
        data = _some(split.train if split.valid is None else split.valid)
    except (OSError, ValueError) as error:
        if wanted:
            raise ValueError(
                "follow.process and follow.measurement are estimated from the data of the fit, which cannot be read "
                f"({error}); set both."
            ) from None
        data, part = None, ""
    exact = data is not None and all(each.x0 is not None for each in data.runs)
    if starts is not None and data is not None:
        data = starts(data)
    if std is None:
        std = _start_std(twin, info, measurement, data)
        if starts is not None and data is not None and not exact:
            sensor = _sensor_noise(data) if measurement is None else measurement
            std = start_std(fitted.twin, data, np.array(sensor), np.array(std)).tolist()
    found = {"std": list(std), "limits": None, "healthy": data is not None}
    if not wanted:
        return found | {"process": process, "measurement": measurement}
    assert data is not None
    spread = _ranges(info, "x")
    first = Noise(
        [GUESS * each / np.sqrt(info.dt or 1.0) for each in spread] if process is None else process,
        _sensor_noise(data) if measurement is None else measurement,
    )
    log(f"Estimating the noise from the {part} data ...")
    start = _start(config, twin, info)
    if starts is not None:
        std = np.zeros_like(std) if exact else std
    elif start is not None:
        runs = tuple(dataclasses.replace(each, x0=np.asarray(start, float)) for each in data.runs)
        data = dataclasses.replace(data, runs=runs)
    estimator = make_estimator(config, twin, first, run)
    fit = fit_noise(estimator, data, std=np.asarray(std), open_loop=starts is not None)
    fitted_process, fitted_measurement = (
        np.asarray(each).tolist() for each in (fit.noise.process, fit.noise.measurement)
    )
    if fit.undetermined:
        log(f"Note: the data do not tell {', '.join(fit.undetermined)}; the values used are examples that fit.")
    if not fit.converged:
        log("Note: the search for the noise did not converge; set follow.process and follow.measurement.")
    return found | {
        "process": fitted_process if process is None else process,
        "measurement": fitted_measurement if measurement is None else measurement,
    }


def make_estimator(config: FollowConfig, twin: Twin, noise: Noise, run: str | None) -> AbstractGaussianFilter:
    return ESTIMATORS[config.estimator](twin, noise, run=run, gate=config.gate or None)


def _fleet(
    config: FollowConfig, workspace: Workspace, fitted: Fitted, estimator: AbstractGaussianFilter, std: Any
) -> Fleet:
    gap = config.max_gap or workspace.config.data.max_step or np.inf
    start = _start(config, estimator.space.twin, fitted.info)
    return Fleet(estimator, start, std=std, parameters=config.spread, max_gap=gap)


def _start(config: FollowConfig, twin: Twin, info: Any) -> list[float] | None:
    """The state at the first sample; None where the twin computes it from the measurement."""
    if config.x0 is not None:
        if len(config.x0) != len(info.states):
            raise ValueError(
                f"follow.x0 has {len(config.x0)} values; the twin has {len(info.states)} states: "
                f"{', '.join(info.states)}."
            )
        return list(config.x0)
    if twin.initial is not None or twin.observe is None:
        return None
    if not len(info.x_low):
        raise ValueError("follow.x0: the twin does not compute its state from a measurement; give one.")
    return ((np.array(info.x_low) + np.array(info.x_high)) / 2).tolist()


def _start_std(twin: Twin, info: Any, measurement: list[float] | None, data: Dataset | None) -> list[float]:
    """How uncertain the first state is: as a measurement that it is, or as a part of the range of the data."""
    if twin.observe is None and twin.initial is None:
        if measurement is not None:
            return measurement
        if data is not None:
            return _sensor_noise(data)
    spread = _ranges(info, "x")
    part = START if twin.initial is not None else 0.5  # without a measurement of it, anywhere in the range
    return [part * each for each in spread]


def _ranges(info: Any, role: str) -> list[float]:
    low, high = (np.asarray(getattr(info, f"{role}_{end}"), float) for end in ("low", "high"))
    if not low.size:
        raise ValueError("follow.process, follow.measurement and follow.std: the model file has no ranges; set them.")
    return np.maximum(high - low, 1e-6 * np.maximum(np.abs(high), 1e-6)).tolist()


def _sensor_noise(data: Dataset) -> list[float]:
    """The noise of the outputs as the data alone tell it; at least a thousandth of their spread."""
    spread = np.maximum(np.nanstd(np.concatenate([run.y for run in data.runs]), axis=0), 1e-12)
    found = output_noise(data.runs, MAX_SAMPLES, spread=spread, unknown=0.01)
    return (spread * np.maximum(found, 1e-3)).tolist()


def _by_name(setting: str, value: Any, names: Sequence[str]) -> list[float] | None:
    """A value for each name; None to estimate them."""
    if value == "estimate":
        return None
    if not isinstance(value, Mapping):
        return [float(value)] * len(names)
    for name in value:
        if name not in names:
            raise ValueError(f"follow.{setting}: there is no {unknown_name(name, names)}")
    if lacking := [name for name in names if name not in value]:
        raise ValueError(f"follow.{setting}: there is no value for {', '.join(lacking)}.")
    return [float(value[name]) for name in names]


def _some(data: Dataset) -> Dataset:
    """Not more runs and samples than an estimate needs."""
    runs: tuple[Run, ...] = tuple(run.until(MAX_SAMPLES) for run in data.runs[:MAX_RUNS])
    return dataclasses.replace(data, runs=runs)


def _alarm_options(config: FollowConfig) -> dict[str, Any]:
    return {"window": config.window, "false_alarm_rate": config.false_alarm_rate, "gate": config.gate or None}


def _calibrate(
    workspace: Workspace, fitted: Fitted, fleet: Fleet, options: dict[str, Any], log: Callable[[str], None]
) -> InnovationAlarms:
    """Alarms with limits from the innovations on healthy data: those held out from the fit, or else all."""
    split = seen_split(workspace, fitted)
    held_out = [data for data in (split.valid, split.test) if data is not None] or [split.train]
    runs = [run.until(MAX_SAMPLES) for data in held_out for run in data.runs][:MAX_RUNS]
    log("Calibrating the alarms on healthy data ...")
    records: list[list[np.ndarray]] = [[] for _ in runs]
    for k in range(max(len(run.ts) for run in runs)):
        here = [place for place, run in enumerate(runs) if k < len(run.ts)]
        w = np.array([() if (inputs := runs[place].w) is None else inputs[k] for place in here])
        times, y = np.array([runs[place].ts[k] for place in here]), np.stack([runs[place].y[k] for place in here])
        out = fleet.step([str(place) for place in here], times, w, y)
        for place, z in zip(here, out.residual / out.y_std, strict=True):
            records[place].append(z)
    window = options["window"]  # the first one is that of the start
    healthy = [np.stack(record)[window:] for record in records if len(record) > window]
    alarms = InnovationAlarms.calibrated(fitted.info.outputs, healthy, **options)
    if not alarms.calibrated_on:
        log("Note: too few healthy samples to calibrate the alarms: their limits are those of a model that is right.")
    return alarms


def _plain_limits(limits: FeatureLimits) -> dict[str, Any]:
    return {
        "names": list(limits.names),
        "count": limits.count,
        "mean": limits.mean.tolist(),
        "spread": limits.spread.tolist(),
        "rate": limits.false_alarm_rate,
    }


def _limits(stored: dict[str, Any]) -> FeatureLimits:
    p = len(stored["names"])
    mean, spread = np.array(stored["mean"]), np.array(stored["spread"])
    both = np.ones((2, p), bool)
    return FeatureLimits(tuple(stored["names"]), stored["count"], stored["rate"], mean, spread, both, np.zeros(p))
