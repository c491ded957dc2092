"""A DC motor with unknown friction. Only its current is measured: the speed is a hidden state.

Replace this system by your own. twinfold calls `twin()` only; this file may import installed packages only.
A function names the arguments it needs, in any order: t (time), x (state), w (inputs), p (parameters).
"""

import jax.numpy as jnp

import twinfold as tw

STATES = ["current", "speed"]
UNITS = {"time": "s", "current": "A", "speed": "rad/s", "voltage": "V"}

INDUCTANCE, TORQUE, INERTIA = 5e-3, 0.05, 5e-5  # [H], [N m/A], [kg m^2]


def physics(t, x, w, p):
    """The known physics: the winding, and the torque of the current; friction is missing."""
    current, speed = x[0], x[1]
    return jnp.stack(
        [
            (w[0] - p["resistance"] * current - TORQUE * speed) / INDUCTANCE,
            TORQUE * current / INERTIA,
        ]
    )


def measured(x):
    """The measured output: the current."""
    return x[:1]


def at_rest(y):
    """The initial state, from the first measurement: the motor stands still."""
    return jnp.concatenate([y, jnp.zeros(1)])


def twin(width: int = 12, structure: str | list[str] = "") -> tw.Twin:
    """The twin, before it is fitted; `width` and `structure` of the network are set in [model] of twinfold.toml."""
    # The unknown physics: friction, a deceleration that depends on the speed.
    friction = tw.MLP(states=[1], adds_to=[1], width=width, depth=1, zero_last=True, structure=structure)
    return tw.Twin(
        field=tw.GreyBox(physics, residual=friction),
        params={"resistance": tw.Unknown(1.0, positive=True)},
        observe=measured,
        initial=at_rest,
        integrator=tw.RK4(),
        # For a system with invariants (a conserved energy, a closed linkage):
        # constraint=tw.Constraint(lambda x: ...), projection=tw.Newton(),
    )
