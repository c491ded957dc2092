"""Plants whose estimates can be judged: the benchmark systems with process noise, some of their states hidden.

A plant obeys the model of the filter: a step, Gaussian noise in the tangent space of the manifold, and the nearest
point of the manifold. The levels of its invariants are known, so that n states have n - m degrees of freedom.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import twinfold as tw
from twinfold.estimate import Noise
from twinfold_studies.systems import system

# What is measured, written down before any estimate was made; all else is hidden.
MEASURED: dict[str, tuple[int, ...]] = {
    "mass_spring": (0,),
    "lotka_volterra": (0,),
    "two_body": (0, 1),
    "nonlinear_spring": (0,),
    "robot_arm": (0,),
    "rigid_body": (0, 1),
}
SEED = 2100
RUNS, SAMPLES = 100, 50
START, PROCESS, SENSOR = 0.05, 0.01, 0.02  # standard deviations, in the units of the states, whose size is about one
PLANT_SETTINGS = [MEASURED, SEED, START, PROCESS, SENSOR]


@dataclass(frozen=True)
class Recorded:
    """Runs of a plant: guesses `x0` of the starts, levels, times, true states [R, T, n], measurements [R, T, k]."""

    x0: np.ndarray
    level: np.ndarray
    ts: np.ndarray
    x: np.ndarray
    y: np.ndarray


def exact_twin(name: str, *, projected: bool = True) -> tw.Twin:
    """The system with its true field; without projection it is a state-space model like any other."""
    given, seen = system(name), jnp.array(MEASURED[name])
    return tw.Twin(
        given.truth,
        observe=lambda x: x[seen],
        integrator=tw.RK4(given.substeps),
        constraint=given.constraint,
        projection=tw.Newton() if projected else None,
    )


def noise_of(name: str) -> Noise:
    """Process and measurement noise of the plant."""
    return Noise([PROCESS] * len(system(name).state_names), [SENSOR] * len(MEASURED[name]))


def record(name: str, runs: int, samples: int, seed: int = SEED) -> Recorded:
    """Runs of the plant with process and measurement noise."""
    given, twin = system(name), exact_twin(name)
    keys = jax.random.split(jax.random.key(seed), 4)
    guesses = given.draw(keys[0], runs)
    n, k = guesses.shape[1], len(MEASURED[name])
    ts = given.dt * jnp.arange(samples)

    def moved(t: Any, x: Any, noise: Any, level: Any) -> Any:
        return tw.Newton().project(given.constraint, t, x + noise, {}, level).x

    def run(guess: Any, first: Any, pushes: Any) -> tuple:
        level = given.constraint.level(ts[0], guess, {})

        def step(x: Any, now: tuple) -> tuple:
            t, push = now
            after = twin.cell.step(t, given.dt, x, None, None, {}, level)[0].x
            after = moved(t + given.dt, after, np.sqrt(given.dt) * push, level)
            return after, after

        x0 = moved(ts[0], guess, first, level)
        xs = jax.lax.scan(step, x0, (ts[:-1], pushes))[1]
        return level, jnp.concatenate([x0[None], xs])

    first = START * jax.random.normal(keys[1], (runs, n))
    pushes = PROCESS * jax.random.normal(keys[2], (runs, samples - 1, n))
    level, x = jax.jit(jax.vmap(run))(guesses, first, pushes)
    y = x[..., jnp.array(MEASURED[name])] + SENSOR * jax.random.normal(keys[3], (runs, samples, k))
    return Recorded(*(np.asarray(each) for each in (guesses, level, ts, x, y)))
