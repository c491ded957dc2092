"""The double pendulum on video: 4 frames in, 200 out; and 2 s free runs of two runs that nobody trained on.

The twin is a mechanism in the positions of its markers. Rods are held by projection, at the level of positions and
velocities; inertia, gravity, the map of the camera and the friction of both joints are learned from runs 0 to 4,
official sequences left out. The start of a sequence is estimated through the dynamics from the frames that are given.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import twinfold as tw
from twinfold.typing import Parameters, State
from twinfold_studies.real.double_pendulum import Angles, Resistance, mechanism, positions
from twinfold_studies.real.figures.ibm_double_pendulum import draw
from twinfold_studies.real.loaders.ibm_double_pendulum import FRAMES_PER_SECOND, load, markers
from twinfold_studies.real.pendulum_video import (
    NOMINAL,
    PIXEL,
    RATIO,
    Frames,
    free_runs,
    in_positions,
    official,
    outputs,
    pieces,
    rod_angles,
    rod_lengths,
    sequences,
    times,
    training,
)
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import StateSpace
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Metric, Model, Outcome, Task

TRAIN = tuple(f"run-{i}" for i in range(5))
FREE = ("run-5", "run-6")
SEEN = {"official": 4, "free": 40}  # frames that a model may use
PREDICTED = {"official": 200, "free": 800}
HORIZONS = {"official": (20, 50, 100, 200, 300, 400, 500), "free": (20, 50, 100, 200, 500, 1000, 1500, 2000)}  # ms
WINDOWS, LENGTH = 200, 60
WIDTH = 8
TRIED = "of 3 designs tried on run 4, trained without it: no learned law; no distortion of the lens; both"
LONGEST = 10.0  # in units of the first rod: an error beyond it counts as this, so that a divergence has a number
RATES = np.linspace(-25, 25, 51)  # rad/s, at which the friction law is shown
MILLIMETRES, GRAVITY = 91.0, 9810.0  # of the first rod, as published


def law(width: int) -> tw.Network:
    """What is learned of the friction: a torque at each joint that resists its rate, and sees that of the other."""
    return tw.Network(2, 2, width, 1, structure=["odd", "dissipative"], zero_last=True)


def parameters() -> dict[str, Any]:
    """Inertia and gravity in units of A, friction, and the map from positions to the image."""
    return {
        "A": 1.0,
        "B": tw.Unknown(0.1, positive=True),
        "C": tw.Unknown(0.1, positive=True),
        "D": tw.Unknown(70.0, positive=True),
        "G": tw.Unknown(70.0, positive=True),
        "tilt": tw.Unknown(0.0),
        "ratio": RATIO,
        "viscous": tw.Unknown([0.03, 0.01], positive=True),
        "scale": tw.Unknown(1.0, positive=True, per_group=True, spread=0.01),
        "offset": tw.Unknown([0.0, 0.0]),
        "distortion": tw.Unknown(0.0),
    }


def image(q: Float[Array, " 4"], p: Parameters) -> Float[Array, " 4"]:
    """Where the camera shows elbow and tip: the lens pulls in what is far out, the pivot is not quite its marker."""
    points = q.reshape(2, 2)
    points = points * (1 - p["distortion"] * jnp.sum(points**2, 1, keepdims=True))
    return p["scale"] * (points + p["offset"][None]).reshape(-1)


def image_of_positions(x: State, p: Parameters) -> Float[Array, " 4"]:
    return image(x[:4], p)


def image_of_angles(x: State, p: Parameters) -> Float[Array, " 4"]:
    return image(positions(x[:2], p["ratio"]), p)


@functools.cache  # the same functions for every seed, so that a fit is compiled once
def build(width: int, *, projected: bool = True) -> tw.Twin:
    """The twin in positions, with or without projection."""
    pendulum = mechanism(Resistance(law(width), rate=20.0))
    held = {"projection": tw.Newton()} if projected else {}
    return tw.Twin(
        pendulum,
        params=parameters(),
        observe=image_of_positions,
        constraint=tw.constraint_of(pendulum),
        **held,  # pyright: ignore[reportArgumentType]
    )


@functools.cache
def build_angles(width: int) -> tw.Twin:
    """The twin in minimal coordinates, which cannot leave the rods; with a width of 0 the fitted physics."""
    return tw.Twin(
        Angles(Resistance(law(width) if width else None, rate=20.0)), params=parameters(), observe=image_of_angles
    )


@functools.cache
def build_black_box(width: int, units: tuple[tuple[float, ...], tuple[float, ...]]) -> tw.Twin:
    """A network for the whole field, in positions and velocities."""
    spread, rate = (jnp.array(each) for each in units)
    scaling = tw.Scaling(jnp.zeros(8), spread, rate)
    return tw.node(tw.MLP(width=width, depth=1, scaling=scaling), observe=lambda x: x[:4])


def fit(twin: tw.Twin, data: tw.Dataset, seed: int, quick: bool, methods: Any = None) -> tw.Fit:
    methods = tw.LevenbergMarquardt(5 if quick else 30) if methods is None else methods
    return tw.fit(twin, data, seeds=[seed], method=methods, loss=tw.Loss(scale="off"), progress=False)


def windows(records: Records, runs: tuple[str, ...], quick: bool, length: int = LENGTH) -> tw.Dataset:
    count = 20 if quick else WINDOWS * LENGTH // length
    return training(records, runs, count, length)


def parts(records: Records, quick: bool) -> dict[str, dict[str, Frames]]:
    """The frames of both tasks; few of them for a first look."""
    found = {
        "official": official(records, "test"),
        "free": free_runs(records, FREE, SEEN["free"] + PREDICTED["free"]),
    }
    return {task: dict(list(each.items())[: 4 if quick else None]) for task, each in found.items()}


def evaluate(records: Records, quick: bool, predict: Callable[[dict[str, Frames], int], Any], **more: Any) -> Outcome:
    """The errors [px] of predictions [N, T, 4] at each horizon, and how far the rods were stretched."""
    metrics, curves, shown = {}, {}, {}
    for task, frames in parts(records, quick).items():
        seen = SEEN[task]
        predicted, stretched = predict(frames, seen)
        measured = np.stack([outputs(each, seen) for each in frames.values()])
        error = root_mean_square(np.asarray(predicted), measured, seen)
        for horizon in HORIZONS[task]:
            metrics[f"{task}-{horizon}"] = float(error[round(horizon * FRAMES_PER_SECOND / 1000) - 1])
        if stretched is not None:
            metrics[f"{task}-rods"] = float(stretched)
        curves[task] = error.tolist()
        shown[task] = np.clip(np.asarray(predicted)[:4], -LONGEST, LONGEST).round(4).tolist()
    return {"metrics": metrics, "curves": curves, "shown": shown} | more


def root_mean_square(
    predicted: Float[np.ndarray, "N T 4"], measured: Float[np.ndarray, "N T 4"], seen: int
) -> Float[np.ndarray, " H"]:
    """The error of elbow and tip [px] at each frame after those that were seen."""
    squares = np.sum((predicted - measured)[:, seen:].reshape(len(measured), -1, 2, 2) ** 2, -1)
    squares = np.where(np.isfinite(squares), np.minimum(squares, LONGEST**2), LONGEST**2)
    return np.sqrt(squares.mean((0, 2))) * NOMINAL / PIXEL


def by_twin(twin: tw.Twin, convert: Callable[[tw.Dataset], tw.Dataset]) -> Callable[[dict[str, Frames], int], Any]:
    """Predictions of a twin, whose start is estimated from the frames that were seen."""

    def predict(frames: dict[str, Frames], seen: int) -> Any:
        started = eqx.tree_at(lambda twin: twin.warmup, twin, seen, is_leaf=lambda node: node is None)
        found = tw.predict(started, convert(sequences(frames, seen)))
        stretched = found.relative_violation.max() if found.relative_violation.shape[-1] else None
        return found.predicted[0], stretched

    return predict


def validation(records: Records, predict: Callable[[dict[str, Frames], int], Any]) -> float:
    """The error [px] over half a second in the last of the training runs, which the fit did not see."""
    length = SEEN["free"] + 200
    frames = dict(list(free_runs(records, TRAIN[-1:], length).items()))
    predicted, _ = predict(frames, SEEN["free"])
    measured = np.stack([outputs(each, SEEN["free"]) for each in frames.values()])
    return float(np.sqrt(np.mean(root_mean_square(np.asarray(predicted), measured, SEEN["free"]) ** 2)))


def same(data: tw.Dataset) -> tw.Dataset:
    return data


def twin(records: Records, design: int, seed: int, quick: bool) -> Outcome:
    data = in_positions(windows(records, TRAIN, quick))
    found = fit(build(design), data, seed, quick)
    return evaluate(records, quick, by_twin(found.twin, in_positions), **friction(found, data, banded=seed == 0))


def friction(found: tw.Fit, data: tw.Dataset, *, banded: bool) -> Outcome:
    """The friction of each joint while the other one is at rest, and for one seed its standard deviation."""

    def torques(twin: tw.Twin) -> Float[Array, "R 2"]:
        p, resistance = twin.parameters(0), twin.field.force.resistance  # pyright: ignore[reportFunctionMemberAccess]
        rates = jnp.asarray(RATES)
        laws = [[resistance(jnp.zeros(2).at[joint].set(rate), p)[joint] for rate in rates] for joint in (0, 1)]
        return jnp.array(laws).T

    values = {name: np.asarray(value).tolist() for name, value in found.twin.parameters(0).items()}
    shown: Outcome = {"friction": np.asarray(torques(found.twin)).tolist(), "p": values}
    if banded:
        band = tw.identify.posterior(found, data, loss=tw.Loss(scale="off")).spread_of(torques)
        shown["band"] = np.asarray(band).tolist()
    return shown


def unprojected(records: Records, design: int, seed: int, quick: bool) -> Outcome:
    found = fit(build(design, projected=False), in_positions(windows(records, TRAIN, quick)), seed, quick)
    return evaluate(records, quick, by_twin(found.twin, in_positions))


def minimal(records: Records, design: int, seed: int, quick: bool) -> Outcome:
    found = fit(build_angles(design), windows(records, TRAIN, quick), seed, quick)
    return evaluate(records, quick, by_twin(found.twin, same))


def fitted_physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design
    found = fit(build_angles(0), windows(records, TRAIN, quick), seed, quick)
    return evaluate(records, quick, by_twin(found.twin, same))


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """Rods of 91 mm as published, 400 frames a second, equal masses at elbow and tip, no friction."""
    del design, seed
    g = GRAVITY / MILLIMETRES
    p = {
        "A": 1.0,
        "B": RATIO**2 / 2,
        "C": RATIO / 2,
        "D": g,
        "G": g,
        "tilt": 0.0,
        "ratio": RATIO,
        "viscous": [0.0, 0.0],
    }
    p |= {"offset": [0.0, 0.0], "distortion": 0.0, "scale": tw.Unknown(1.0, positive=True, per_run=True, spread=0.01)}
    known = tw.Twin(Angles(Resistance()), params=p, observe=image_of_angles)
    return evaluate(records, quick, by_twin(known, same))


def fit_black_box(
    records: Records, runs: tuple[str, ...], design: Mapping[str, Any], seed: int, quick: bool
) -> tw.Twin:
    data = in_positions(windows(records, runs, quick, design["length"]))
    states = np.stack([np.asarray(run.x0) for run in data.runs])
    velocity = np.repeat(states[:, 4:].std(), 4)
    units = ((1.0,) * 4 + tuple(velocity), (*velocity, *(10 * velocity)))
    methods = [tw.Adam(20 if quick else 400, learning_rate=1e-2), tw.LevenbergMarquardt(5 if quick else 40)]
    return fit(build_black_box(design["width"], units), data, seed, quick, methods).twin


def validate_black_box(records: Records, design: Mapping[str, Any], quick: bool) -> float:
    return validation(records, by_twin(fit_black_box(records, TRAIN[:-1], design, 0, quick), in_positions))


def black_box(records: Records, design: Mapping[str, Any], seed: int, quick: bool) -> Outcome:
    return evaluate(records, quick, by_twin(fit_black_box(records, TRAIN, design, seed, quick), in_positions))


def joined(records: Records) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pieces of the training runs, without inputs, for models of equal steps."""
    length = 200
    found = [
        outputs(markers(records[run])[first : first + length], length)
        for run, first in pieces(records, TRAIN, 25, length)
    ]
    return [(np.zeros((length, 0)), y) for y in found]


def by_steps(simulate: Callable[[Any, Any], Any]) -> Callable[[dict[str, Frames], int], Any]:
    def predict(frames: dict[str, Frames], seen: int) -> Any:
        found = []
        for each in frames.values():
            y = outputs(each, seen)
            found.append(simulate(np.zeros((len(y), 0)), y[:seen]))
        return np.stack(found), None

    return predict


def state_space(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed
    model = StateSpace.identify(joined(records), order=8, block_rows=8)
    return evaluate(records, quick, by_steps(model.simulate))


def narx(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed
    model = Narx.identify(joined(records), lags=3, degree=2, terms=8)
    return evaluate(records, quick, by_steps(model.simulate))


def constant_velocity(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """Both rods keep turning as they did over the last four frames, and keep their lengths."""
    del design, seed

    def predict(frames: dict[str, Frames], seen: int) -> Any:
        found = []
        for each in frames.values():
            t = times(len(each))
            rate, angle = np.polyfit(t[seen - 4 : seen], rod_angles(each[:seen])[-4:], 1)
            scale = rod_lengths(each[:seen]).sum(1).mean() / (1 + RATIO) / NOMINAL
            found.append(scale * np.asarray(positions(jnp.asarray(angle + t[:, None] * rate), RATIO)))
        return np.stack(found), None

    return evaluate(records, quick, predict)


def persistence(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed
    return evaluate(
        records,
        quick,
        lambda frames, seen: (
            np.stack([np.repeat(outputs(x, seen)[seen - 1 : seen], len(x), 0) for x in frames.values()]),
            None,
        ),
    )


def metrics() -> dict[str, Metric]:
    names = {
        "official": "official test sequences, 4 frames in, 200 out",
        "free": "2 s free runs of runs 5 and 6, 40 frames in",
    }
    found = {}
    for task, name in names.items():
        for horizon in HORIZONS[task]:
            found[f"{task}-{horizon}"] = Metric(name, f"RMSE of elbow and tip after {horizon} ms", "px")
        found[f"{task}-rods"] = Metric(name, "largest violation of rods and their rates, relative", "1")
    return found


TASK = Task(
    "ibm_double_pendulum",
    "ibm_double_pendulum",
    "Double pendulum on video, three markers",
    load,
    metrics(),
    [
        Model("twin", twin, {"": WIDTH}, note=f"rods projected; friction of both rates, {WIDTH} units; {TRIED}"),
        Model("twin, unprojected", unprojected, {"": WIDTH}, note="the same without projection"),
        Model("twin, minimal coordinates", minimal, {"": WIDTH}, note="the same in angles, which keep the rods"),
        Model("fitted physics", fitted_physics, seeded=False, note="angles, viscous friction"),
        Model("physics", physics, seeded=False, note="lengths as published, equal masses, no friction"),
        Model(
            "black box",
            black_box,
            {
                "4 units, 20 frames": {"width": 4, "length": 20},
                "32 units, 20 frames": {"width": 32, "length": 20},
            },
            validate_black_box,
            note="NODE; 4 units have as many weights as the twin",
        ),
        Model("linear state space", state_space, seeded=False, note="N4SID, order 8"),
        Model("NARX", narx, seeded=False, note="FROLS, degree 2, 3 lags, 8 terms an output"),
        Model("constant velocity", constant_velocity, seeded=False, note="of the angles, which keeps the rods"),
        Model("persistence", persistence, seeded=False),
    ],
    draw,
)
