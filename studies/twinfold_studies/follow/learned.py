"""The learned twin of a benchmark system: fitted to a few runs with sensor noise, with its posterior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import twinfold as tw
from twinfold.identify import posterior
from twinfold.model import simulate_unchecked
from twinfold_studies.bench.contenders import Design
from twinfold_studies.follow.plants import MEASURED, Recorded
from twinfold_studies.systems import system

SEED = 2101
TRAINING_RUNS, TRAINING_SAMPLES, TRAINING_NOISE = 8, 60, 0.005
PARAMETERS, EPOCHS, QUICK_EPOCHS = 300, (40, 20), (10, 5)
L2 = 1e-6
LOSS = tw.Loss(l2=L2)
TRAINING_SETTINGS = [SEED, TRAINING_RUNS, TRAINING_SAMPLES, TRAINING_NOISE, PARAMETERS, EPOCHS, L2]


def fit_twin(name: str, *, quick: bool) -> tuple[tw.Fit, tw.Dataset]:
    """The fit, and the data that it was made with: all states measured, without process noise."""
    given = system(name)
    ts = given.dt * np.arange(TRAINING_SAMPLES)
    truth = tw.Twin(given.truth, integrator=tw.RK4(given.substeps), constraint=given.constraint, projection=tw.Newton())
    starts = np.asarray(given.draw(jax.random.key(SEED), TRAINING_RUNS))
    clean = [np.asarray(truth.simulate(x0, ts).xs) for x0 in starts]
    rng = np.random.default_rng(SEED)
    noisy = [x + TRAINING_NOISE * rng.normal(size=x.shape) for x in clean]
    data = tw.Dataset.from_arrays(ts, noisy, x0=starts)
    twin = tw.phrpinn(
        given.physics,
        Design(given, PARAMETERS, None).residual(),
        given.constraint,
        integrator=tw.RK4(given.substeps),
        params=given.params,
    )
    windows, whole = QUICK_EPOCHS if quick else EPOCHS
    stages = [tw.LevenbergMarquardt(windows, window=11), tw.LevenbergMarquardt(whole)]
    fit = tw.fit(twin, data, method=stages, loss=LOSS, seeds=1, progress=False)
    return fit, data


def as_measured(name: str, fit: tw.Fit) -> tw.Twin:
    """The fitted twin, observed as the plant is."""
    seen = jnp.array(MEASURED[name])
    return eqx.tree_at(lambda twin: twin.observe, fit.twin, lambda x: x[seen], is_leaf=lambda node: node is None)


def trained_std(name: str, fit: tw.Fit, data: tw.Dataset, plant: Recorded) -> np.ndarray:
    """The standard deviation of the predicted outputs of the plant's runs that the trained values cause, [R, T, k]."""
    ts, starts = jnp.asarray(plant.ts), jnp.asarray(plant.x0)

    def outputs(twin: tw.Twin) -> Array:
        p = twin.parameters()
        return jax.vmap(lambda x0: simulate_unchecked(twin, x0, ts, None, p).xs)(starts)

    return posterior(fit, data, loss=LOSS).spread_of(outputs)[..., np.array(MEASURED[name])]
