"""Two bodies over many periods: an adaptive solver with projection of every saved value.

`Projected` around Diffrax's Tsit5 conserves energy and angular momentum. The reference is Kepler's orbit in closed
form; the peers are Tsit5 without projection at the same and tighter tolerances, and SciPy's DOP853 and Radau.
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
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.timing import best_time

ECCENTRICITY = 0.6
TOLERANCE = 1e-6
OTHERS = (0.5, 0.7)  # further eccentricities, for the ratio of errors
SAVED = 32  # values per period, most of them between steps
FREE, PROJECTED, FAST = "Tsit5", "Tsit5, projected", "Tsit5, fast projection"
STAGES = {
    FREE: 6,
    PROJECTED: 7,
    FAST: 7,
}  # a projection invalidates the stage that is otherwise reused from the last step
SCIPY = {"SciPy DOP853": "DOP853", "SciPy Radau": "Radau"}
LAST_DIGITS = {"DOP853": 11, "Radau": 7}  # of the tightest tolerance


def kepler(ts: np.ndarray, e: float = ECCENTRICITY) -> np.ndarray:
    """The orbit of `two_body` from its pericentre: positions and velocities at `ts`, exact to rounding."""
    shift = e * np.sin(ts)  # E - t, by Newton's method on Kepler's equation E - e sin(E) = t
    for _ in range(50):
        anomaly = ts + shift
        shift = shift - (shift - e * np.sin(anomaly)) / (1 - e * np.cos(anomaly))
    anomaly, minor = ts + shift, np.sqrt(1 - e**2)
    speed = 1 / (1 - e * np.cos(anomaly))
    position = [np.cos(anomaly) - e, minor * np.sin(anomaly)]
    velocity = [-np.sin(anomaly) * speed, minor * np.cos(anomaly) * speed]
    return np.stack([*position, *velocity], axis=1)


@eqx.filter_jit
def solve(
    field: Callable, solver: diffrax.AbstractSolver, x0: State, ts: Times, tolerance: Float[Array, ""]
) -> diffrax.Solution:
    """Solve dx/dt = field(t, x) from ts[0] to ts[-1] with adaptive steps; the solution is saved at `ts`."""
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


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """Violation, error and steps with and without projection, and errors against cost."""
    periods = 10 if quick else 100
    settings = [periods, ECCENTRICITY, OTHERS, TOLERANCE, SAVED]
    measured = cached(store, "numerics-orbit", [settings, quick], lambda: _measure(periods, quick, log))
    same, work, over = measured["same"], measured["work"], measured["over"]
    orbits = {(row["method"], row["eccentricity"]): row for row in same}
    free, projected = orbits[FREE, ECCENTRICITY], orbits[PROJECTED, ECCENTRICITY]
    ratios = {e: orbits[FREE, e]["error"] / orbits[PROJECTED, e]["error"] for e in sorted((ECCENTRICITY, *OTHERS))}
    matching = [row for row in work if row["method"] == FREE and row["error"] <= projected["error"]]
    sentences = [
        f"Two bodies, {periods} periods, Tsit5 at a tolerance of {TOLERANCE:.0e}: the largest relative violation of "
        f"energy and angular momentum over {SAVED * periods + 1} saved values is {projected['violation']:.1e} with "
        f"projection and {free['violation']:.1e} without; the largest error of the position is "
        f"{projected['error']:.1e} instead of {free['error']:.1e}, after {projected['steps']} steps instead of "
        f"{free['steps']}.",
        "The ratio of the position errors (unprojected over projected) is "
        + ", ".join(f"{ratio:.0f} at e = {e}" for e, ratio in ratios.items())
        + ".",
    ]
    if matching:
        first = max(matching, key=lambda row: row["tolerance"])
        sentences.append(
            f"For the same error without projection, Tsit5 needs a tolerance of {first['tolerance']:.0e} and "
            f"{first['steps']} steps; its relative violation is then {first['violation']:.1e}."
        )
    columns = ("method", "eccentricity", "violation", "error", "steps", "rejected")
    costs = ("method", "tolerance", "seconds", "error", "violation", "steps", "evaluations")
    return Findings(
        sentences=sentences,
        tables=[
            Table(
                "orbit_same_tolerance",
                f"Two bodies, {periods} periods, Tsit5 at {TOLERANCE:.0e}",
                same,
                columns,
                "Largest values over all saved ones: relative violation of energy and angular momentum, error of "
                "position.",
            ),
            Table(
                "orbit_work_precision",
                "Two bodies: error against time",
                work,
                costs,
                f"e = {ECCENTRICITY}, {SAVED} saved values per period. Times of Diffrax are without compilation (best "
                "of three); SciPy runs in Python, so its number of evaluations is more informative than its time.",
            ),
        ],
        pictures=[
            Picture(
                "orbit_violation",
                "Two bodies: drift over time",
                f"Largest of the {SAVED} saved values of each period, most of them between steps. Tsit5 at "
                f"{TOLERANCE:.0e}.",
                lambda: _drift_figure(over),
            ),
            Picture(
                "orbit_work_precision",
                "Two bodies: error against cost",
                f"Largest error of the position in {periods} periods, for tolerances from 1e-4 on.",
                lambda: _work_figure(work),
            ),
        ],
        summary={
            "two_body_violation_max": projected["violation"],
            "two_body_error_ratio": ratios[ECCENTRICITY],
            "two_body_step_ratio": projected["steps"] / free["steps"],
        },
    )


def _measure(periods: int, quick: bool, log: Callable[[str], None]) -> dict[str, Any]:
    system = two_body(energy=True)
    solvers = {
        FREE: diffrax.Tsit5(),
        PROJECTED: Projected(diffrax.Tsit5(), system.constraint),
        FAST: Projected(diffrax.Tsit5(), system.constraint, Tangent(max_steps=20)),
    }
    same, over = [], {}
    ts = np.linspace(0, 2 * np.pi * periods, SAVED * periods + 1)
    for e in (ECCENTRICITY, *OTHERS):
        truth = kepler(ts, e)
        for name, solver in solvers.items():
            log(f"two bodies, e = {e}: {name}")
            solution = solve(system.truth, solver, jnp.asarray(truth[0]), jnp.asarray(ts), jnp.asarray(TOLERANCE))
            error, violation = _errors(system, np.asarray(solution.ys), truth)
            same.append({"method": name, "eccentricity": e, **_worst(error, violation), **_counts(solution)})
            if e == ECCENTRICITY:
                columns = np.column_stack([violation, error])[1:].reshape(periods, SAVED, 3)
                over[name] = columns.max(axis=1).T.tolist()
    return {"same": same, "over": over, "work": _costs(system, solvers, periods, quick, log)}


def _costs(
    system: System, solvers: dict[str, Any], periods: int, quick: bool, log: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Time and error of each method at each of its tolerances."""
    ts = np.linspace(0, 2 * np.pi * periods, SAVED * periods + 1)
    truth = kepler(ts)
    rows = []
    for name, solver in solvers.items():
        for tolerance in _tolerances(7 if quick else 11):
            log(f"two bodies: {name} at {tolerance:.0e}")
            args = (system.truth, solver, jnp.asarray(truth[0]), jnp.asarray(ts), jnp.asarray(tolerance))
            solution, seconds = best_time(lambda args=args: solve(*args), 3)
            worst = _worst(*_errors(system, np.asarray(solution.ys), truth))
            counts = _counts(solution)
            counts["evaluations"] = STAGES[name] * counts["steps"]
            rows.append({"method": name, "tolerance": tolerance, "seconds": seconds, **worst, **counts})
    for name, method in SCIPY.items():
        for tolerance in _tolerances(5 if quick else LAST_DIGITS[method]):
            log(f"two bodies: {name} at {tolerance:.0e}")
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
    """Error of the position and relative violations of L and E at each saved value."""
    level = system.constraint.level(0.0, jnp.asarray(truth[0]), {})
    violation = jax.vmap(lambda x: system.constraint.residual(0.0, x, {}, level))(jnp.asarray(xs)) / level
    return np.linalg.norm(xs[:, :2] - truth[:, :2], axis=1), np.abs(np.asarray(violation))


def _worst(error: np.ndarray, violation: np.ndarray) -> dict[str, float]:
    return {"error": float(np.max(error)), "violation": float(np.max(violation))}


def _counts(solution: diffrax.Solution) -> dict[str, int]:
    return {"steps": int(solution.stats["num_steps"]), "rejected": int(solution.stats["num_rejected_steps"])}


def _drift_figure(over: dict[str, list[list[float]]]) -> Any:
    titles = ("angular momentum", "energy", "position")
    periods = 1 + np.arange(len(over[FREE][0]))
    panels = {
        title: {name: (periods, np.asarray(rows[index])) for name, rows in over.items()}
        for index, title in enumerate(titles)
    }
    return curves(panels, "period", "error (relative; position: absolute)", log=(False, True), markers=False)


def _work_figure(rows: list[dict[str, Any]]) -> Any:
    def lines(cost: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        names = dict.fromkeys(row["method"] for row in rows)
        points = {name: [(row[cost], row["error"]) for row in rows if row["method"] == name] for name in names}
        return {name: (np.array(each)[:, 0], np.array(each)[:, 1]) for name, each in points.items()}

    panels = {"seconds": lines("seconds"), "evaluations of the field": lines("evaluations")}
    return curves(panels, "cost", "largest position error")
