"""A friction law learned from measured positions; the constraints hold for any learned law."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.data import Dataset
from twinfold.model import Network, Twin, constraint_of
from twinfold.numerics import RK4, Cell, Midpoint, Newton, NoProjection, rollout
from twinfold.report import format_number
from twinfold.train import LevenbergMarquardt, fit
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.bench.figures import curves
from twinfold_studies.systems.pendulum import pendulum, pendulum_state

NOISE = 1e-3  # standard deviation of measured positions; the rod has length 1
# Largest initial angles and rates of each half of the runs. A friction law is steepest at low rates.
FAST, SLOW = (2.5, 4.0), (0.4, 0.6)


def law(rate: jax.Array) -> jax.Array:
    """Smoothed Coulomb friction with Stribeck effect, and viscous friction."""
    return 0.15 * jnp.tanh(rate / 0.3) * (1 + 0.8 * jnp.exp(-((rate / 0.8) ** 2))) + 0.08 * rate


def learned_friction(quick: bool) -> dict[str, Any]:
    """A friction law from measured positions of a pendulum, and the error of its predictions."""
    count, samples, dt = (8, 20, 0.05) if quick else (32, 40, 0.05)
    truth, rng = pendulum(friction=law), np.random.default_rng(0)
    starts = np.concatenate([np.array(largest) * rng.uniform(-1, 1, (count // 2, 2)) for largest in (FAST, SLOW)])
    x0s = jnp.stack([pendulum_state(*each) for each in starts])
    exact = Cell(truth, integrator=RK4(substeps=20))
    ts = dt * jnp.arange(samples + 1)
    xs = jax.jit(jax.vmap(lambda x0: rollout(exact, x0, ts, throw=False).xs))(x0s)
    measured = np.asarray(xs[..., :2]) + NOISE * rng.normal(size=(count, samples + 1, 2))
    mechanism = pendulum(friction=Network(1, 1, 8, 2))
    twin = Twin(
        mechanism,
        observe=lambda x: x[:2],
        # A quick run avoids the compilation time of the projection and of four stages.
        integrator=Midpoint(substeps=4) if quick else RK4(substeps=2),
        constraint=constraint_of(mechanism),
        projection=NoProjection() if quick else Newton(),
    )
    data = Dataset.from_arrays(ts, measured, x0=x0s)
    fitted = fit(twin, data, method=LevenbergMarquardt(10 if quick else 100), progress=False).twin
    measured_rates = np.abs(np.asarray(xs[..., 0] * xs[..., 3] - xs[..., 1] * xs[..., 2]))
    fastest = float(np.quantile(measured_rates, 0.98))
    rates = jnp.linspace(-fastest, fastest, 121)
    true, learned = np.asarray(law(rates)), np.asarray(fitted.field.force.resistance(rates))  # pyright: ignore
    longer = 0.05 * jnp.arange(401)
    start = pendulum_state(2.8)
    simulated = fitted.simulate(start, longer, throw=False)
    reference = jax.jit(lambda x0: rollout(exact, x0, longer, throw=False).xs)(start)
    error = float(np.sqrt(np.mean((learned - true) ** 2) / np.mean(true**2)))
    row = {
        "runs": count,
        "samples": samples + 1,
        "noise": NOISE,
        "projected": not quick,
        "law_error_rms": error,
        "law_error_max": float(np.abs(learned - true).max() / np.abs(true).max()),
        "violation_max": float(simulated.trajectory.relative_violation.max()),
        "prediction_error": float(jnp.abs(simulated.xs[:, :2] - reference[:, :2]).max()),
    }
    return {"error": error, "rows": [row], "rates": rates.tolist(), "true": true.tolist(), "found": learned.tolist()}


def law_picture(friction: dict[str, Any]) -> Picture:
    """The true and the learned law."""
    rates = np.array(friction["rates"])
    panel = {"true": (rates, np.array(friction["true"])), "learned": (rates, np.array(friction["found"]))}
    return Picture(
        "index_friction",
        "A friction law learned from positions",
        f"Torque against the rate of the joint; relative rms error {format_number(friction['error'])} over 98 % of the "
        "rates in the data.",
        lambda: curves(
            {"joint of a pendulum": panel}, "rate (rad/s)", "torque (N m)", log=(False, False), markers=False
        ),
    )
