"""The draining tank: the level of the empty tank in a replicate experiment, and the area of a bottle hidden in it.

The first task is a free run over "empty_test" from its first samples; models see "empty_train". The second is an
inverse problem: a(h) from the level of "with_bottle", beside the area that was measured with a tape. Its sensor is
calibrated by both runs of the empty tank. The middle 80 % of the height of the bottle counts, 2.8 to 25.2 cm.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import twinfold as tw
from twinfold_studies.real.figures.draining_tank import draw
from twinfold_studies.real.loaders.draining_tank import geometry, load
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import StateSpace
from twinfold_studies.real.table import Record, Records
from twinfold_studies.real.tank import (
    WARMUP,
    Sensor,
    body_area,
    calibrate,
    dataset,
    empty_tank,
    fit_empty,
    level_run,
    predicted,
    with_body,
)
from twinfold_studies.real.task import Metric, Model, Outcome, Task

EMPTY = ("empty_train", "empty_test")
GRID = np.arange(3.0, 25.01, 1.0)  # the levels at which the area was measured, in the middle 80 % of the bottle
GRAVITY = 981.0  # cm/s^2
ORIFICE, DISCHARGE = np.pi * (2.54 / 16) ** 2, 0.65  # a hole of 1/8 in, as noted; a textbook's coefficient
STEP = 2.0  # s, of the levels that models of equal steps see
STARTS = 3
FOLDS, BLOCK = 4, 12  # levels that are held out together: 3 cm, more than a step of the sensor
PAPER = "Fabusola and Simon 2025, Bayesian inversion (text of the paper)"


def designs() -> dict[str, dict[str, Any]]:
    return {
        f"{kind}, l2 {l2:g}": {"structure": structure, "l2": l2}
        for kind, structure in (("free", ()), ("decreasing", ("decreasing",)))
        for l2 in (3e-4, 1e-4, 3e-5, 1e-5)
    }


def bottle_run(records: Records, *, quick: bool) -> tuple[tw.Twin, tuple[np.ndarray, np.ndarray]]:
    """The empty tank as fitted, and the levels that the run with the bottle passes."""
    known = fit_empty(records, EMPTY, quick=quick)
    return known, calibrate(records, EMPTY, known).passages(records["with_bottle"])


def fit_body(known: tw.Twin, data: tw.Dataset, design: dict[str, Any], seed: int, *, quick: bool) -> tw.Fit:
    """The best of three starts by its loss: a start in ten does not converge."""
    twin = with_body(known, width=8, depth=2, structure=tuple(design["structure"]))
    method = tw.LevenbergMarquardt(15 if quick else 300, tolerance=1e-9)
    starts = [STARTS * seed + index for index in range(STARTS)]
    return tw.fit(twin, data, seeds=starts, method=method, loss=tw.Loss(l2=design["l2"]), progress=False)


def validate_twin(records: Records, design: dict[str, Any], quick: bool) -> float:
    """The error [cm] at levels of the run with the bottle that are left out, three centimetres at a time."""
    known, (t, level) = bottle_run(records, quick=quick)
    number = np.arange(len(t))
    errors = []
    for fold in range(1 if quick else FOLDS):
        out = (number // BLOCK % FOLDS == fold) & (number >= WARMUP)
        twin = fit_body(known, dataset({"body": (t[~out], level[~out])}), design, 0, quick=quick).twin
        whole = dataset({"body": (t, np.where(out, np.nan, level))})
        errors.append((predicted(twin, whole)[0] - level)[out])
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def twin(records: Records, design: dict[str, Any], seed: int, quick: bool) -> Outcome:
    """The learned area with its band, and the level of the empty tank as the calibrated sensor shows it."""
    known, run = bottle_run(records, quick=quick)
    data = dataset({"body": run})
    fit = fit_body(known, data, design, seed, quick=quick)
    posterior = tw.identify.posterior(fit, data, loss=tw.Loss(l2=design["l2"]), seed=fit.best)
    band = posterior.spread_of(lambda each: body_area(each, GRID))
    found = area_outcome(records, np.asarray(body_area(fit.twin, GRID)))
    found |= {"band": band.tolist(), "t": run[0].tolist(), "level": run[1].tolist()}
    found["fitted"] = predicted(fit.twin, data)[0].tolist()
    own = fit_empty(records, EMPTY[:1], quick=quick)
    sensor = calibrate(records, EMPTY[:1], own)
    return joined(found, level_outcome(records, lambda data: shown(records, sensor, predicted(own, data)[0])))


def simulated(records: Records, design: dict[str, Any], seed: int, quick: bool) -> Outcome:
    """What the sensor allows: a drain that is simulated with the measured bottle, on the same sensor.

    Its readings are those that one run of the empty tank shows at each level; they are understood by the curve of the
    other run. The two differ by how well the sensor repeats itself. The mean over both directions.
    """
    known = fit_empty(records, EMPTY, quick=quick)
    curves = [calibrate(records, [name], known) for name in EMPTY]
    found = []
    for own, other in (curves, curves[::-1]):
        data = dataset({"body": other.passages(simulated_drain(records, known, own))})
        fit = fit_body(known, data, design, seed, quick=quick)
        found.append(area_outcome(records, np.asarray(body_area(fit.twin, GRID)))["metrics"])
    return {"metrics": {name: float(np.mean([each[name] for each in found])) for name in found[0]}}


def simulated_drain(records: Records, known: tw.Twin, sensor: Sensor) -> Record:
    """The readings of a drain with the measured bottle: time is the integral of (A - a) / (c sqrt(h - hole))."""
    p = known.parameters()
    level = np.linspace(sensor.level[-1], sensor.level[0], 4000)
    bottle = np.interp(level, records["bottle"]["level"], records["bottle"]["area"])
    slope = (geometry(records).area(level) - bottle) / (float(p["c"]) * np.sqrt(level - float(p["hole"])))
    times = np.concatenate([[0.0], np.cumsum(0.5 * (slope[1:] + slope[:-1]) * -np.diff(level))])
    return {"t": times, "reading": np.interp(level, sensor.level, sensor.reading)}


def shown(records: Records, sensor: Sensor, level: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """What the calibration table makes of the reading of the sensor at these levels."""
    table = records["calibration"]
    return np.interp(np.interp(level, sensor.level, sensor.reading), table["reading"], table["level"])


def area_outcome(records: Records, area: Float[np.ndarray, " K"]) -> Outcome:
    """The errors of an estimated area on the grid."""
    truth = np.interp(GRID, records["bottle"]["level"], records["bottle"]["area"])
    error = np.abs(area - truth)
    radius = np.abs(np.sqrt(np.maximum(area, 0) / np.pi) - np.sqrt(truth / np.pi))
    metrics = {
        "area": 100 * np.mean(error / truth),
        "share": 100 * error.mean() / truth.mean(),
        "radius": radius.mean(),
    }
    return {"metrics": {name: float(value) for name, value in metrics.items()}, "area": area.tolist()}


def level_outcome(records: Records, predict: Callable[[tw.Dataset], Float[np.ndarray, " T"]]) -> Outcome:
    """The error of the level over the replicate experiment, after its first samples."""
    t, level = level_run(records, "empty_test")
    # What follows the warm-up is not shown to the model.
    seen = np.where(np.arange(len(t)) < WARMUP, level, np.nan)
    guess = predict(dataset({"replicate": (t, seen)}))
    error = float(np.mean(np.abs(guess - level)[WARMUP:]))
    return {
        "metrics": {"level": error if np.isfinite(error) else float("inf")},
        "replicate": {"t": t.tolist(), "level": level.tolist(), "predicted": guess.tolist()},
    }


def joined(first: Outcome, second: Outcome) -> Outcome:
    return first | second | {"metrics": first["metrics"] | second["metrics"]}


def fitted_physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """Torricelli's law fitted to the empty tank, the sensor by its table; the bottle is the cylinder that fits best."""
    del design, seed
    own = fit_empty(records, EMPTY[:1], quick=quick)
    empty = level_outcome(records, lambda data: predicted(own, data)[0])
    known = fit_empty(records, EMPTY, quick=quick)
    values = {name: float(value) for name, value in known.parameters().items()}
    cylinder = tw.Twin(
        lambda x, p: known.field(x, p) * (tank := known.field.tank(x[0])) / (tank - p["area"]),  # pyright: ignore
        params=values | {"area": tw.Unknown(30.0, bounds=(0.0, 90.0))},
        integrator=tw.RK4(substeps=2),
        warmup=WARMUP,
    )
    data = dataset({"body": level_run(records, "with_bottle")})
    found = tw.fit(cylinder, data, method=tw.LevenbergMarquardt(60), progress=False).twin
    return joined(area_outcome(records, np.full(len(GRID), float(found.parameters()["area"]))), empty)


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """Torricelli's law with the diameter of the drill and a textbook's discharge coefficient."""
    del design, seed, quick
    known = empty_tank(geometry(records), c=float(DISCHARGE * ORIFICE * np.sqrt(2 * GRAVITY)))
    return level_outcome(records, lambda data: predicted(known, data)[0])


def black_box() -> tw.Twin:
    return tw.node(tw.MLP(width=8, depth=1, zero_last=True), integrator=tw.RK4(substeps=2), warmup=WARMUP)


def node(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """h' as a network of h for the empty tank, and another one with the bottle: a = A (1 - h'_empty / h'_bottle)."""
    del design
    method = [tw.Adam(20 if quick else 300), tw.LevenbergMarquardt(15 if quick else 100)]
    loss = tw.Loss(l2=1e-5)
    fits = {
        names: tw.fit(
            black_box(),
            dataset({name: level_run(records, name) for name in names}),
            seeds=[seed],
            method=method,
            loss=loss,
            progress=False,
        ).twin
        for names in (EMPTY[:1], EMPTY, ("with_bottle",))
    }
    empty = level_outcome(records, lambda data: predicted(fits[EMPTY[:1]], data)[0])
    rates = {
        names: np.array([float(fits[names].field(0.0, jnp.array([h]), None, None, {})[0]) for h in GRID])
        for names in (EMPTY, ("with_bottle",))
    }
    area = geometry(records).area(GRID) * (1 - rates[EMPTY] / rates["with_bottle",])
    return joined(area_outcome(records, area), empty)


def even(records: Records, name: str, every: int) -> Float[np.ndarray, "T 1"]:
    """The levels at equal steps, `every` times `STEP`."""
    t, level = level_run(records, name)
    return np.interp(np.arange(t[0], t[-1], STEP * every), t, level)[:, None]


def at_steps(records: Records, every: int, simulate: Callable[[Any, Any], Any]) -> Outcome:
    """The error of a model of equal steps, which sees the first samples."""
    t, _ = level_run(records, "empty_test")
    y = even(records, "empty_test", every)
    free = simulate(np.zeros((len(y), 0)), y[: max(WARMUP // every, 2)])[:, 0]
    return level_outcome(records, lambda data: np.interp(t, t[0] + STEP * every * np.arange(len(y)), free))


def state_space(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    y = even(records, "empty_train", 2)
    model = StateSpace.identify([(np.zeros((len(y), 0)), y)], order=2, block_rows=20)
    return at_steps(records, 2, model.simulate)


def narx(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    y = even(records, "empty_train", 4)
    model = Narx.identify([(np.zeros((len(y), 0)), y)], lags=2, degree=2, terms=4)
    return at_steps(records, 4, model.simulate)


def persistence(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """The last level that is seen."""
    del design, seed, quick
    _, level = level_run(records, "empty_test")
    return level_outcome(records, lambda data: np.full(len(level), level[WARMUP - 1]))


TASK = Task(
    "draining_tank",
    "draining_tank",
    "A draining tank with a hidden bottle",
    load,
    {
        "area": Metric("area of the hidden bottle", "mean relative error of the area", "%"),
        "share": Metric("area of the hidden bottle", "mean error over mean area", "%"),
        "radius": Metric("area of the hidden bottle", "mean error of the radius", "cm", 0.35, PAPER),
        "level": Metric("level of the empty tank, replicate experiment", "mean absolute error", "cm", 0.28, PAPER),
    },
    [
        Model(
            "twin",
            twin,
            designs(),
            validate_twin,
            note="Torricelli, a(h) as network, sensor curve from empty runs; best of 3 starts by loss",
        ),
        Model(
            "twin, simulated bottle",
            simulated,
            {"": {"structure": (), "l2": 1e-4}},
            note="the limit of the sensor: a drain simulated with the measured bottle and its repeatability",
        ),
        Model("fitted physics", fitted_physics, seeded=False, note="c and hole fitted; the bottle as a cylinder"),
        Model("physics", physics, seeded=False, note="hole of 1/8 in, discharge coefficient 0.65"),
        Model("black box", node, note="NODE of 8 units; area from two of them"),
        Model("linear state space", state_space, seeded=False, note="N4SID, order 2, steps of 4 s"),
        Model("NARX", narx, seeded=False, note="FROLS, 2 lags, degree 2, 4 terms, steps of 8 s"),
        Model("persistence", persistence, seeded=False),
    ],
    draw,
)
