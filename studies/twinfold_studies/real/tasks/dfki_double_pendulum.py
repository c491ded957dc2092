"""DFKI's double pendulum under motor torques: a second from every second of runs 12 and 13, trained on the others.

The torques of these two runs are five times as large as any that was trained on, and one of them starts upright.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import twinfold as tw
from twinfold.typing import Parameters, State
from twinfold_studies.real.double_pendulum import Resistance, angular_accelerations
from twinfold_studies.real.figures.double_pendulum import draw_runs
from twinfold_studies.real.free_runs import (
    PREDICTED,
    SEEN,
    STEP,
    by_steps,
    by_twin,
    constant_velocity,
    cut,
    dataset,
    outcome,
    score,
)
from twinfold_studies.real.free_runs import persistence as persist
from twinfold_studies.real.loaders.dfki_double_pendulum import load, resampled
from twinfold_studies.real.rivals.narx import Narx
from twinfold_studies.real.rivals.state_space import StateSpace
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Metric, Model, Outcome, Task

TRAIN = tuple(f"trajectory_{run:02d}" for run in range(7))
TEST = ("trajectory_12", "trajectory_13")
HELD_BACK = TRAIN[5:]
RATES = np.linspace(-8, 8, 33)  # rad/s
GRAVITY, LENGTH = 9.81, 0.2
# Identified by the authors: m1, m2 [kg], centres of mass r [m], moments of inertia I [kg m^2], gear ratio 6.
M1, M2, R1, R2, I1, I2, ROTOR = 0.6417, 0.5639, 0.2, 0.3213, 0.02671, 0.05388, 6**2 * 9.94e-5
PUBLISHED = {
    "A": I1 + M2 * LENGTH**2 + ROTOR,
    "B": I2,
    "C": M2 * LENGTH * R2,
    "D": (M1 * R1 + M2 * LENGTH) * GRAVITY,
    "rotor": ROTOR,
    "viscous": [0.001, 0.001],
    "coulomb": [0.093, 0.078],
}


class Arm(eqx.Module):
    """The field in the angles of shoulder and elbow, x = (q, q'), with what resists and a learned torque, if any."""

    resistance: Resistance
    torque: Callable | None = None

    def __call__(self, x: State, w: Float[Array, " 2"], p: Parameters) -> State:
        q, rates = x[:2], x[2:]
        torques = w - self.resistance(rates, p)
        angles, turning = jnp.cumsum(q), jnp.cumsum(rates)
        if self.torque is not None:
            seen = [jnp.sin(angles), jnp.cos(angles), jnp.tanh(rates / 5), jnp.tanh(w)]
            torques = torques + 0.1 * self.torque(jnp.concatenate(seen))
        first, second = angular_accelerations(angles, turning, torques, p)
        return jnp.concatenate([rates, jnp.stack([first, second - first])])


def angles_of(x):
    return x[:2]


@functools.cache
def build(kind: str, width: int) -> tw.Twin:
    """The twin; the fitted physics, or that as published, where nothing is learned."""
    law = torque = None
    if kind == "friction":
        law = tw.Network(2, 2, width, 1, structure=["odd", "dissipative"], zero_last=True)
    elif kind == "torque":
        torque = tw.Network(8, 2, width, 1, zero_last=True)
    known = kind == "published"
    params = {name: np.asarray(v) if known else tw.Unknown(v, positive=True) for name, v in PUBLISHED.items()}
    return tw.Twin(
        Arm(Resistance(law, rate=5.0, torque=0.1, stick=0.2), torque),
        params=params | {"G": GRAVITY / LENGTH},
        observe=angles_of,
        warmup=SEEN,
        integrator=tw.RK4(substeps=2),
    )


@functools.cache
def build_black_box(width: int) -> tw.Twin:
    spread, rate = jnp.array([0.5, 0.5, 2.5, 4.0, 0.4, 0.5]), jnp.array([2.5, 4.0, 20.0, 40.0])
    network = tw.MLP(inputs=[0, 1], width=width, depth=1, scaling=tw.Scaling(jnp.zeros(6), spread, rate))
    return tw.node(network, observe=angles_of, warmup=SEEN, integrator=tw.RK4(substeps=2))


def pieces(records: Records, names: Sequence[str], *, every: int = PREDICTED) -> list[tw.Run]:
    found = []
    for name in names:
        even = resampled(records[name], STEP)
        angles, rates, torques = (np.stack([even[f"{column}{i}"] for i in (1, 2)], 1) for column in ("q", "dq", "tau"))
        found += cut(name, angles, np.hstack([angles, rates]), every=every, inputs=torques)
    return found


def fit(twin: tw.Twin, runs: Sequence[tw.Run], seed: int, quick: bool, l2: float = 0.0, adam: int = 0) -> tw.Fit:
    methods = [tw.Adam(adam, learning_rate=1e-2)] if adam and not quick else []
    return tw.fit(
        twin,
        dataset(runs[:8] if quick else runs),
        seeds=[seed],
        method=[*methods, tw.LevenbergMarquardt(5 if quick else 30)],
        loss=tw.Loss(scale="off", l2=l2),
        progress=False,
    )


def others() -> list[str]:
    return [name for name in TRAIN if name not in HELD_BACK]


def validate_twin(records: Records, design: Mapping[str, Any], quick: bool) -> float:
    held = pieces(records, HELD_BACK)
    found = fit(build(design["kind"], design["width"]), pieces(records, others()), 0, quick, design["l2"])
    return score(held, by_twin(found.twin, held))


def twin(records: Records, design: Mapping[str, Any], seed: int, quick: bool) -> Outcome:
    runs, test = pieces(records, TRAIN), pieces(records, TEST)
    found = fit(build(design["kind"], design["width"]), runs, seed, quick, design["l2"])
    values = {name: np.asarray(value).tolist() for name, value in found.twin.parameters().items()}
    return outcome(test, by_twin(found.twin, test), p=values, **learned(found, runs, design["l2"], seed))


def learned(found: tw.Fit, runs: Sequence[tw.Run], l2: float, seed: int) -> Outcome:
    """What the arm resists at rest in its hanging position, joint by joint, and for one seed its standard deviation."""

    def resistance(twin: tw.Twin) -> Float[Array, "R 2"]:
        p, arm = twin.parameters(), twin.field

        def at(rate: Array) -> Array:
            laws = arm.resistance(jnp.stack([rate, rate]), p)  # pyright: ignore[reportFunctionMemberAccess]
            if arm.torque is None:  # pyright: ignore[reportFunctionMemberAccess]
                return laws
            still = jnp.array([0.0, 0.0, 1.0, 1.0])
            each = [
                arm.torque(jnp.concatenate([still, jnp.tanh(jnp.zeros(2).at[i].set(rate) / 5), jnp.zeros(2)]))[i]  # pyright: ignore[reportFunctionMemberAccess]
                for i in (0, 1)
            ]
            return laws - 0.1 * jnp.stack(each)

        return jax.vmap(at)(jnp.asarray(RATES))

    shown: Outcome = {"rates": RATES.tolist(), "friction": np.asarray(resistance(found.twin)).tolist()}
    if seed == 0:
        spread = tw.identify.posterior(found, dataset(runs), loss=tw.Loss(scale="off", l2=l2)).spread_of(resistance)
        shown["band"] = np.asarray(spread).tolist()
    return shown


def fitted_physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design
    test = pieces(records, TEST)
    found = fit(build("physics", 0), pieces(records, TRAIN), seed, quick).twin
    values = {name: np.asarray(value).tolist() for name, value in found.parameters().items()}
    return outcome(test, by_twin(found, test), p=values)


def physics(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = pieces(records, TEST)
    return outcome(test, by_twin(build("published", 0), test))


def validate_black_box(records: Records, design: int, quick: bool) -> float:
    held = pieces(records, HELD_BACK)
    return score(held, by_twin(fit(build_black_box(design), pieces(records, others()), 0, quick, 1e-6, 200).twin, held))


def black_box(records: Records, design: int, seed: int, quick: bool) -> Outcome:
    test = pieces(records, TEST)
    found = fit(build_black_box(design), pieces(records, TRAIN), seed, quick, 1e-6, 200)
    return outcome(test, by_twin(found.twin, test))


def steps(records: Records) -> list[tuple[np.ndarray, np.ndarray]]:
    """Inputs and outputs of the training runs, 5 s of each: more is too much for the subspace method."""
    found = []
    for name in TRAIN:
        even = resampled(records[name], STEP)
        found.append(tuple(np.stack([even[f"{column}{i}"] for i in (1, 2)], 1)[:500] for column in ("tau", "q")))
    return found


def state_space(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = pieces(records, TEST)
    return outcome(test, by_steps(StateSpace.identify(steps(records), order=4, block_rows=10).simulate, test))


def narx(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = pieces(records, TEST)
    return outcome(test, by_steps(Narx.identify(steps(records), lags=3, degree=2, terms=8).simulate, test))


def constant(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = pieces(records, TEST)
    return outcome(test, constant_velocity(test))


def persistence(records: Records, design: None, seed: int, quick: bool) -> Outcome:
    del design, seed, quick
    test = pieces(records, TEST)
    return outcome(test, persist(test))


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    return draw_runs("dfki_double_pendulum", "DFKI's double pendulum", pieces(records, TEST), outcomes, "Nm")


TASK = Task(
    "dfki_double_pendulum",
    "dfki_double_pendulum",
    "Double pendulum under motor torques",
    load,
    {"rmse": Metric("free runs of 1 s, started every second of runs 12 and 13", "RMSE of both angles", "rad")},
    [
        Model(
            "twin",
            twin,
            {
                "friction of both rates, 6 units": {"kind": "friction", "width": 6, "l2": 1e-6},
                **{
                    f"torque, 6 units, l2 {l2:g}": {"kind": "torque", "width": 6, "l2": l2} for l2 in (1e-5, 1e-4, 1e-3)
                },
            },
            validate_twin,
            note="friction or all torques learned",
        ),
        Model("fitted physics", fitted_physics, seeded=False, note="viscous and Coulomb friction"),
        Model("physics", physics, seeded=False, note="parameters as published by the authors"),
        Model(
            "black box",
            black_box,
            {"6 units": 6, "24 units": 24},
            validate_black_box,
            note="NODE; 6 units have as many weights as the twin",
        ),
        Model("linear state space", state_space, seeded=False, note="N4SID, order 4"),
        Model("NARX", narx, seeded=False, note="FROLS, degree 2, 3 lags, 8 terms an output"),
        Model("constant velocity", constant, seeded=False),
        Model("persistence", persistence, seeded=False),
    ],
    draw,
)
