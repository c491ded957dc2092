"""A spring that loses a fifth of its stiffness: how soon the estimate is there, with the exact model and with a twin.

    x' = v,    v' = w - k x - friction(v),    friction(v) = 0.2 v + 0.1 tanh(v / 0.1)

The position is measured. The twin knows everything but the friction, which it has learned from healthy runs; both
follow k with moving-horizon estimation. Settled: the estimate stays within 1 % of the new value until the end.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import twinfold as tw
from twinfold.estimate import MovingHorizon, Noise, filtered

SEED = 2110
DT, SAMPLES, DROP_AT, HEALTHY, WORN = 0.05, 400, 150, 4.0, 3.2
RUNS, WINDOW, WITHIN = 20, 20, 0.01
SENSOR, PUSH, DRIFT = 0.001, 0.001, 0.002
TRAINING_RUNS, TRAINING_SAMPLES = 4, 200
TRACKING_SETTINGS = [SEED, DT, SAMPLES, DROP_AT, HEALTHY, WORN, RUNS, WINDOW, WITHIN, SENSOR, PUSH, DRIFT]


def friction(v: Any) -> Any:
    """The part that the twin has to learn."""
    return 0.2 * v + 0.1 * jnp.tanh(v / 0.1)


def known(x: Any, w: Any, p: Any) -> Array:
    """The part of the field that the twin knows."""
    return jnp.stack([x[1], w[0] - p["stiffness"] * x[0]])


def exact(x: Any, w: Any, p: Any) -> Array:
    """The whole field."""
    return known(x, w, p) - jnp.stack([jnp.zeros_like(x[1]), friction(x[1])])


def forces(ts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A sum of sines that moves the trolley by about one; [T, 1]."""
    rates, phases = rng.uniform(0.5, 3.0, 4), rng.uniform(0, 2 * np.pi, 4)
    return np.sum(np.sin(np.outer(ts, rates) + phases), axis=1)[:, None]


def parameters() -> dict[str, tw.Unknown]:
    """The stiffness, followed from its healthy value."""
    return {"stiffness": tw.Unknown(HEALTHY, positive=True)}


def learned_twin(*, quick: bool) -> tw.Twin:
    """The friction learned from healthy runs of known stiffness in which position and velocity were measured."""
    rng, ts = np.random.default_rng(SEED), DT * np.arange(TRAINING_SAMPLES)
    plant = tw.Twin(exact, params={"stiffness": HEALTHY}, integrator=tw.RK4(2))
    inputs = [forces(ts, rng) for _ in range(TRAINING_RUNS)]
    starts = [np.zeros(2)] * TRAINING_RUNS
    states = [np.asarray(plant.simulate(x0, ts, w).xs) for x0, w in zip(starts, inputs, strict=True)]
    noisy = [x + np.array([SENSOR, 5 * SENSOR]) * rng.normal(size=x.shape) for x in states]
    data = tw.Dataset.from_arrays(ts, noisy, inputs=inputs, x0=starts)
    field = tw.GreyBox(known, residual=tw.MLP(states=[1], adds_to=[1], width=8, depth=2))
    twin = tw.Twin(field, params={"stiffness": HEALTHY}, integrator=tw.RK4(2))
    steps = 10 if quick else 60
    stages = [tw.LevenbergMarquardt(steps, window=11), tw.LevenbergMarquardt(steps)]
    return tw.fit(twin, data, method=stages, progress=False).twin


def tracked(*, quick: bool) -> dict[str, Any]:
    """Samples until the estimate has settled, for each run and model, and one run to look at."""
    runs = 4 if quick else RUNS
    rng, ts = np.random.default_rng(SEED + 1), DT * np.arange(SAMPLES)
    plant = tw.Twin(exact, params=parameters(), integrator=tw.RK4(2), observe=lambda x: x[:1])
    w = np.stack([forces(ts, rng) for _ in range(runs)])
    stiffness = np.where(np.arange(SAMPLES) < DROP_AT, HEALTHY, WORN)
    pushes = np.sqrt(DT) * PUSH * rng.normal(size=(runs, SAMPLES))

    def one(w: Array, pushes: Array) -> Array:
        def step(x: Array, now: tuple) -> tuple[Array, Array]:
            t, force, k, push = now
            after = plant.cell.step(t, DT, x, force, force, {"stiffness": k}, jnp.zeros(0))[0].x
            return after + push * jnp.array([0.0, 1.0]), x[:1]

        return jax.lax.scan(step, jnp.zeros(2), (jnp.asarray(ts), w, jnp.asarray(stiffness), pushes))[1]

    y = np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(w), jnp.asarray(pushes)))
    y = y + SENSOR * rng.normal(size=y.shape)
    noise = Noise([0.0, PUSH], [SENSOR], drift={"stiffness": DRIFT})
    trained = learned_twin(quick=quick)
    twins = {
        "exact": plant,
        "learned": tw.Twin(trained.field, params=parameters(), integrator=tw.RK4(2), observe=lambda x: x[:1]),
    }
    found: dict[str, Any] = {"ts": ts.tolist(), "truth": stiffness.tolist()}
    for name, twin in twins.items():
        estimator = MovingHorizon(twin, noise, window=WINDOW)

        def follow(w: Array, y: Array, estimator: MovingHorizon = estimator) -> tuple[Array, Array]:
            belief = estimator.init(0.0, jnp.zeros(2), [0.01, 0.01], w=w[0], parameters={"stiffness": 0.02})
            estimate = jax.vmap(estimator.estimate)(filtered(estimator, belief, jnp.asarray(ts), y, w).corrected)
            return estimate.parameters["stiffness"], estimate.parameters_std["stiffness"]

        value, std = (np.asarray(each) for each in jax.jit(jax.vmap(follow))(jnp.asarray(w), jnp.asarray(y)))
        outside = np.abs(value[:, DROP_AT:] - WORN) > WITHIN * WORN
        last = np.where(outside.any(axis=1), SAMPLES - DROP_AT - np.argmax(outside[:, ::-1], axis=1), 0)
        found[name] = {
            "settled": np.where(last == SAMPLES - DROP_AT, np.inf, last).tolist(),
            "value": value[0].tolist(),
            "std": std[0].tolist(),
        }
    return found
