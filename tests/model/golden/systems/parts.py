"""A twin with arrays in every part: learned, algebraic, parameters per run and per group, bounds, metric."""

import jax.numpy as jnp

import twinfold as tw


def physics(t, x, z, w, p):
    return jnp.stack([-p["k"] * x[0] + z[0], x[0] - p["c"] * x[1] + w[0]])


def flow(x, z, p):
    return z + 0.1 * jnp.tanh(z) - p["g"] * x[1:2]


def twin() -> tw.Twin:
    return tw.Twin(
        tw.GreyBox(physics, tw.MLP(states=[0, 1], adds_to=[1], width=4, depth=1, inputs=[0])),
        params={
            "k": tw.Unknown(0.5, positive=True, per_run=True),
            "c": tw.Unknown(0.3, bounds=(0.0, 1.0), per_group=True),
            "g": tw.Unknown(0.2),
        },
        algebraic=tw.Implicit(flow, [0.1], ["flow"]),
        integrator=tw.RK4(2),
        constraint=tw.Stack([tw.Bounds(lambda x: x, lower=[0.0, 0.0])]),
        projection=tw.Newton(metric=[1.0, 2.0]),
        input_interpolation="linear",
    )
