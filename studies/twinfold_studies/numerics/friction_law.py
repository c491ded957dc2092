"""A friction law learned from measured positions, beside constraints that hold whatever has been learned."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.data import Dataset
from twinfold.model import Network, Twin, constraint_of
from twinfold.numerics import RK4, Cell, Midpoint, Newton, NoProjection, rollout
from twinfold.report import number
from twinfold.train import LevenbergMarquardt, fit
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.bench.figures import curves
from twinfold_studies.systems.pendulum import pendulum, pendulum_state

NOISE = 1e-3  # of the measured positions, of a rod of length 1
# Largest angles and rates at the start, half of the runs each: slow ones too, where a friction law is at its steepest.
FAST, SLOW = (2.5, 4.0), (0.4, 0.6)


def law(rate: jax.Array) -> jax.Array:
    """Coulomb friction with a smooth start, lower at speed (Stribeck), and a viscous part."""
    return 0.15 * jnp.tanh(rate / 0.3) * (1 + 0.8 * jnp.exp(-((rate / 0.8) ** 2))) + 0.08 * rate


def learned_friction(quick: bool) -> dict[str, Any]:
    """A friction law from measured positions of a pendulum, and what the twin then predicts."""
    count, samples, dt = (8, 20, 0.05) if quick else (32, 40, 0.05)
    truth, rng = pendulum(friction=law), np.random.default_rng(0)
    starts = np.concatenate([np.array(most) * rng.uniform(-1, 1, (count // 2, 2)) for most in (FAST, SLOW)])
    x0s = jnp.stack([pendulum_state(*each) for each in starts])
    exact = Cell(truth, integrator=RK4(substeps=20))
    ts = dt * jnp.arange(samples + 1)
    xs = jax.jit(jax.vmap(lambda x0: rollout(exact, x0, ts, throw=False).xs))(x0s)
    measured = np.asarray(xs[..., :2]) + NOISE * rng.normal(size=(count, samples + 1, 2))
    mechanism = pendulum(friction=Network(1, 1, 8, 2))
    twin = Twin(
        mechanism,
        observe=lambda x: x[:2],
        # A projection and four stages take long to compile.
        integrator=Midpoint(substeps=4) if quick else RK4(substeps=2),
        constraint=constraint_of(mechanism),
        projection=NoProjection() if quick else Newton(),
    )
    data = Dataset.from_arrays(ts, measured, x0=x0s)
    fitted = fit(twin, data, method=LevenbergMarquardt(10 if quick else 100), progress=False).twin
    seen = np.abs(np.asarray(xs[..., 0] * xs[..., 3] - xs[..., 1] * xs[..., 2]))
    fastest = float(np.quantile(seen, 0.98))
    rates = jnp.linspace(-fastest, fastest, 121)
    true, found = np.asarray(law(rates)), np.asarray(fitted.field.force.resistance(rates))  # pyright: ignore
    longer = 0.05 * jnp.arange(401)
    start = pendulum_state(2.8)
    simulated = fitted.simulate(start, longer, throw=False)
    reference = jax.jit(lambda x0: rollout(exact, x0, longer, throw=False).xs)(start)
    error = float(np.sqrt(np.mean((found - true) ** 2) / np.mean(true**2)))
    row = {
        "runs": count,
        "samples": samples + 1,
        "noise": NOISE,
        "projected": not quick,
        "law_error_rms": error,
        "law_error_max": float(np.abs(found - true).max() / np.abs(true).max()),
        "violation_max": float(simulated.trajectory.relative_violation.max()),
        "prediction_error": float(jnp.abs(simulated.xs[:, :2] - reference[:, :2]).max()),
    }
    return {"error": error, "rows": [row], "rates": rates.tolist(), "true": true.tolist(), "found": found.tolist()}


def law_picture(friction: dict[str, Any]) -> Picture:
    """True and learned law."""
    rates = np.array(friction["rates"])
    panel = {"true": (rates, np.array(friction["true"])), "learned": (rates, np.array(friction["found"]))}
    return Picture(
        "index_friction",
        "A friction law learned from positions",
        f"Torque against the rate of the joint; relative error {number(friction['error'])} (rms), over 98 % of the "
        "rates in the data.",
        lambda: curves(
            {"joint of a pendulum": panel}, "rate (rad/s)", "torque (N m)", log=(False, False), markers=False
        ),
    )
