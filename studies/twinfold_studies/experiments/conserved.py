"""Which conserved quantities to add: a spherical pendulum with position and velocity constraints, and more.

A projection that holds the energy moves the state along the gradient of the energy. Whatever else is conserved, here
the angular momentum about the vertical, is then moved too, unless it is held as well.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.model import Conserved, Constraint, Stack
from twinfold.numerics import RK4, Cell, Newton, rollout
from twinfold.report import format_number
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Table
from twinfold_studies.bench.store import Store

GRAVITY, DURATION = 9.81, 20.0
STEPS = (0.05, 0.02, 0.01, 0.005)
# Position and velocity on the unit sphere: a wide swing, and one that nearly stays in a plane.
STARTS = {
    "wide": (0.9, 0.0, -np.sqrt(0.19), 0.0, 1.0, 0.0),
    "nearly planar": (0.9, 0.0, -np.sqrt(0.19), 0.0, 0.02, 0.0),
}
POSITION = Constraint(lambda x: x[:3] @ x[:3] - 1)
VELOCITY = Constraint(lambda x: x[:3] @ x[3:])
ENERGY = Conserved(lambda x: 0.5 * x[3:] @ x[3:] + GRAVITY * x[2])
MOMENTUM = Conserved(lambda x: x[0] * x[4] - x[1] * x[3])
ROD, WITH_ENERGY, WITH_BOTH = "rod", "rod, energy", "rod, energy, momentum"
# Constraints, and weights of the states. With weight g/l of positions, both parts of the energy count alike.
MODELS: dict[str, tuple[Stack, list[float] | None]] = {
    ROD: (Stack([POSITION, VELOCITY]), None),
    WITH_ENERGY: (Stack([POSITION, VELOCITY, ENERGY]), None),
    "rod, energy, weights g/l": (Stack([POSITION, VELOCITY, ENERGY]), [GRAVITY] * 3 + [1.0] * 3),
    "rod, energy, velocities only": (Stack([POSITION, VELOCITY, ENERGY]), [1e4] * 3 + [1.0] * 3),
    "rod, momentum": (Stack([POSITION, VELOCITY, MOMENTUM]), None),
    WITH_BOTH: (Stack([POSITION, VELOCITY, ENERGY, MOMENTUM]), None),
}


def field(x: Any) -> Any:
    """dx/dt of the bob on its rod."""
    q, v = x[:3], x[3:]
    pull = (v @ v - GRAVITY * q[2]) / (q @ q)
    return jnp.concatenate([v, jnp.array([0.0, 0.0, -GRAVITY]) - pull * q])


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Errors with each choice of constraints, and of what they consist."""
    steps = STEPS[:2] if options.quick else STEPS
    rows = []
    for start in STARTS:
        for dt in steps:
            log(f"conserved quantities: {start}, dt = {dt}")
            rows += cached(
                store, "conserved", [start, dt, DURATION], lambda start=start, dt=dt: measured_rows(start, dt)
            )
    found = {(row["start"], row["dt"], row["constraints"]): row for row in rows}
    ratios = {(start, dt): _ratio(found, start, dt, WITH_ENERGY) for start in STARTS for dt in steps}
    last = steps[-1]
    rod, energy, both = (found["wide", last, name] for name in (ROD, WITH_ENERGY, WITH_BOTH))
    sentences = [
        "A spherical pendulum, RK4: with the energy beside the constraints of the rod the largest error of the "
        "position is, "
        + "; ".join(
            f"{start}: " + ", ".join(f"{ratios[start, dt]:.2g} times as large at dt = {dt}" for dt in steps)
            for start in STARTS
        )
        + ".",
        f"Wide swing, dt = {last}: the drift of the angular momentum is {format_number(rod['momentum_drift'])} with "
        f"the rod alone and {format_number(energy['momentum_drift'])} with the energy; with both held, the error is "
        f"{format_number(both['error'])} ({format_number(rod['error'])} with the rod alone, "
        f"{format_number(energy['error'])} with the energy).",
    ]
    table = Table(
        "conserved",
        "A spherical pendulum: error by what is held",
        rows,
        caption=f"RK4 over {DURATION:.0f} s, against SciPy's DOP853 at 1e-13. error: largest of the position; across: "
        "its part across the orbit, the rest is a shift in time; drifts: largest change of energy and of the angular "
        "momentum about the vertical.",
    )
    summary = {f"energy_error_ratio_{start.replace(' ', '_')}": ratios[start, last] for start in STARTS}
    return Findings(sentences, [table], summary=summary)


def _ratio(found: dict[tuple, dict[str, Any]], start: str, dt: float, name: str) -> float:
    return found[start, dt, name]["error"] / found[start, dt, ROD]["error"]


def measured_rows(start: str, dt: float) -> list[dict[str, Any]]:
    """A row for each choice of constraints."""
    from scipy.integrate import solve_ivp

    x0, ts = np.array(STARTS[start]), dt * np.arange(round(DURATION / dt) + 1)
    rate = jax.jit(field)
    reference = solve_ivp(lambda t, x: np.asarray(rate(x)), (0.0, ts[-1]), x0, "DOP853", ts, rtol=1e-13, atol=1e-13).y.T
    velocity = reference[:, 3:]
    rows = []
    for name, (constraint, weights) in MODELS.items():
        cell = Cell(field, integrator=RK4(), constraint=constraint, projection=Newton(metric=weights))
        out = jax.jit(lambda x0, cell=cell: rollout(cell, x0, jnp.asarray(ts), throw=False))(jnp.asarray(x0))
        xs = np.asarray(out.xs)
        error = (xs - reference)[:, :3]
        shift = np.sum(error * velocity, axis=1) / np.sum(velocity**2, axis=1)
        energy = 0.5 * np.sum(xs[:, 3:] ** 2, axis=1) + GRAVITY * xs[:, 2]
        momentum = xs[:, 0] * xs[:, 4] - xs[:, 1] * xs[:, 3]
        rows.append(
            {
                "start": start,
                "dt": dt,
                "constraints": name,
                "error": float(np.linalg.norm(error, axis=1).max()),
                "across": float(np.linalg.norm(error - shift[:, None] * velocity, axis=1).max()),
                "energy_drift": float(np.abs(energy - energy[0]).max()),
                "momentum_drift": float(np.abs(momentum - momentum[0]).max()),
                "failed": bool(out.failed),
            }
        )
    return rows


CONSERVED = Experiment(
    "conserved",
    "Which conserved quantities to add",
    "A spherical pendulum with the constraints of its rod, and with energy and angular momentum beside them.",
    full=Options(),
    quick=Options(),
    requests=lambda options: [],
    analyse=analyse,
)
