"""A pendulum on a rod, pushed by a fan. Its friction and the mass of the bob are unknown.

Replace this system by your own. twinfold calls `twin()` only; this file may import installed packages only.
A function names the arguments it needs, in any order: t (time), x (state), w (inputs), p (parameters).
"""

import jax.numpy as jnp

import twinfold as tw

STATES = ["x", "y", "vx", "vy"]
UNITS = {"time": "s", "x": "m", "y": "m", "vx": "m/s", "vy": "m/s", "push": "N"}

LENGTH, GRAVITY = 1.2, 9.81  # [m], [m/s^2]


def physics(t, x, w, p):
    """The known physics: gravity, the push of the fan, and the force of the rod, which holds the bob on a circle."""
    position, velocity = x[:2], x[2:]
    free = jnp.stack([w[0] / p["mass"], -GRAVITY])
    rod = (free @ position + velocity @ velocity) / (position @ position)
    return jnp.concatenate([velocity, free - rod * position])


def on_the_circle(x):
    """The invariants: the length of the rod is constant, and the velocity is tangential."""
    return jnp.stack([x[:2] @ x[:2] - LENGTH**2, x[:2] @ x[2:]])


def measured(x):
    """The measured outputs: a camera records the position of the bob, but not its velocity."""
    return x[:2]


def at_rest(y):
    """The initial state, from the first measurement: the bob is released at rest."""
    return jnp.concatenate([y, jnp.zeros(2)])


def twin(width: int = 12, structure: str | list[str] = "") -> tw.Twin:
    """The twin, before it is fitted; `width` and `structure` of the network are set in [model] of twinfold.toml."""
    # The unknown physics: friction and air drag, an acceleration that depends on the velocity.
    drag = tw.MLP(states=[2, 3], adds_to=[2, 3], width=width, depth=1, zero_last=True, structure=structure)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=drag),
        params={"mass": tw.Unknown(1.0, positive=True)},  # [kg], a first guess
        observe=measured,
        initial=at_rest,
        integrator=tw.RK4(),
        constraint=tw.Constraint(on_the_circle),  # omit this line and the next for a system without invariants
        projection=tw.Newton(),
    )
