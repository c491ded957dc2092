"""Export of a follower: the state of a plant, corrected by every sample, where there is no Python."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import ArrayLike

from twinfold.estimate import AbstractGaussianFilter
from twinfold.export._c.compiled import CompileError
from twinfold.export._c.export import export_step_c
from twinfold.export._fmu.export import export_step_fmu
from twinfold.export._follower_step import FollowerStep, build_follower_step
from twinfold.export._reference import Reference, Simulation, SingleSteps, excitation
from twinfold.export._report import ExportReport, NotExportable
from twinfold.export._spec import ExportSpec
from twinfold.export._step import Step, build_step, precision
from twinfold.io import unknown_name

TOLERANCE = 1e-10  # of one sample, and of all of them in a row, relative
MISSING, WILD = 0.1, 0.01  # parts of the samples of the comparison
FORMATS = ("c", "fmu")


def export_follower(
    estimator: AbstractGaussianFilter,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    std: ArrayLike | Sequence,
    parameters: Mapping[str, float] | None = None,
    to: Sequence[str] = FORMATS,
    samples: int = 10_000,
) -> list[ExportReport]:
    """Export a follower to C99 and FMI 2.0, and compare each with the estimator in Python.

    The exported functions are those of an exported twin, named NAME_follower: `init` takes the first sample, `step` the
    next one, `dt` later, in constant time and without allocation. Inputs are those of the twin, then `measured.Y` and
    `available.Y` (1, or 0 for a missing value) of each output; outputs are `predicted.Y`, `std.Y`, `innovation.Y`,
    `accepted.Y`, `nis`, the standard deviation of each state, and the parameters that are followed. The state begins
    with x, the corrected one; after it come the rest of the mean and the square root of the covariance. Parameters are
    those of the twin that are not followed, and the noise.

    **Arguments:**

    - `estimator`: an extended or unscented filter.
    - `spec`: names, step length and ranges of the twin, as for `export_twin`.
    - `folder`: each format is written to a subfolder with its name.
    - `std`: standard deviations of the state at the first sample.
    - `parameters`: those of the parameters that are followed, as for `ExtendedKalmanFilter.init`.
    - `to`: any of `"c"`, `"fmu"`.
    - `samples` that are compared, one after the other, with missing and wild ones among them.

    **Returns:** an `ExportReport` for each format; see `export_twin`.

    **Example:**

    ```python
    import shutil

    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x, w: w - x), tw.estimate.Noise([0.1], [0.05]))
    spec = tw.export.ExportSpec("lag", ["x"], ["u"], ["x"], dt=0.1, x0=[1.0], w_low=[-1], w_high=[1])
    if shutil.which("cc"):
        (report,) = tw.export.export_follower(estimator, spec, "exported", std=[0.5], to=["c"], samples=50)
        [file.name for file in report.files], report.checked  # ['lag_follower.c', 'lag_follower.h'], True
    ```
    """
    for kind in to:
        if kind not in FORMATS:
            raise ValueError(f"to: a follower has no export to {unknown_name(kind, FORMATS)}")
    with precision(np.float64):
        step = build_follower_step(estimator, spec, np.asarray(std, float), dict(parameters or {}))
        reference = _reference(step, build_step(estimator.space.twin, spec), samples)
    reports = []
    for kind in to:
        place = Path(folder) / kind
        try:
            if kind == "c":
                found = export_step_c(step, place, lambda: reference, tolerance=TOLERANCE)
            else:
                found = export_step_fmu(step, place, lambda: reference, linear=True)
            drift = found.free_running_difference
            sound = found.checked and drift is not None and drift <= TOLERANCE
            reports.append(
                ExportReport(
                    kind, found.files, sound, found.largest_difference, drift, found.size_bytes, found.messages
                )
            )
        except (NotExportable, ImportError, CompileError) as error:
            reports.append(ExportReport(kind, [], False, None, None, 0, [str(error)]))
    return reports


def _reference(step: FollowerStep, plant: Step, samples: int) -> Reference:
    """The estimator along samples of the twin itself, with noise, missing values and outliers."""
    t, inputs = excitation(plant.spec, samples)
    first = jax.jit(plant.init)(t[0], np.asarray(plant.spec.x0, float), inputs[0], plant.defaults)

    def simulate(state: Any, sample: tuple) -> tuple:
        time, w0, w1 = sample
        out = plant.step(time, w0, w1, plant.defaults, state)
        return out[0], out[1]

    y = jax.jit(lambda s: jax.lax.scan(simulate, s, (t[:-1], inputs[:-1], inputs[1:]))[1])(first[0])
    rng = np.random.default_rng(0)
    deviation = np.sqrt(np.asarray(step.estimator.noise.measurement**2).reshape(step.measured, -1).sum(axis=1))
    measured = np.vstack([np.asarray(first[1])[None], np.asarray(y)])
    measured = measured + deviation * rng.normal(size=measured.shape)
    measured = np.where(rng.uniform(size=measured.shape) < WILD, measured + 100 * deviation, measured)
    available = (rng.uniform(size=measured.shape) >= MISSING).astype(float)
    available[0] = 1.0
    w = np.hstack([inputs, np.where(np.isfinite(measured), measured, 0.0), available])
    began = jax.jit(step.init)(t[0], np.asarray(step.spec.x0, float), w[0], step.defaults)

    def follow(state: Any, sample: tuple) -> tuple:
        time, w0, w1 = sample
        out = step.step(time, w0, w1, step.defaults, state)
        return out[0], out

    run = jax.jit(lambda s: jax.lax.scan(follow, s, (t[:-1], w[:-1], w[1:]))[1])(began[0])
    states, outputs, status = (np.asarray(each) for each in run)
    before = np.vstack([np.asarray(began[0])[None], states[:-1]])
    single = SingleSteps(t[:-1], w[:-1], w[1:], before, states, outputs, status, skipped=0)
    return Reference(step, single, Simulation(t, w, states, outputs, status))
