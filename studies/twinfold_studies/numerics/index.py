"""Higher index: mechanisms in redundant coordinates over long times, with hidden constraints, RATTLE and friction.

Violation and drift of a pendulum of index 3 over a thousand periods, with and without its hidden constraint; other
solvers for the same system; a double pendulum, a slider-crank and a skate; a friction law learned from positions.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold import RESULTS
from twinfold.model import Conserved, Multibody, Stabilised, constraint_of, index_of
from twinfold.numerics import Cell, Newton, Rattle, Trajectory, rollout, violation_scale
from twinfold.report import format_number
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.timing import best_time
from twinfold_studies.numerics.friction_law import FAST, NOISE, SLOW, law_picture, learned_friction
from twinfold_studies.numerics.pendulum_peers import peer_rows
from twinfold_studies.systems.double_pendulum import double_pendulum, double_pendulum_state
from twinfold_studies.systems.pendulum import pendulum, pendulum_period, pendulum_state
from twinfold_studies.systems.skate import skate, skate_motion
from twinfold_studies.systems.slider_crank import slider_crank, slider_crank_state

AMPLITUDE = 2.0  # radians
STEPS = 100  # per period
LEVELS = ("position", "velocity", "energy")
ALL_LEVELS = "position, velocity, energy"


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """All parts, or a short version of them."""
    periods = 20 if quick else 1000
    log("numerics: higher index, the pendulum")
    long = cached(
        store, "numerics-index-pendulum", [AMPLITUDE, STEPS, periods, "lost"], lambda: pendulum_rows(periods, quick)
    )
    log("numerics: higher index, other mechanisms")
    others = [] if quick else cached(store, "numerics-index-mechanisms", [STEPS, 100], lambda: mechanism_rows(100))
    log("numerics: higher index, peers")
    peers = cached(
        store, "numerics-index-peers", [AMPLITUDE, quick], lambda: peer_rows(AMPLITUDE, 5 if quick else 20, quick)
    )
    log("numerics: higher index, friction")
    friction = cached(store, "numerics-index-friction", [NOISE, FAST, SLOW, quick], lambda: learned_friction(quick))
    rows = [{name: value for name, value in row.items() if name != "curves"} for row in long]
    projected, rattle = (next(row for row in long if row["method"].endswith(name)) for name in (ALL_LEVELS, "RATTLE"))
    tables = [
        Table(
            "index_pendulum",
            f"A pendulum of index 3 over {periods} periods of {STEPS} steps: largest relative violation",
            rows,
            caption="Until a run fails (`failed_after`, in periods). energy_drift: fitted change of energy over the "
            "run, relative to the energy; phase: error of the final position.",
        ),
        Table(
            "index_peers",
            "The same pendulum by other solvers: error of the position, violation of the length, time",
            peers,
            caption="DOP853: SciPy, in the angle and in Cartesian coordinates (index reduced); IDAS: SUNDIALS "
            "through CasADi, for the index-1 form. After a number of periods and a quarter, where the exact position "
            "is known and the velocity is largest.",
        ),
        Table("index_friction", "The learned friction law", friction["rows"]),
    ]
    if others:
        title = "Other mechanisms, projected onto all constraints, and RATTLE: largest relative violation"
        tables.insert(1, Table("index_mechanisms", title, others))
    pictures = [_drifts(long), _peers(peers), law_picture(friction)]
    summary = {
        "pendulum_violation_max": max(projected[level] for level in LEVELS),
        "pendulum_energy_drift": rattle["energy_drift"],
        "friction_law_error": friction["error"],
    }
    return Findings(summarise(long, others, peers, friction, periods), tables, pictures, summary)


def methods(mechanism: Multibody) -> dict[str, Cell]:
    """The methods that are compared."""
    both = constraint_of(mechanism)
    cells = {
        "RK4": Cell(mechanism, constraint=both),
        "RK4, stabilised": Cell(Stabilised(mechanism, both), constraint=both),
        "RK4, position": Cell(mechanism, constraint=constraint_of(mechanism, hidden=False), projection=Newton()),
        "RK4, position, velocity": Cell(mechanism, constraint=both, projection=Newton()),
        f"RK4, {ALL_LEVELS}": Cell(mechanism, constraint=constraint_of(mechanism, energy=True), projection=Newton()),
    }
    if mechanism.velocity is None:
        cells["RATTLE"] = Cell(mechanism, integrator=Rattle(mechanism), constraint=both)
    return cells


def simulate(cell: Cell, x0: jax.Array, ts: jax.Array) -> tuple[Trajectory, float]:
    """The trajectory, and its time in seconds without compilation."""
    run = eqx.filter_jit(lambda x0, ts: rollout(cell, x0, ts, throw=False))
    return best_time(lambda: run(x0, ts), 1)


def violations(mechanism: Multibody, trajectory: Trajectory) -> tuple[np.ndarray, int]:
    """Relative violations of position, velocity and energy at each sample, and the number of samples before a failure.

    A column for each of `LEVELS`: the largest violation of its equations, NaN if the mechanism has none.
    """
    constraint, ts, xs = constraint_of(mechanism, energy=True), trajectory.ts, trajectory.xs
    level = constraint.level(ts[0], xs[0], {})
    violation = jax.vmap(lambda t, x: jnp.abs(constraint.residual(t, x, {}, level)))(ts, xs)
    violation = np.asarray(violation / violation_scale(constraint, ts[0], xs[0], {}, level))
    count = violation.shape[1] - 1  # the last is the energy
    positions = count // 2 if mechanism.position is not None else 0
    groups = (violation[:, :positions], violation[:, positions:count], violation[:, count:])
    # A relative violation of one or more counts as a failure.
    failed = np.asarray(trajectory.result != RESULTS.successful) | ~(violation.max(1) < 1)
    columns = [group.max(1) if group.shape[1] else np.full(len(violation), np.nan) for group in groups]
    return np.stack(columns, axis=1), int(failed.argmax()) if failed.any() else len(violation)


def pendulum_rows(periods: int, quick: bool) -> list[dict[str, Any]]:
    """Violation, drift and failure of each method over the whole time."""
    mechanism, x0, period = pendulum(), pendulum_state(AMPLITUDE), pendulum_period(AMPLITUDE)
    ts = jnp.linspace(0.0, (periods + 0.25) * period, STEPS * periods + STEPS // 4 + 1)
    rows = []
    for name, cell in methods(mechanism).items():
        if quick and name not in ("RK4", f"RK4, {ALL_LEVELS}", "RATTLE"):
            continue
        trajectory, seconds = simulate(cell, x0, ts)
        violation, alive = violations(mechanism, trajectory)
        energy = np.asarray(jax.vmap(lambda x: mechanism.energy(x, {}))(trajectory.xs))[:alive]
        size = float(violation_scale(Conserved(mechanism.energy), ts[0], x0, {}, jnp.array([energy[0]]))[0])
        # After a number of periods and a quarter the exact position is (0, -1).
        phase = float(np.linalg.norm(np.asarray(trajectory.xs[-1, :2]) - [0.0, -1.0]))
        rows.append(
            {"method": name}
            | {level: float(violation[:alive, column].max()) for column, level in enumerate(LEVELS)}
            | {
                "energy_drift": _drift(energy[1:], STEPS) / size,
                "phase": phase if alive == len(violation) else None,
                "failed_after": None if alive == len(violation) else alive / STEPS,
                "seconds": seconds,
                "curves": _thinned(np.arange(alive) / STEPS, violation[:alive]),
            }
        )
    return rows


def _drift(energy: np.ndarray, steps: int) -> float:
    """|slope| times duration of a line through the means of each period, so that oscillations do not count."""
    count = len(energy) // steps
    if count < 2:
        return float("nan")
    means = energy[: count * steps].reshape(count, steps).mean(1)
    return float(abs(np.polyfit(np.arange(count), means - means[0], 1)[0]) * count)


def _thinned(periods: np.ndarray, violation: np.ndarray, count: int = 60) -> list[list[float]]:
    """Time and the largest violation of each level in windows of equal width on a log axis."""
    edges = np.unique(np.geomspace(1, len(periods), count).astype(int))
    return [
        [float(periods[b - 1]), *(float(value) for value in violation[a:b].max(0))]
        for a, b in itertools.pairwise(edges)
    ]


def mechanism_rows(periods: int) -> list[dict[str, Any]]:
    """Double pendulum, slider-crank and skate: index, and violations over many periods."""
    cases: dict[str, tuple[Multibody, jax.Array, float]] = {
        "slider-crank": (slider_crank(), slider_crank_state(0.3, 6.0), 1.05),
        "double pendulum": (double_pendulum(), double_pendulum_state([0.8, 1.2]), 2.2),
        "skate": (skate(), skate_motion(jnp.array(0.0), 1.3), 4.84),
    }
    rows = []
    for name, (mechanism, x0, period) in cases.items():
        ts = jnp.linspace(0.0, periods * period, STEPS * periods + 1)
        index = index_of(mechanism, x0)
        for method in (f"RK4, {ALL_LEVELS}", "RATTLE"):
            if method not in methods(mechanism):
                continue
            trajectory, seconds = simulate(methods(mechanism)[method], x0, ts)
            violation, alive = violations(mechanism, trajectory)
            worst = {level: float(violation[:alive, column].max()) for column, level in enumerate(LEVELS)}
            rows.append(
                {"mechanism": name, "index": index.index, "hidden": index.hidden, "method": method, "periods": periods}
                | {level: value if np.isfinite(value) else None for level, value in worst.items()}
                | {"failed_after": None if alive == len(violation) else alive / STEPS, "seconds": seconds}
            )
    return rows


def summarise(long: Sequence, others: Sequence, peers: Sequence, friction: dict, periods: int) -> list[str]:
    """Violations, drift, the friction law, and failures of other methods."""
    by = {row["method"]: row for row in long}
    projected, rattle = by[f"RK4, {ALL_LEVELS}"], by["RATTLE"]
    mechanisms = [row for row in others if row["method"] != "RATTLE"]
    worst = max((row[level] for row in mechanisms for level in LEVELS if row[level] is not None), default=None)
    law = friction["rows"][0]
    sentences = [
        f"Pendulum (index 3), {periods} periods: projected onto position, velocity and energy, the largest relative "
        f"violation is {format_number(max(projected[level] for level in LEVELS))}.",
        f"RATTLE: largest relative violation {format_number(max(rattle['position'], rattle['velocity']))}; largest "
        f"relative error of the energy {format_number(rattle['energy'])}, of which "
        f"{format_number(rattle['energy_drift'])} is drift.",
        f"Friction law from positions with noise {format_number(NOISE)}: relative rms error "
        f"{format_number(law['law_error_rms'])}"
        + (f"; largest violation of the twin {format_number(law['violation_max'])}." if law["projected"] else "."),
    ]
    if worst is not None:
        sentences.append(f"Double pendulum, slider-crank and skate: largest relative violation {format_number(worst)}.")
    for name, what in (
        ("RK4", "Without projection"),
        ("RK4, position", "With the length alone, without its hidden constraint"),
    ):
        if name in by and by[name]["failed_after"] is not None:
            sentences.append(f"{what}, the run fails after {by[name]['failed_after']:.0f} periods.")
    idas = [row["violation"] for row in peers if row["solver"].startswith("IDAS")]
    if idas:
        largest = format_number(max(idas))
        sentences.append(f"CasADi's IDAS on the index-1 form: violation of the length up to {largest}.")
    return sentences


def _drifts(rows: Sequence[dict[str, Any]]) -> Picture:
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {level: {} for level in LEVELS}
    for row in rows:
        values = np.array(row["curves"])
        for column, level in enumerate(LEVELS):
            panels[level][row["method"]] = values[:, 0], values[:, 1 + column]
    return Picture(
        "index_drift",
        "A pendulum of index 3: violation over time",
        "Largest relative violation within windows of time. A line ends where its run fails.",
        lambda: curves(panels, "periods", "relative violation", markers=False),
    )


def _peers(rows: Sequence[dict[str, Any]]) -> Picture:
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {"position error": {}, "violation of the length": {}}
    for solver in dict.fromkeys(row["solver"] for row in rows):
        here = [row for row in rows if row["solver"] == solver]
        seconds = np.array([row["seconds"] for row in here])
        panels["position error"][solver] = seconds, np.array([row["error"] for row in here])
        panels["violation of the length"][solver] = seconds, np.array([row["violation"] for row in here])
    return Picture(
        "index_peers",
        "Error and violation against computing time",
        "A pendulum of index 3: each solver at several steps or tolerances.",
        lambda: curves(panels, "seconds", "error", columns=2),
    )
