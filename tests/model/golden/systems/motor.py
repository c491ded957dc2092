"""A DC motor whose friction is unknown and of which only the current is measured: the speed is a hidden state.

Change this file to your own system. `twin()` is all that twinfold calls; it may import installed packages only.
A function takes what it names of t (time), x (state), w (inputs), p (parameters) and leaves out the rest.
"""

import jax.numpy as jnp

import twinfold as tw

STATES = ["current", "speed"]
UNITS = {"time": "s", "current": "A", "speed": "rad/s", "voltage": "V"}

INDUCTANCE, TORQUE, INERTIA = 5e-3, 0.05, 5e-5  # [H], [N m/A], [kg m^2]


def physics(t, x, w, p):
    """The physics you trust: the winding, and the torque of the current; friction is left out."""
    current, speed = x[0], x[1]
    return jnp.stack(
        [
            (w[0] - p["resistance"] * current - TORQUE * speed) / INDUCTANCE,
            TORQUE * current / INERTIA,
        ]
    )


def measured(x):
    """What is measured: the current."""
    return x[:1]


def at_rest(y):
    """The state at the start of a run, from the first measurement: the motor stands still."""
    return jnp.concatenate([y, jnp.zeros(1)])


def twin() -> tw.Twin:
    """The twin, before it is fitted."""
    # What you do not know: friction, a deceleration that depends on the speed. The scaling says what is a typical
    # speed, and a typical deceleration: here the speed is not measured, so the data cannot say it.
    scaling = tw.Scaling(center=jnp.zeros(1), spread=jnp.full(1, 100.0), output=jnp.full(1, 300.0))
    friction = tw.MLP(states=[1], adds_to=[1], width=12, depth=1, zero_last=True, scaling=scaling)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=friction),
        params={"resistance": tw.Unknown(1.0, positive=True)},
        observe=measured,
        initial=at_rest,
        integrator=tw.RK4(),
        # Where something has to hold (a conserved energy, a linkage that closes), say so here:
        # constraint=tw.Constraint(lambda x: ...), projection=tw.Newton(),
    )
