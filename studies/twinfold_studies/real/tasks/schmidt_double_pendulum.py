"""Schmidt and Lipson's double pendulum: a second from every second of the second trial, trained on the first one.

The first trial swings, the second one turns over: rates are twice as high as any that was trained on.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

import twinfold as tw
from twinfold_studies.real.double_pendulum import Angles, Resistance
from twinfold_studies.real.figures.double_pendulum import draw_runs
from twinfold_studies.real.free_runs import (
    PREDICTED,
    SEEN,
    by_steps,
    by_twin,
    constant_velocity,
    cut,
    dataset,
    filled,
    on_grid,
    outcome,
    score,
)
from twinfold_studies.real.free_runs import persistence as persist
from twinfold_studies.real.loaders.schmidt_lipson import load_double
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import StateSpace
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Metric, Model, Outcome, Task

COLUMNS = ("theta1", "theta2", "omega1", "omega2")
HELD_BACK = 620  # samples of the first trial after which designs are compared
RATES = np.linspace(-15, 15, 31)  # rad/s
LENGTH, GRAVITY = 0.16, 9.81  # m, a guess: no length is published; m/s^2


def pieces(records: Records, trial: str, every: int, length: int, part: slice = slice(None)) -> list[tw.Run]:
    grid = on_grid(records[trial], COLUMNS)[part]
    return cut(trial, grid[:, :2], grid, every=every, length=length)


def test_runs(records: Records) -> list[tw.Run]:
    return pieces(records, "trial-1", PREDICTED, SEEN + PREDICTED)


def parameters() -> dict[str, Any]:
    """Inertia and gravity in units of A."""
    unknown = {"B": 0.3, "C": 0.4, "D": 60.0, "G": 60.0, "viscous": [0.02, 0.01]}
    return {name: tw.Unknown(value, positive=True) for name, value in unknown.items()} | {
        "A": 1.0,
        "tilt": tw.Unknown(0.0),
    }


def angles(x):
    return x[:2]


@functools.cache
def build(width: int) -> tw.Twin:
    """The twin; the fitted physics where the width is 0."""
    law = tw.Network(2, 2, width, 1, structure=["odd", "dissipative"], zero_last=True) if width else None
    return tw.Twin(Angles(Resistance(law, rate=10.0)), params=parameters(), observe=angles, warmup=SEEN)


@functools.cache
def build_black_box(width: int) -> tw.Twin:
    scaling = tw.Scaling(jnp.zeros(4), jnp.array([1.0, 1.0, 5.0, 10.0]), jnp.array([5.0, 10.0, 50.0, 100.0]))
    return tw.node(tw.MLP(width=width, depth=1, scaling=scaling), observe=angles, warmup=SEEN)


def fit(twin: tw.Twin, runs: Sequence[tw.Run], seed: int, quick: bool, l2: float = 0.0, adam: int = 0) -> tw.Fit:
    methods = [tw.Adam(adam, learning_rate=1e-2)] if adam and not quick else []
    return tw.fit(
        twin,
        dataset(runs),
        seeds=[seed],
        method=[*methods, tw.LevenbergMarquardt(5 if quick else 40)],
        loss=tw.Loss(scale="off", l2=l2),
        progress=False,
    )


def training(records: Records, length: int, part: slice = slice(None)) -> list[tw.Run]:
    return pieces(records, "trial-0", length // 2, length, part)


def validation_runs(records: Records) -> list[tw.Run]:
    return pieces(records, "trial-0", PREDICTED // 2, SEEN + PREDICTED, slice(HELD_BACK, None))


def validate_twin(records: Records, design: Mapping[str, Any], quick: bool) -> float:
    runs = training(records, design["length"], slice(HELD_BACK))
    held = validation_runs(records)
    return score(held, by_twin(fit(build(design["width"]), runs, 0, quick, design["l2"]).twin, held))


def twin(records: Records, design: Mapping[str, Any], seed: int, quick: bool) -> Outcome:
    runs = training(records, design["length"])
    found = fit(build(design["width"]), runs, seed, quick, design["l2"])
    test = test_runs(records)
    more = {}
    if design["width"]:
        more = friction(found, dataset(runs), tw.Loss(scale="off", l2=design["l2"]), banded=seed == 0)
    return outcome(test, by_twin(found.twin, test), **more)


def friction(found: tw.Fit, data: tw.Dataset, loss: tw.Loss, *, banded: bool) -> Outcome:
    """The friction of each joint while the other one is at rest, and for one seed its standard deviation."""

    def torques(twin: tw.Twin) -> Any:
        p, resistance = twin.parameters(), twin.field.resistance  # pyright: ignore[reportFunctionMemberAccess]
        laws = [[resistance(jnp.zeros(2).at[joint].set(rate), p)[joint] for rate in RATES] for joint in (0, 1)]
        return jnp.array(laws).T

    shown: Outcome = {"rates": RATES.tolist(), "friction": np.asarray(torques(found.twin)).tolist()}
    if banded:
        shown["band"] = np.asarray(tw.identify.posterior(found, data, loss=loss).spread_of(torques)).tolist()
    return shown


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    """Two equal uniform rods without friction, A = 4/3, B = 1/3, C = 1/2 and D = 3/2 G, divided by A."""
    del design, seed, quick
    g = GRAVITY / LENGTH
    p = {"A": 1.0, "B": 0.25, "C": 0.375, "D": 1.125 * g, "G": g, "viscous": np.zeros(2), "tilt": 0.0}
    test = test_runs(records)
    return outcome(test, by_twin(tw.Twin(Angles(Resistance()), params=p, observe=angles, warmup=SEEN), test))


def validate_black_box(records: Records, design: Mapping[str, Any], quick: bool) -> float:
    runs = training(records, design["length"], slice(HELD_BACK))
    held = validation_runs(records)
    return score(held, by_twin(fit(build_black_box(design["width"]), runs, 0, quick, 1e-6, 300).twin, held))


def black_box(records: Records, design: Mapping[str, Any], seed: int, quick: bool) -> Outcome:
    found = fit(build_black_box(design["width"]), training(records, design["length"]), seed, quick, 1e-6, 300)
    test = test_runs(records)
    return outcome(test, by_twin(found.twin, test))


def record(records: Records) -> list[tuple[np.ndarray, np.ndarray]]:
    y = filled(on_grid(records["trial-0"], COLUMNS[:2]))
    return [(np.zeros((len(y), 0)), y)]


def state_space(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = test_runs(records)
    return outcome(test, by_steps(StateSpace.identify(record(records), order=6, block_rows=10).simulate, test))


def narx(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = test_runs(records)
    model = Narx.identify(record(records), lags=4, degree=3, terms=8)
    return outcome(test, by_steps(model.simulate, test))


def constant(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = test_runs(records)
    return outcome(test, constant_velocity(test))


def persistence(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = test_runs(records)
    return outcome(test, persist(test))


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    return draw_runs("schmidt_double_pendulum", "Schmidt and Lipson's double pendulum", test_runs(records), outcomes)


def choice(length: int, l2: float = 0.0, width: int = 6) -> dict[str, Any]:
    return {"length": length, "l2": l2, "width": width}


TASK = Task(
    "schmidt_double_pendulum",
    "schmidt_lipson",
    "Double pendulum of Schmidt and Lipson",
    load_double,
    {"rmse": Metric("free runs of 1 s, started every second of the last trial", "RMSE of both angles", "rad")},
    [
        Model(
            "twin",
            twin,
            {
                "windows of 0.4 s": choice(40),
                "windows of 1.1 s": choice(110),
                "windows of 1.1 s, l2 1e-6": choice(110, 1e-6),
            },
            validate_twin,
            note="friction learned",
        ),
        Model(
            "fitted physics",
            twin,
            {"windows of 0.4 s": choice(40, width=0), "windows of 1.1 s": choice(110, width=0)},
            validate_twin,
            seeded=False,
            note="viscous friction",
        ),
        Model("physics", physics, seeded=False, note="two equal uniform rods of 0.16 m (a guess), no friction"),
        Model(
            "black box",
            black_box,
            {"4 units": {"width": 4, "length": 40}, "24 units": {"width": 24, "length": 40}},
            validate_black_box,
            note="NODE; 4 units have as many weights as the twin",
        ),
        Model("linear state space", state_space, seeded=False, note="N4SID, order 6"),
        Model("NARX", narx, seeded=False, note="FROLS, degree 3, 4 lags, 8 terms an output"),
        Model("constant velocity", constant, seeded=False),
        Model("persistence", persistence, seeded=False),
    ],
    draw,
)
