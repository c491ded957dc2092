"""Two bodies over many periods: what a projection adds to an adaptive solver, at every value that is saved.

Energy and angular momentum are held by `Projected` around Diffrax's Tsit5. The truth is Kepler's orbit in closed form;
peers are the same solver without projection, at the same and at tighter tolerances, and SciPy's DOP853 and Radau.
"""

import time
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.numerics import Projected, Tangent
from twinfold.systems import System, two_body
from twinfold.typing import State, Times
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.kept import kept
from twinfold_studies.bench.store import Store

ECCENTRICITY = 0.6
TOLERANCE = 1e-6
OTHERS = (0.5, 0.7)  # eccentricities that the ratio of errors is looked at for as well
SAVED = 32  # values in a period, about as many as steps, and most of them between two
FREE, HELD, FAST = "Tsit5", "Tsit5, projected", "Tsit5, fast projection"
STAGES = {FREE: 6, HELD: 7, FAST: 7}  # a projection costs the stage that is otherwise taken over from the last step
SCIPY = {"SciPy DOP853": "DOP853", "SciPy Radau": "Radau"}
LAST = {"DOP853": 11, "Radau": 7}  # digits of the tightest tolerance


def kepler(ts: np.ndarray, e: float = ECCENTRICITY) -> np.ndarray:
    """The orbit of `two_body` that starts at its pericentre: positions and velocities at `ts`, to rounding error."""
    around = e * np.sin(ts)  # E - t, by Newton's method on Kepler's equation E - e sin(E) = t
    for _ in range(50):
        anomaly = ts + around
        around = around - (around - e * np.sin(anomaly)) / (1 - e * np.cos(anomaly))
    anomaly, minor = ts + around, np.sqrt(1 - e**2)
    speed = 1 / (1 - e * np.cos(anomaly))
    position = [np.cos(anomaly) - e, minor * np.sin(anomaly)]
    velocity = [-np.sin(anomaly) * speed, minor * np.cos(anomaly) * speed]
    return np.stack([*position, *velocity], axis=1)


@eqx.filter_jit
def solve(
    field: Callable, solver: diffrax.AbstractSolver, x0: State, ts: Times, tolerance: Float[Array, ""]
) -> diffrax.Solution:
    """dx/dt = field(t, x) from ts[0] to ts[-1], by adaptive steps, saved at `ts`, mostly between steps."""
    return diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, x, args: field(t, x)),
        solver,
        ts[0],
        ts[-1],
        None,
        x0,
        saveat=diffrax.SaveAt(ts=ts),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
        max_steps=None,
    )


def find(store: Store, quick: bool, tell: Callable[[str], None]) -> Findings:
    """Violation, error and steps with and without projection, and what an error costs."""
    periods = 10 if quick else 100
    settings = [periods, ECCENTRICITY, OTHERS, TOLERANCE, SAVED]
    found = kept(store, "numerics-orbit", [settings, quick], lambda: _measured(periods, quick, tell))
    same, work, over = found["same"], found["work"], found["over"]
    orbits = {(row["method"], row["eccentricity"]): row for row in same}
    free, held = orbits[FREE, ECCENTRICITY], orbits[HELD, ECCENTRICITY]
    ratios = {e: orbits[FREE, e]["error"] / orbits[HELD, e]["error"] for e in sorted((ECCENTRICITY, *OTHERS))}
    matching = [row for row in work if row["method"] == FREE and row["error"] <= held["error"]]
    words = [
        f"Two bodies, {periods} periods, Tsit5 at a tolerance of {TOLERANCE:.0e}: with projection, energy and angular "
        f"momentum are within {held['violation']:.1e} (relative) at each of {SAVED * periods + 1} saved values; "
        f"without, they drift by {free['violation']:.1e}. The position is off by {held['error']:.1e} instead of "
        f"{free['error']:.1e}, after {held['steps']} steps instead of {free['steps']}.",
        "The ratio of the position errors (unprojected over projected) is "
        + ", ".join(f"{ratio:.0f} at e = {e}" for e, ratio in ratios.items())
        + ".",
    ]
    if matching:
        first = max(matching, key=lambda row: row["tolerance"])
        words.append(
            f"To be as accurate without projection, Tsit5 needs a tolerance of {first['tolerance']:.0e} and "
            f"{first['steps']} steps, and still violates the invariants by {first['violation']:.1e}."
        )
    columns = ("method", "eccentricity", "violation", "error", "steps", "rejected")
    costs = ("method", "tolerance", "seconds", "error", "violation", "steps", "evaluations")
    return Findings(
        words=words,
        tables=[
            Table(
                "orbit_same_tolerance",
                f"Two bodies, {periods} periods, Tsit5 at {TOLERANCE:.0e}",
                same,
                columns,
                "Worst of all saved values: relative violation of energy and angular momentum, error of the position.",
            ),
            Table(
                "orbit_work_precision",
                "Two bodies: error against time",
                work,
                costs,
                f"e = {ECCENTRICITY}, {SAVED} saved values in a period. Diffrax is compiled before it is timed (best "
                "of three); SciPy runs in Python, so that its seconds say less than its evaluations of the field.",
            ),
        ],
        pictures=[
            Picture(
                "orbit_violation",
                "Two bodies: drift over time",
                f"Worst in each period, of {SAVED} saved values, most of them between steps. Tsit5 at {TOLERANCE:.0e}.",
                lambda: _drift(over),
            ),
            Picture(
                "orbit_work_precision",
                "Two bodies: what an error costs",
                f"Worst position error in {periods} periods against what it costs, for tolerances from 1e-4 on.",
                lambda: _work(work),
            ),
        ],
        summary={
            "two_body_violation_max": held["violation"],
            "two_body_error_ratio": ratios[ECCENTRICITY],
            "two_body_step_ratio": held["steps"] / free["steps"],
        },
    )


def _measured(periods: int, quick: bool, tell: Callable[[str], None]) -> dict[str, Any]:
    system = two_body(energy=True)
    solvers = {
        FREE: diffrax.Tsit5(),
        HELD: Projected(diffrax.Tsit5(), system.constraint),
        FAST: Projected(diffrax.Tsit5(), system.constraint, Tangent(max_steps=20)),
    }
    same, over = [], {}
    ts = np.linspace(0, 2 * np.pi * periods, SAVED * periods + 1)
    for e in (ECCENTRICITY, *OTHERS):
        truth = kepler(ts, e)
        for name, solver in solvers.items():
            tell(f"two bodies, e = {e}: {name}")
            solution = solve(system.truth, solver, jnp.asarray(truth[0]), jnp.asarray(ts), jnp.asarray(TOLERANCE))
            error, violation = _errors(system, np.asarray(solution.ys), truth)
            same.append({"method": name, "eccentricity": e, **_worst(error, violation), **_counts(solution)})
            if e == ECCENTRICITY:
                columns = np.column_stack([violation, error])[1:].reshape(periods, SAVED, 3)
                over[name] = columns.max(axis=1).T.tolist()
    return {"same": same, "over": over, "work": _costs(system, solvers, periods, quick, tell)}


def _costs(
    system: System, solvers: dict[str, Any], periods: int, quick: bool, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Seconds and error of each method at each of its tolerances."""
    ts = np.linspace(0, 2 * np.pi * periods, SAVED * periods + 1)
    truth = kepler(ts)
    rows = []
    for name, solver in solvers.items():
        for tolerance in _tolerances(7 if quick else 11):
            tell(f"two bodies: {name} at {tolerance:.0e}")
            args = (system.truth, solver, jnp.asarray(truth[0]), jnp.asarray(ts), jnp.asarray(tolerance))
            solution = jax.block_until_ready(solve(*args))
            seconds = min(_seconds(lambda args=args: jax.block_until_ready(solve(*args))) for _ in range(3))
            worst = _worst(*_errors(system, np.asarray(solution.ys), truth))
            counts = _counts(solution)
            counts["evaluations"] = STAGES[name] * counts["steps"]
            rows.append({"method": name, "tolerance": tolerance, "seconds": seconds, **worst, **counts})
    for name, method in SCIPY.items():
        for tolerance in _tolerances(5 if quick else LAST[method]):
            tell(f"two bodies: {name} at {tolerance:.0e}")
            rows.append({"method": name, "tolerance": tolerance, **_scipy(system, method, tolerance, ts, truth)})
    return rows


def _tolerances(last: int) -> list[float]:
    return [float(f"1e-{digits}") for digits in range(4, last + 1)]


def _scipy(system: System, method: Any, tolerance: float, ts: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    from scipy.integrate import solve_ivp

    def field(t: float, x: np.ndarray) -> np.ndarray:
        cube = (x[0] * x[0] + x[1] * x[1]) ** 1.5
        return np.array([x[2], x[3], -x[0] / cube, -x[1] / cube])

    start = time.perf_counter()
    out = solve_ivp(field, (ts[0], ts[-1]), truth[0], method, ts, rtol=tolerance, atol=tolerance)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, **_worst(*_errors(system, out.y.T, truth)), "evaluations": int(out.nfev)}


def _errors(system: System, xs: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Error of the position, and relative violation of L and E, at each saved value."""
    level = system.constraint.level(0.0, jnp.asarray(truth[0]), {})
    violation = jax.vmap(lambda x: system.constraint.residual(0.0, x, {}, level))(jnp.asarray(xs)) / level
    return np.linalg.norm(xs[:, :2] - truth[:, :2], axis=1), np.abs(np.asarray(violation))


def _worst(error: np.ndarray, violation: np.ndarray) -> dict[str, float]:
    return {"error": float(np.max(error)), "violation": float(np.max(violation))}


def _counts(solution: diffrax.Solution) -> dict[str, int]:
    return {"steps": int(solution.stats["num_steps"]), "rejected": int(solution.stats["num_rejected_steps"])}


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _drift(over: dict[str, list[list[float]]]) -> Any:
    titles = ("angular momentum", "energy", "position")
    periods = 1 + np.arange(len(over[FREE][0]))
    panels = {
        title: {name: (periods, np.asarray(rows[index])) for name, rows in over.items()}
        for index, title in enumerate(titles)
    }
    return curves(panels, "period", "error (relative; position: absolute)", log=(False, True), markers=False)


def _work(rows: list[dict[str, Any]]) -> Any:
    def lines(cost: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        names = dict.fromkeys(row["method"] for row in rows)
        points = {name: [(row[cost], row["error"]) for row in rows if row["method"] == name] for name in names}
        return {name: (np.array(each)[:, 0], np.array(each)[:, 1]) for name, each in points.items()}

    panels = {"seconds": lines("seconds"), "evaluations of the field": lines("evaluations")}
    return curves(panels, "cost", "worst position error")
