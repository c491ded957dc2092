"""Two tanks in a row. The level of the lower one is measured; the outflow of the upper one is known roughly."""

import jax.numpy as jnp

import twinfold as tw

STATES = ["upper", "lower"]
UNITS = {"time": "s", "upper": "m", "lower": "m", "pump": "m2/s", "level": "m"}


def root(level):
    """The root of a level; an empty tank has no outflow."""
    return jnp.sqrt(jnp.maximum(level, 1e-6))


def physics(x, w, p):
    """The balance of both tanks; outflows by Torricelli's law."""
    between = p["upper"] * root(x[0])
    return jnp.stack([w[0] - between, between - p["lower"] * root(x[1])])


def measured(x):
    """The lower level."""
    return x[1:]


def equal(y):
    """A first guess of the initial state: both levels are the same."""
    return jnp.concatenate([y, y])


def twin(width: int = 12, substeps: int = 1) -> tw.Twin:
    """The twin: a network of the upper level corrects its rate."""
    outflow = tw.MLP(states=[0], adds_to=[0], width=width, depth=1, zero_last=True)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=outflow),
        params={"upper": tw.Unknown(0.7, positive=True), "lower": tw.Unknown(0.7, positive=True)},
        observe=measured,
        initial=equal,
        integrator=tw.RK4(substeps),
    )
