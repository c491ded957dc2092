"""Long steps: the stiff Van der Pol oscillator on its slow branch and across its jumps, and Lotka-Volterra."""

from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from twinfold import RESULTS
from twinfold.numerics import (
    BDF,
    RK4,
    AbstractIntegrator,
    Cell,
    DiffraxStep,
    Newton,
    NoProjection,
    Radau,
    Trajectory,
    rollout,
    unstable_step,
)
from twinfold.typing import Times
from twinfold_studies.numerics.kinetics import timed
from twinfold_studies.systems import van_der_pol
from twinfold_studies.systems.lotka_volterra import lotka_volterra

BRANCH = np.linspace(0.0, 800.0, 81)  # the slow branch, in steps of 10
STEPS = (0.125, 0.25, 0.5, 1.0)  # for Lotka-Volterra, whose period is about 3
DURATION = 12.0
FINEST = 1 / 32


def van_der_pol_rows(quick: bool) -> list[dict[str, Any]]:
    """Van der Pol with mu = 1e3: errors of several integrators; a step without a solution is flagged."""
    rows = []

    def record(samples: str, name: str, out: Trajectory, ms: float, exact: np.ndarray) -> None:
        failed = np.asarray(out.result != RESULTS.successful)
        first = float(out.ts[int(failed.argmax())]) if failed.any() else None
        error = None if failed.any() else float(np.abs(np.asarray(out.xs[-1]) / exact - 1).max())
        rows.append({"samples": samples, "integrator": name, "ms": ms, "error": error, "flagged_at": first})

    if not quick:
        exact, explicit = np.asarray(_relaxation(Radau(16), BRANCH)().xs[-1]), explicit_substeps(10.0)
        for name, integrator in {
            "Radau": Radau(),
            "BDF(2), 4 substeps": BDF(2, 4),
            "Kvaerno5": DiffraxStep(diffrax.Kvaerno5()),
            f"RK4, {explicit} substeps": RK4(explicit),
        }.items():
            out, ms = timed(_relaxation(integrator, BRANCH))
            record("slow branch, t = 0 ... 800, dt = 10", name, out, ms, exact)
    ts = _adaptive_times()
    for substeps in (1,) if quick else (1, 4):
        out, ms = timed(_relaxation(Radau(substeps), ts))
        name = f"Radau, {substeps} substep{'s' if substeps > 1 else ''}"
        record(f"two jumps, t = 0 ... 2000, {len(ts) - 1} uneven steps", name, out, ms, van_der_pol.FAR_STATE)
    out, ms = timed(_relaxation(Radau(), np.linspace(0.0, van_der_pol.FAR_TIME, 201)))
    record("two jumps, t = 0 ... 2000, dt = 10", "Radau", out, ms, van_der_pol.FAR_STATE)
    return rows


def explicit_substeps(dt: float) -> int:
    """The number of RK4 steps per sample that is stable on the slow branch."""
    at = jnp.asarray(van_der_pol.START)
    jacobian = jax.jacfwd(lambda x: van_der_pol.van_der_pol(x, {"mu": van_der_pol.MU}))(at)
    found = unstable_step(RK4(), np.linalg.eigvals(np.asarray(jacobian)), dt)
    return 1 if found is None else found.substeps


def _relaxation(integrator: AbstractIntegrator, ts: np.ndarray) -> Callable[[], Trajectory]:
    cell = Cell(van_der_pol.van_der_pol, integrator=integrator)
    p, x0 = {"mu": jnp.asarray(van_der_pol.MU)}, jnp.asarray(van_der_pol.START)
    solve = jax.jit(lambda ts: rollout(cell, x0, ts, p=p, throw=False))
    return lambda: jax.block_until_ready(solve(jnp.asarray(ts)))


def _adaptive_times() -> np.ndarray:
    """The steps of an adaptive solver."""
    from scipy.integrate import solve_ivp

    def field(t: float, x: np.ndarray) -> list[float]:
        return [x[1], van_der_pol.MU * (1 - x[0] ** 2) * x[1] - x[0]]

    end = (0, van_der_pol.FAR_TIME)
    return solve_ivp(field, end, van_der_pol.START, method="Radau", rtol=1e-5, atol=1e-8).t


def lotka_volterra_rows(quick: bool) -> list[dict[str, Any]]:
    """Lotka-Volterra with few steps per period: explicit and implicit, with and without projection."""
    system = lotka_volterra()
    x0 = jnp.array([2.6, 0.6])
    finest, rows = round(DURATION / FINEST), []

    def times(dt: float) -> Times:
        # Padded to one shape by repeating the last time: one compilation for all steps.
        return jnp.asarray(np.minimum(np.arange(finest + 1) * dt, DURATION))

    def solver(integrator: AbstractIntegrator, projected: bool) -> Callable[[Times], Trajectory]:
        projection = Newton() if projected else NoProjection()
        cell = Cell(system.truth, integrator=integrator, constraint=system.constraint, projection=projection)
        return jax.jit(lambda ts: rollout(cell, x0, ts, throw=False))

    exact = np.zeros(())
    for name, integrator in (("Radau", Radau()), ("RK4", RK4()))[: 1 if quick else 2]:
        for projected in (True,) if quick else (True, False):
            solve = solver(integrator, projected)
            if not exact.shape:  # the first, with negligible error of the integrator
                exact = np.asarray(solve(times(FINEST)).xs)
            for dt in STEPS:
                count = round(DURATION / dt)
                out = solve(times(dt))
                error = np.abs(np.asarray(out.xs)[: count + 1] - exact[:: finest // count]).max()
                violation = out.relative_violation.max()
                failed = bool(out.failed)
                rows.append(
                    {"integrator": name, "projected": projected, "dt": dt, "failed": failed}
                    | {"error": None if failed else float(error), "violation_max": None if failed else float(violation)}
                )
    return rows
