"""Bands of the free run of the EMPS drive over its test record, with noise from within the training record.

The design is the one that `twinfold bench real` chose on the training record. Fitted to one half of it, the twin runs
freely over the other half: the errors of both runs give the noise. The twin that is judged is fitted to all of it.
"""

import dataclasses
from typing import Any

import equinox as eqx
import numpy as np
from scipy.stats import norm

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Noise, fit_noise, simulate_with_band
from twinfold.metrics import coverage
from twinfold_studies.real.drive import FIRST, Design, dataset, thinned
from twinfold_studies.real.table import Record, Records
from twinfold_studies.real.tasks.emps import EVERY, fit_rows

DESIGN = Design(2, drift=True, asymmetric=True, l2=1e-5)
SEED, BAND = 0, 0.9
PUSH, SENSOR = 3e-3, 1e-3  # first guesses: m/s per root second, m
EMPS_SETTINGS = [list(DESIGN), SEED, BAND, PUSH, SENSOR, EVERY, FIRST]


def emps_results(records: Records, *, quick: bool) -> dict[str, Any]:
    """Coverage of the test record, and the course of its band."""
    train = records["train"]
    half = len(train["t"]) // 2
    parts = slice(0, half), slice(half, None)
    variances = []
    for seen, free in (parts, parts[::-1]):
        fitted = fit_rows(records, DESIGN, seen, SEED, quick=quick).twin
        rest: Record = {name: values[free] for name, values in train.items()}
        noise = fit_noise(_estimator(fitted, PUSH, SENSOR), _started(rest), std=[0.0, 0.0], open_loop=True).noise
        variances.append([float(noise.process[1]) ** 2, float(noise.measurement[0]) ** 2])
    push, sensor = np.sqrt(np.mean(variances, axis=0))
    twin = fit_rows(records, DESIGN, slice(None), SEED, quick=quick).twin
    run = _started(records["test"]).runs[0]
    assert run.x0 is not None
    found = simulate_with_band(_estimator(twin, push, sensor), run.x0, [0.0, 0.0], run.ts, run.w)
    low, high = found.band(BAND)
    half_width = float(norm.isf((1 - BAND) / 2)) * found.y_std
    return {
        "runs": 1,
        "coverage": float(coverage(low[None], high[None], run.y[None], np.ones((1, *run.y.shape), bool))[0]),
        "rmse_mm": 1000 * float(np.sqrt(np.mean((found.y - run.y) ** 2))),
        "half_width_mm": [1000 * float(half_width[index, 0]) for index in (0, len(half_width) // 2, -1)],
        "process": push,
        "measurement": sensor,
        "folds": [[float(np.sqrt(each)) for each in pair] for pair in variances],
    }


def _estimator(twin: tw.Twin, push: float, sensor: float) -> ExtendedKalmanFilter:
    """Of the twin without its way to estimate a start, which is given here."""
    plain = eqx.tree_at(lambda twin: (twin.initial, twin.warmup), twin, (None, None), is_leaf=lambda node: node is None)
    return ExtendedKalmanFilter(plain, Noise([0.0, push], [sensor]))


def _started(record: Record) -> tw.Dataset:
    """A record as a run at the steps of the fit, with the start that a line through its first samples gives."""
    first = {name: values[:FIRST] for name, values in record.items()}
    speed, place = np.polyfit(first["t"] - record["t"][0], first["position"], 1)
    data = dataset(thinned(record, EVERY))
    return dataclasses.replace(data, runs=(dataclasses.replace(data.runs[0], x0=np.array([place, speed])),))
