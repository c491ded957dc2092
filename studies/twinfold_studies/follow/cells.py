"""The state of charge of cells whose charge at the start is unknown by a fifth, beside an equivalent circuit.

A cell is full at the start of a discharge; the filter is told that four fifths are left, with a standard deviation of a
fifth. What it estimates is compared with the charge that was counted, both relative to the charge of the cell's first
discharge. RW26 is discharged by a random walk of loads, and its twin is fitted to that cell alone; of the other cells
the network has seen nothing: it is the one that the library ships, and only the scalars of the cell are estimated.

The runs of a cell have three parts: for the fit, for the noise, and those that are judged. Twin and circuit are fitted
to the same runs and get their noise in the same way. The error of a model changes slowly: both have a voltage offset
that drifts, and the noise is that of simulations, which contains errors that stay.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.stats import norm

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Filtered, Noise, filtered, fit_noise, with_bias
from twinfold.metrics import coverage
from twinfold.systems import OpenCircuit, charged, circuit, fitted_cell
from twinfold_studies.battery.cells import SAMPLE_INTERVAL, Cells, discharged, runs_of, with_ambient
from twinfold_studies.battery.models import PRIOR, residual
from twinfold_studies.battery.transfer import LOSS, METHOD, walking_cell

WALKING = "RW26"
NASA_CELLS = ("B0018", "B0047")  # not seen by the shipped network: 2 A at 24 degrees, 1 A at 4 degrees
JUDGED = 10  # discharges of each of these, from the fourth clean one on
UNKNOWN, TENTH, BAND = 0.2, 0.1, 0.9
MAX_QUICK = 40  # samples of a run
KNOTS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)  # of the resistances of the circuit
SCALARS, CIRCUIT = tw.LevenbergMarquardt(40), tw.LevenbergMarquardt(40)
CIRCUIT_LOSS = tw.Loss(huber=0.1, prior=1e-4)
GUESS = Noise([1e-3], [0.01, 0.2], drift={"sensor_bias": 1e-4})  # V per root second, V and degrees, V per root second
CELL_SETTINGS = [
    WALKING,
    NASA_CELLS,
    JUDGED,
    UNKNOWN,
    KNOTS,
    str(METHOD),
    str(SCALARS),
    str(CIRCUIT),
    str(CIRCUIT_LOSS),
]


class Runs(NamedTuple):
    """Runs of a cell for the fit, the noise, and to be judged; the charge [C] of the first of them."""

    fitted: tw.Dataset
    noise: tw.Dataset
    judged: tw.Dataset
    capacity: float


class Model(NamedTuple):
    """A fitted model of a cell and its runs; its full state, and how that changes if the whole charge is missing.

    `charge` of a state, relative to the capacity, up to a constant; `drop`, the state of a voltage drop.
    """

    twin: tw.Twin
    runs: Runs
    full: np.ndarray
    missing: np.ndarray
    charge: Callable[[np.ndarray], np.ndarray]
    drop: int


def cell_results(cells: Cells, cell: str, *, quick: bool) -> dict[str, Any]:
    """The numbers of a cell for the twin and the circuit."""
    build = walking if cell == WALKING else shipped
    return {
        name: judged(model, MAX_QUICK if quick else None) for name, model in build(cells, cell, quick=quick).items()
    }


def walking(cells: Cells, cell: str, *, quick: bool) -> dict[str, Model]:
    """The cell under the random walk: its first reference discharge and two walks are fitted."""
    found = walking_cell(cells)
    if found is None or found[0].groups[0] != cell:
        raise ValueError(f"there are no six runs of a random walk of {cell}")
    reference, walks, judged = found
    runs = Runs(_with(reference, (*reference.runs, *walks.runs[:-1])), _with(walks, walks.runs[-1:]), judged, 0.0)
    runs = runs._replace(capacity=_charge(reference.runs[0]))
    twin = residual(False, sees=("x", "i"), start="full")
    method = tw.LevenbergMarquardt(3) if quick else METHOD
    fit = tw.fit(twin, runs.fitted, method=method, loss=LOSS, seeds=1, progress=False)
    return {"twin": _electrochemical(fit.twin, runs), "circuit": _circuit(runs, quick=quick)}


def shipped(cells: Cells, cell: str, *, quick: bool) -> dict[str, Model]:
    """A cell at constant current, with the network of other cells: the scalars are those of its first discharge."""
    chosen = list(cells.collection.select(kind="cycle", clean=True, cells=[cell]))[: 3 + (2 if quick else JUDGED)]
    parts = chosen[:1], chosen[1:3], chosen[3:]
    measured = [runs_of(part, interval=SAMPLE_INTERVAL if part is parts[0] else 0.0) for part in parts]
    heated = [with_ambient(data, part) for data, part in zip(measured, parts, strict=True)]
    capacity = _charge(measured[0].runs[0])
    method = tw.LevenbergMarquardt(3) if quick else SCALARS
    fit = tw.fit(fitted_cell(), heated[0], method=method, loss=PRIOR, trainable="parameters", progress=False)
    return {
        "twin": _electrochemical(fit.twin, Runs(heated[0], heated[1], heated[2], capacity)),
        "circuit": _circuit(Runs(measured[0], measured[1], measured[2], capacity), quick=quick),
    }


def _electrochemical(twin: tw.Twin, runs: Runs) -> Model:
    p, first = twin.parameters(), runs.fitted.runs[0]
    assert first.w is not None
    full = np.asarray(twin.initial_state(first.ts[0], jnp.asarray(first.y[0]), jnp.asarray(first.w[0]), p))
    fraction, step = (full[2] + full[3]) / p["q_max"], runs.capacity / p["q_max"]
    change = charged(fraction - step, p) - charged(fraction, p)
    missing = np.concatenate([change, np.zeros(len(full) - len(change))])
    return Model(twin, runs, full, missing, lambda x: (x[..., 2] + x[..., 3]) / runs.capacity, 4)


def _circuit(runs: Runs, *, quick: bool) -> Model:
    """Two RC pairs; the voltage at rest is that of the first discharge, plus what is lost at once under load."""
    first = runs.fitted.runs[0]
    assert first.w is not None
    current, known = first.w[:, 0], np.isfinite(first.y[:, 0])
    soc, volts = 1 - discharged(first.ts, current) / runs.capacity, first.y[:, 0]
    loaded = known & (current > 0)
    rest = max(float(np.nanmax(run.y[:, 0])) for run in runs.fitted.runs)
    lost = (rest - volts[loaded][0]) / current[loaded][0]
    grid = np.linspace(0, 1, 21)
    table = np.interp(grid, soc[known][::-1], (volts + lost * current)[known][::-1])
    knots, guess = np.array(KNOTS), np.full(len(KNOTS), lost / 3)
    unknown = {name: tw.Unknown(guess, positive=True, spread=1.0) for name in ("R_0", "R_1", "R_2")} | {
        "Q": runs.capacity / 3600,
        "tau_1": tw.Unknown(20.0, bounds=(5.0, 150.0)),
        "tau_2": tw.Unknown(500.0, bounds=(50.0, 6000.0)),
    }
    ocv = OpenCircuit(grid, np.maximum.accumulate(table))
    twin = circuit(ocv, pairs=2, unknown=unknown, knots=knots, integrator=tw.RK4(3))
    method = tw.LevenbergMarquardt(3) if quick else CIRCUIT
    fit = tw.fit(twin, runs.fitted, method=method, loss=CIRCUIT_LOSS, progress=False)
    empty = np.array([-1.0, 0.0, 0.0])
    return Model(fit.twin, runs, np.array([1.0, 0.0, 0.0]), empty, lambda x: x[..., 0], 1)


def judged(model: Model, samples: int | None) -> dict[str, Any]:
    """Errors of the state of charge, and of the voltage without measurements; of the first `samples` of each run."""
    twin, k = with_bias(model.twin, sensors=[0]), model.runs.noise.runs[0].y.shape[1]
    process = np.zeros(len(model.full))
    process[model.drop] = GUESS.process[0]
    if k == 2:
        process[-1] = float(GUESS.measurement[1]) / 10  # the temperature
    guess = Noise(process, GUESS.measurement[:k], drift=GUESS.drift)
    exact = {"sensor_bias": 0.0}
    noise = fit_noise(
        ExtendedKalmanFilter(twin, guess),
        _from_full(model, model.runs.noise, samples),
        std=np.zeros(len(process)),
        parameters=exact,
        open_loop=True,
    ).noise
    estimator = ExtendedKalmanFilter(twin, noise)
    data = _from_full(model, model.runs.judged, samples)
    batch, unknown = data.batch(), UNKNOWN * model.missing

    def follow(ts: Array, y: Array, w: Array, x0: Array) -> tuple[Filtered, Filtered]:
        begin = estimator.init(ts[0], x0 + unknown, np.outer(unknown, unknown), w=w[0], parameters=exact)
        known = estimator.init(ts[0], x0, np.zeros(len(process)), w=w[0], parameters=exact)
        return filtered(estimator, begin, ts, y, w), filtered(estimator, known, ts, jnp.full_like(y, jnp.nan), w)

    y = jnp.where(batch.mask, batch.y, jnp.nan)
    starts = jnp.stack([jnp.asarray(run.x0) for run in data.runs])
    found, blind = jax.jit(jax.vmap(follow))(batch.ts, y, batch.w, starts)
    x = np.asarray(found.corrected.mean)[..., : len(process)]
    center, std, mask = (np.asarray(each)[..., :1] for each in (blind.innovation.y, blind.innovation.std, batch.mask))
    half = float(norm.isf((1 - BAND) / 2)) * std
    volts = np.asarray(batch.y)[..., :1]
    inside = np.asarray(coverage(center - half, center + half, volts, mask))
    counts = mask.sum((1, 2))
    courses = []
    for run, row in zip(data.runs, x, strict=True):
        assert run.w is not None
        count = discharged(run.ts, run.w[:, 0])
        error = model.charge(row[: len(run.ts)]) - model.charge(model.full) + count / model.runs.capacity
        courses.append((count / count[-1], error))
    late = [np.abs(error[share >= TENTH]) for share, error in courses]
    return {
        "runs": len(courses),
        "soc_at_tenth": max(float(error[0]) for error in late),
        "soc_after_tenth": max(float(error.max()) for error in late),
        "soc_rms": float(np.sqrt(np.mean(np.concatenate(late) ** 2))),
        "voltage_mae": float(np.abs((center - volts)[mask]).mean()),
        "coverage": float((inside * counts).sum() / counts.sum()),
        "samples": int(counts.sum()),
        "noise": [*noise.measurement.tolist(), *noise.process.tolist(), float(noise.drift["sensor_bias"])],
        "failed": int(np.sum(~np.asarray(found.corrected.alive)[:, -1])),
        "course": [each.tolist() for each in courses[0]],
    }


def _from_full(model: Model, data: tw.Dataset, samples: int | None) -> tw.Dataset:
    """Runs that start from the full cell, at its first temperature if that is a state."""
    runs = []
    for run in data.runs:
        x0 = model.full.copy()
        if run.y.shape[1] == 2:
            x0[-1] = run.y[0, 1]
        runs.append(dataclasses.replace(run if samples is None else run.until(samples), x0=x0))
    return _with(data, tuple(runs))


def _with(data: tw.Dataset, runs: tuple[tw.Run, ...]) -> tw.Dataset:
    return dataclasses.replace(data, runs=runs)


def _charge(run: tw.Run) -> float:
    assert run.w is not None
    return float(discharged(run.ts, run.w[:, 0])[-1])
