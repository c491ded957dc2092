"""A twin with a known residual, and runs of it, for the tests of reports."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import twinfold as tw
from twinfold.train._estimate import Estimate

HOSTILE = "<script>alert('run')</script>"
GAIN, SLOPE, SHIFT, OFFSET = 0.7, 1.3, 0.2, -0.1


def friction(v: np.ndarray) -> np.ndarray:
    """The residual of `known_twin`."""
    return GAIN * np.tanh(SLOPE * v + SHIFT) + OFFSET


def spring(t, x, w, p):
    return jnp.stack([x[1], -p["k"] * x[0] + w[0]])


def known_twin(**options: Any) -> tw.Twin:
    """A spring with an unknown stiffness and a residual of v with four given weights."""
    residual = tw.MLP(states=[1], adds_to=[1], width=1, depth=1)
    twin = tw.Twin(
        tw.GreyBox(spring, residual=residual), params={"k": tw.Unknown(2.0, positive=True)}, **options
    ).initialise(jax.random.key(0), states=2, inputs=1)
    layers: Any = lambda twin: [  # noqa: E731
        leaf for layer in twin.field.residual.network.weights.layers for leaf in (layer.weight, layer.bias)
    ]
    values = [jnp.array([[SLOPE]]), jnp.array([SHIFT]), jnp.array([[GAIN]]), jnp.array([OFFSET])]
    return eqx.tree_at(layers, twin, values)


def simulated_runs(twin: tw.Twin, names: list[str], *, samples: int = 25, noise: float = 0.01) -> tw.Dataset:
    """Runs of a twin under a constant push, measured with noise; some values are missing."""
    rng, ts = np.random.default_rng(3), np.linspace(0.0, 2.4, samples)
    ys, ws, x0s = [], [], []
    for index in range(len(names)):
        w, x0 = np.full((samples, 1), 0.1 * index), rng.normal(size=2)
        ys.append(np.asarray(twin.simulate(x0, ts, w).ys) + noise * rng.normal(size=(samples, 2)))
        ws.append(w)
        x0s.append(x0)
    ys[0][5:8, 1] = np.nan
    return tw.Dataset.from_arrays(ts, ys, inputs=ws, x0=x0s, names=names, output_names=["x", "v"], input_names=["push"])


def make_fit(twins: list[tw.Twin]) -> tw.Fit:
    """A fit whose seeds ended at these twins, without fitting: a stage of 3 epochs and one of 2."""
    estimates = [Estimate(twin, None) for twin in twins]
    parts = [eqx.partition(each, each.trainable("all")) for each in estimates]
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(part[0] for part in parts))
    seeds, epochs = len(twins), np.arange(5)[:, None]
    loss = 10.0 ** -(epochs + np.arange(seeds))
    stage = np.where(epochs < 3, 0, 1) * np.ones((1, seeds), int)
    return tw.Fit(
        seeds=tuple(range(seeds)),
        scores=2 * loss[-1],
        failures={},
        history={"loss": loss, "score": 2 * loss, "rate": loss, "failed_runs": 0 * loss, "stage": stage},
        seconds=1.0,
        interrupted=False,
        parameters=sum(leaf[0].size for leaf in jax.tree.leaves(params)),
        params=params,
        frozen=parts[0][1],
    )
