"""The learned twin of a benchmark system: fitted to runs with sensor noise, and how far it is to be trusted.

The fit is that of the comparison's protocol `best`, to as many runs as the system has for training and validation. It
does not tell how large the error is that is left in the twin, nor what will push the plant. Both are process noise,
which is estimated from healthy runs of the plant itself: not those that are judged.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import twinfold as tw
from twinfold.estimate import ExtendedKalmanFilter, Noise, fit_noise
from twinfold.model import simulate_unchecked
from twinfold_studies.bench.contenders import Design
from twinfold_studies.bench.protocols import PROTOCOLS
from twinfold_studies.follow.plants import MEASURED, PROCESS, SENSOR, START, record
from twinfold_studies.systems import system

SEED, SEEDS = 2101, 2
TRAINING_SAMPLES, TRAINING_NOISE, PARAMETERS = 60, 0.005, 300
STAGES, LOSS = PROTOCOLS["best"].stages, tw.Loss()
QUICK = (tw.LevenbergMarquardt(10, window=11),)
HEALTHY_SEED, HEALTHY_RUNS = 2102, 40  # runs of the plant from which the noise is estimated
GUESS = 3.0  # the search begins with so many times the noise of the plant
TRAINING_SETTINGS = [
    SEED,
    SEEDS,
    TRAINING_SAMPLES,
    TRAINING_NOISE,
    PARAMETERS,
    str(STAGES),
    str(LOSS),
    HEALTHY_SEED,
    HEALTHY_RUNS,
]


class Levels(NamedTuple):
    """Noise for a filter, from innovations, and for simulations, from their errors."""

    filtering: Noise
    simulation: Noise


def fit_twin(name: str, *, quick: bool) -> tw.Twin:
    """The twin, fitted to runs in which all states were measured, and observed as the plant is."""
    given = system(name)
    ts = given.dt * np.arange(TRAINING_SAMPLES)
    truth = tw.Twin(given.truth, integrator=tw.RK4(given.substeps), constraint=given.constraint, projection=tw.Newton())
    starts = given.draw(jax.random.key(SEED), given.train + given.valid)
    p = truth.parameters()
    clean = np.asarray(jax.vmap(lambda x0: simulate_unchecked(truth, x0, jnp.asarray(ts), None, p).xs)(starts))
    noisy = clean + TRAINING_NOISE * np.random.default_rng(SEED).normal(size=clean.shape)
    train, valid = (
        tw.Dataset.from_arrays(ts, noisy[rows], x0=np.asarray(starts)[rows])
        for rows in (slice(given.train), slice(given.train, None))
    )
    twin = tw.phrpinn(
        given.physics,
        Design(given, PARAMETERS, None).residual(),
        given.constraint,
        integrator=tw.RK4(given.substeps),
        params=given.params,
    )
    method = QUICK if quick else STAGES
    fitted = tw.fit(
        twin, train, valid=valid, method=method, loss=LOSS, seeds=1 if quick else SEEDS, progress=False
    ).twin
    seen = jnp.array(MEASURED[name])
    return eqx.tree_at(lambda twin: twin.observe, fitted, lambda x: x[seen], is_leaf=lambda node: node is None)


def noise_levels(name: str, twin: tw.Twin, samples: int) -> Levels:
    """How far a twin is to be trusted, from healthy runs of the plant that start as those that are judged."""
    plant = record(name, HEALTHY_RUNS, samples, HEALTHY_SEED)
    data = tw.Dataset.from_arrays(plant.ts, plant.y, x0=plant.x0)
    n, k = plant.x.shape[-1], plant.y.shape[-1]
    estimator = ExtendedKalmanFilter(twin, Noise([GUESS * PROCESS] * n, [GUESS * SENSOR] * k))
    options: dict[str, Any] = {"std": [START] * n, "exact_level": True}
    return Levels(*(fit_noise(estimator, data, open_loop=each, **options).noise for each in (False, True)))
