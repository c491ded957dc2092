"""The draining tank: Torricelli's law with the geometry of the tank, and a level sensor calibrated by what it shows.

    (A(h) - a(h)) h' = -c sqrt(h - h_hole)

c and h_hole follow from the empty tank. So does the curve of the sensor: its reading is a function of the level, with
steps of up to 2 cm that repeat from run to run and that a calibration at every centimetre misses. The empty tank passes
every level at a time that the physics knows, so the reading at that time calibrates the sensor.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import isotonic_regression

import twinfold as tw
from twinfold_studies.real.loaders.draining_tank import Geometry, geometry
from twinfold_studies.real.table import Record, Records

LOWEST = 513.0  # reading below which the sensor hardly changes with the level
EVERY = 12  # samples of the drain, 2 s
STEP = 0.25  # of the levels whose crossing is used [cm]
SHARE = 0.9  # of the tank that a hidden body may take
WARMUP = 8
HOLE = 2.5  # height of the hole [cm], as measured; where the fit starts


class Drain(eqx.Module):
    """h' = -c sqrt(h - h_hole) / (A(h) - a(h)) with a learned share a / A of the area, or without it."""

    bottom: float = eqx.field(static=True)
    slope: float = eqx.field(static=True)
    share: tw.Network | None = None

    def tank(self, level: Float[Array, ""]) -> Float[Array, ""]:
        """A(h) [cm^2]."""
        return self.bottom + self.slope * level

    def hidden(self, level: Float[Array, ""]) -> Float[Array, ""]:
        """a(h) [cm^2]: at least zero, and less than the tank."""
        if self.share is None:
            return jnp.zeros_like(level)
        return self.tank(level) * self.share((level[None] - 14.0) / 8.0)[0]

    def __call__(self, x: Float[Array, " 1"], p) -> Float[Array, " 1"]:
        head = jnp.maximum(x - p["hole"], 1e-6)
        return -p["c"] * jnp.sqrt(head) / (self.tank(x[0]) - self.hidden(x[0]))


def empty_tank(tank: Geometry, *, c: float | None = None) -> tw.Twin:
    """The tank without a body; c and the height of the hole are unknown, or c is known and the height as measured."""
    fitted = {"c": tw.Unknown(1.0, positive=True), "hole": tw.Unknown(HOLE, bounds=(0.0, 3.0))}
    return tw.Twin(
        Drain(tank.bottom, (tank.top - tank.bottom) / tank.height),
        params=fitted if c is None else {"c": c, "hole": HOLE},
        integrator=tw.RK4(substeps=2),
        warmup=WARMUP,
    )


def with_body(known: tw.Twin, *, width: int, depth: int, structure: tuple[str, ...]) -> tw.Twin:
    """The same tank, as fitted, with a body whose area a network gives."""
    network = tw.Network(1, 1, width, depth, structure=structure, bounds=(0.0, SHARE), zero_last=True)
    values = {name: float(value) for name, value in known.parameters().items()}
    field = known.field
    assert isinstance(field, Drain)
    return tw.Twin(
        Drain(field.bottom, field.slope, network), params=values, integrator=tw.RK4(substeps=2), warmup=WARMUP
    )


def falling(record: Record) -> Float[np.ndarray, " T"]:
    """The readings as the nearest sequence that never rises, made strict, as the level of a draining tank is."""
    fitted = isotonic_regression(record["reading"], increasing=False).x
    return fitted + np.linspace(1e-3, 0.0, len(fitted))


def level_run(records: Records, name: str) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Times and levels [cm] of a run by the calibration table, one sample in `EVERY`, as far as the sensor follows."""
    record, table = records[name], records["calibration"]
    seen = np.flatnonzero(record["reading"] > LOWEST)[::EVERY]
    return record["t"][seen], np.interp(record["reading"][seen], table["reading"], table["level"])


def dataset(runs: Mapping[str, tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]]) -> tw.Dataset:
    """Runs of times and levels, by name."""
    ts, levels = [t for t, _ in runs.values()], [level[:, None] for _, level in runs.values()]
    return tw.Dataset.from_arrays(ts, levels, names=list(runs), output_names=["level"])


def predicted(twin: tw.Twin, data: tw.Dataset) -> list[Float[np.ndarray, " T"]]:
    """The levels of each run, from the state that fits its first samples."""
    found = tw.predict(twin, data).predicted
    return [np.asarray(found).reshape(len(data.runs), -1)[i, : len(run.ts)] for i, run in enumerate(data.runs)]


def fit_empty(records: Records, names: Sequence[str], *, quick: bool) -> tw.Twin:
    """c and the height of the hole from runs of the empty tank, by the calibration table."""
    data = dataset({name: level_run(records, name) for name in names})
    method = tw.LevenbergMarquardt(10 if quick else 60)
    return tw.fit(empty_tank(geometry(records)), data, method=method, progress=False).twin


class Sensor(NamedTuple):
    """The curve of the sensor: strictly rising readings at levels [cm]."""

    level: Float[np.ndarray, " K"]
    reading: Float[np.ndarray, " K"]

    def crossings(self, record: Record, levels: Float[np.ndarray, " L"]) -> Float[np.ndarray, " L"]:
        """The times at which a run passes these levels."""
        return np.interp(-np.interp(levels, self.level, self.reading), -falling(record), record["t"])

    def passages(self, record: Record) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
        """Times and levels at which a run passes every `STEP`; levels that it passes at once are averaged."""
        levels = np.arange(np.ceil(self.level[0] / STEP) * STEP, self.level[-1], STEP)
        times = np.round(self.crossings(record, levels), 2)
        t = np.unique(times)
        return t - t[0], np.array([levels[times == each].mean() for each in t])


def calibrate(records: Records, names: Sequence[str], twin: tw.Twin) -> Sensor:
    """The curve of the sensor from drains of the empty tank, whose levels the fitted physics knows."""
    readings = np.arange(LOWEST + 0.5, min(records[name]["reading"].max() for name in names), 0.5)
    data = dataset({name: level_run(records, name) for name in names})
    levels = []
    for name, run, level in zip(names, data.runs, predicted(twin, data), strict=True):
        times = np.interp(-readings, -falling(records[name]), records[name]["t"])
        levels.append(np.interp(times, run.ts, level))
    return Sensor(np.mean(levels, axis=0) + np.linspace(0.0, 1e-9, len(readings)), readings)


def body_area(twin: tw.Twin, levels: Float[np.ndarray, " L"]) -> Float[Array, " L"]:
    """The learned area [cm^2] at some levels [cm]."""
    field = twin.field
    assert isinstance(field, Drain)
    return jax.vmap(field.hidden)(jnp.asarray(levels))
