"""Dependent constraints in every order: Kepler's orbit with energy, angular momentum and Laplace-Runge-Lenz vector.

Three of these four invariants are independent (A^2 = 1 + 2 E L^2), and where A points along x, A_x depends on E and L
alone. A projection that drops the last dependent equation of the list drops the wrong one in some orders.
"""

import itertools
from collections.abc import Callable
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from twinfold import RESULTS
from twinfold.model import Conserved
from twinfold.numerics import RK4, Cell, Newton, Projected, rollout
from twinfold.report import format_number
from twinfold.systems import two_body
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.numerics.orbit import kepler

ORDERS = tuple(itertools.permutations(range(4)))
INDEPENDENT = (0, 1, 3)  # E, L, A_y
NAMES = ("E", "L", "A_x", "A_y")
ECCENTRICITIES = (0.6, 0.9)
TOLERANCE, PERIODS = 1e-6, 100
DT, STEPS = 0.01, 4000


def invariants(x: Any) -> Any:
    """E, L, A_x and A_y for GM = 1."""
    q, v = x[:2], x[2:]
    r, momentum = jnp.sqrt(q @ q), q[0] * v[1] - q[1] * v[0]
    energy = 0.5 * v @ v - 1 / r
    return jnp.stack([energy, momentum, v[1] * momentum - q[0] / r, -v[0] * momentum - q[1] / r])


CONSTRAINT = Conserved(lambda x, p: invariants(x)[p["order"]])


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """Steps, flags, violation and error of each order."""
    orders = ORDERS[:2] if quick else ORDERS
    periods, steps = (2, 100) if quick else (PERIODS, STEPS)
    rows = []
    for e in ECCENTRICITIES:
        log(f"row order: Kepler, e = {e}")
        settings = [e, len(orders), periods, steps, TOLERANCE, DT]
        rows += cached(store, "numerics-row-order", settings, lambda e=e: order_rows(e, orders, periods, steps))
    steps_of = {e: sorted({row["adaptive_steps"] for row in rows if row["e"] == e}) for e in ECCENTRICITIES}
    summary = {
        "row_order_step_spread": float(max(found[-1] - found[0] for found in steps_of.values())),
        "row_order_flagged": float(sum(row["flagged"] for row in rows)),
    }
    listed = "; ".join(f"e = {e}: {' or '.join(map(str, found))} steps" for e, found in steps_of.items())
    sentence = (
        f"Kepler's orbit with E, L, A_x and A_y, three of which are independent, in {len(orders)} orders: an adaptive "
        f"Tsit5 takes, with E, L, A_y alone and with all four in any order, {listed}; with {steps} fixed steps "
        f"{summary['row_order_flagged']:.0f} are flagged, largest relative violation "
        f"{format_number(max(row['violation_max'] for row in rows))}."
    )
    table = Table(
        "row_order",
        "Dependent constraints in every order",
        rows,
        caption=f"adaptive_steps and adaptive_error: Tsit5 at {TOLERANCE:g}, {periods} periods, projected, and its "
        f"largest error of a state. flagged, violation_max, distance: RK4 with {steps} steps of {DT}; distance from "
        "the trajectory with E, L, A_y.",
    )
    return Findings([sentence], [table], summary=summary)


def order_rows(e: float, orders: tuple[tuple[int, ...], ...], periods: int, steps: int) -> list[dict[str, Any]]:
    """A row for the three independent invariants, and one for each order of all four."""
    truth, field = two_body().truth, diffrax.ODETerm(lambda t, x, p: two_body().truth(t, x))
    ts = np.linspace(0, 2 * np.pi * periods, 8 * periods + 1)
    exact = kepler(ts, e)
    x0, fixed = jnp.asarray(exact[0]), DT * jnp.arange(steps + 1)
    cell = Cell(truth, integrator=RK4(), constraint=CONSTRAINT, projection=Newton())

    @jax.jit
    def adaptive(order: Any) -> Any:
        return diffrax.diffeqsolve(
            field,
            Projected(diffrax.Tsit5(), CONSTRAINT),
            0.0,
            ts[-1],
            None,
            x0,
            args={"order": order},
            saveat=diffrax.SaveAt(ts=jnp.asarray(ts)),
            stepsize_controller=diffrax.PIDController(rtol=TOLERANCE, atol=TOLERANCE),
            max_steps=None,
        )

    regular = jax.jit(lambda order: rollout(cell, x0, fixed, p={"order": order}, throw=False))
    rows, first = [], None
    for order in (INDEPENDENT, *orders):
        solution, out = adaptive(jnp.array(order)), regular(jnp.array(order))
        first = out.xs if first is None else first
        rows.append(
            {
                "e": e,
                "constraints": ", ".join(NAMES[index] for index in order),
                "adaptive_steps": int(solution.stats["num_steps"]),
                "adaptive_error": float(np.abs(np.asarray(solution.ys) - exact).max()),
                "flagged": int(np.sum(np.asarray(out.result != RESULTS.successful))),
                "violation_max": float(out.relative_violation.max()),
                "redundant": int(np.max(np.asarray(out.redundant))),
                "distance": float(jnp.max(jnp.abs(out.xs - first))),
            }
        )
    return rows
