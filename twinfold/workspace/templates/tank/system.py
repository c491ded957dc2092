"""Two tanks in series; the outlet of the second is unknown. Both levels are measured, some values are missing.

Replace this system by your own. twinfold calls `twin()` only; this file may import installed packages only.
A function names the arguments it needs, in any order: t (time), x (state), w (inputs), p (parameters).
"""

import jax.numpy as jnp

import twinfold as tw

STATES = ["level1", "level2"]
UNITS = {"time": "s", "level1": "m", "level2": "m", "pump": "l/s"}

AREA1, AREA2 = 0.05, 0.04  # [m^2]


def physics(t, x, w, p):
    """The known physics: the pump fills the first tank, which drains into the second; the outlet is missing."""
    head = x[0] - x[1]
    flow = p["valve"] * head / jnp.sqrt(jnp.sqrt(head**2 + 1e-4))  # sign(head) sqrt(|head|), smooth at zero
    return jnp.stack([(1e-3 * w[0] - flow) / AREA1, flow / AREA2])


def twin(width: int = 12, structure: str | list[str] = "") -> tw.Twin:
    """The twin, before it is fitted; `width` and `structure` of the network are set in [model] of twinfold.toml."""
    # The unknown physics: the outlet of the second tank, a rate that depends on its level.
    outlet = tw.MLP(states=[1], adds_to=[1], width=width, depth=1, zero_last=True, structure=structure)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=outlet),
        params={"valve": tw.Unknown(1e-3, positive=True)},
        integrator=tw.RK4(substeps=4),  # the levels change quickly compared with the 10 s between two samples
        # Both states are measured, so `observe` and `initial` are not needed. For a system with invariants:
        # constraint=tw.Constraint(lambda x: ...), projection=tw.Newton(),
    )
