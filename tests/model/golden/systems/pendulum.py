"""A pendulum on a rod, pushed by a fan: what is known of it, what has to hold, and what is to be learned.

Change this file to your own system. `twin()` is all that twinfold calls; it may import installed packages only.
A function takes what it names of t (time), x (state), w (inputs), p (parameters) and leaves out the rest.
"""

import jax.numpy as jnp

import twinfold as tw

STATES = ["x", "y", "vx", "vy"]
UNITS = {"time": "s", "x": "m", "y": "m", "vx": "m/s", "vy": "m/s", "push": "N"}

LENGTH, GRAVITY = 1.2, 9.81  # [m], [m/s^2]


def physics(t, x, w, p):
    """The physics you trust: gravity, the push, and the rod, which pulls as much as it takes to stay on the circle."""
    place, velocity = x[:2], x[2:]
    free = jnp.stack([w[0] / p["mass"], -GRAVITY])
    rod = (free @ place + velocity @ velocity) / (place @ place)
    return jnp.concatenate([velocity, free - rod * place])


def on_the_circle(x):
    """What has to hold, whatever is learned: the rod keeps its length, and the bob moves along the circle."""
    return jnp.stack([x[:2] @ x[:2] - LENGTH**2, x[:2] @ x[2:]])


def position(x):
    """What is measured: the camera sees where the bob is, not how fast it moves."""
    return x[:2]


def at_rest(y):
    """The state at the start of a run, from the first measurement: the bob is let go."""
    return jnp.concatenate([y, jnp.zeros(2)])


def twin() -> tw.Twin:
    """The twin, before it is fitted."""
    # What you do not know: friction and air, an acceleration that depends on the velocity.
    drag = tw.MLP(states=[2, 3], adds_to=[2, 3], width=12, depth=1, zero_last=True)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=drag),
        params={"mass": tw.Unknown(1.0, positive=True)},  # [kg]; nobody weighed the bob: a first guess
        observe=position,
        initial=at_rest,
        integrator=tw.RK4(),
        constraint=tw.Constraint(on_the_circle),  # leave out this line and the next where nothing has to hold
        projection=tw.Newton(),
    )
