"""Two tanks in a row; how the second one empties is unknown. Both levels are measured, some values are missing.

Change this file to your own system. `twin()` is all that twinfold calls; it may import installed packages only.
A function takes what it names of t (time), x (state), w (inputs), p (parameters) and leaves out the rest.
"""

import jax.numpy as jnp

import twinfold as tw

STATES = ["level1", "level2"]
UNITS = {"time": "s", "level1": "m", "level2": "m", "pump": "l/s"}

AREA1, AREA2 = 0.05, 0.04  # [m^2]


def physics(t, x, w, p):
    """The physics you trust: the pump fills the first tank, which runs into the second; its outlet is left out."""
    head = x[0] - x[1]
    between = p["valve"] * head / jnp.sqrt(jnp.sqrt(head**2 + 1e-4))  # sign(head) sqrt(|head|), smooth at zero
    return jnp.stack([(1e-3 * w[0] - between) / AREA1, between / AREA2])


def twin() -> tw.Twin:
    """The twin, before it is fitted."""
    # What you do not know: how fast the second tank empties, a rate that depends on its level.
    outlet = tw.MLP(states=[1], adds_to=[1], width=12, depth=1, zero_last=True, scaling="data")
    return tw.Twin(
        field=tw.GreyBox(physics, residual=outlet),
        params={"valve": tw.Unknown(1e-3, positive=True)},
        integrator=tw.RK4(substeps=4),  # the levels move fast beside the 10 s between two samples
        # Both states are measured, so nothing is said here of `observe` and `initial`. Where something has to hold:
        # constraint=tw.Constraint(lambda x: ...), projection=tw.Newton(),
    )
