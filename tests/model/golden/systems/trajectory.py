"""A PINN: a network of time and initial state, with a scaling and a known parameter that is an array."""

import jax.numpy as jnp

import twinfold as tw


def twin() -> tw.Twin:
    scaling = tw.Scaling(center=jnp.array([1.0, 0.5]), spread=jnp.array([0.6, 0.3]), output=jnp.array([0.4]))
    return tw.model.pinn(
        tw.model.TrajectoryNetwork(width=5, depth=1, scaling=scaling),
        lambda x, p: -p["k"] * x,
        tw.MLP(width=4, depth=1),
        params={"k": tw.Unknown(0.5), "offset": [1.0, 2.0]},
    )
