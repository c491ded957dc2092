"""Higher index: mechanisms in redundant coordinates over a long time, with hidden constraints, RATTLE and friction.

What a pendulum of index 3 keeps over a thousand periods, and what it loses without its hidden constraint; peers that
solve the same system; a double pendulum, a slider-crank and a skate; a friction law learned from positions.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import RESULTS
from twinfold.model import Conserved, Multibody, Stabilised, constraint_of, index_of
from twinfold.numerics import Cell, Newton, Rattle, Trajectory, rollout, violation_scale
from twinfold.report import number
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.kept import kept
from twinfold_studies.bench.store import Store
from twinfold_studies.numerics.friction_law import FAST, NOISE, SLOW, law_picture, learned_friction
from twinfold_studies.numerics.pendulum_peers import against_time
from twinfold_studies.systems.double_pendulum import double_pendulum, double_pendulum_state
from twinfold_studies.systems.pendulum import pendulum, pendulum_period, pendulum_state
from twinfold_studies.systems.skate import skate, skate_motion
from twinfold_studies.systems.slider_crank import slider_crank, slider_crank_state

AMPLITUDE = 2.0  # radians
STEPS = 100  # a period
LEVELS = ("position", "velocity", "energy")
WHOLE = "position, velocity, energy"


def find(store: Store, quick: bool, tell: Callable[[str], None]) -> Findings:
    """Every part, or a short version of each."""
    periods = 20 if quick else 1000
    tell("numerics: higher index, the pendulum")
    long = kept(
        store, "numerics-index-pendulum", [AMPLITUDE, STEPS, periods, "lost"], lambda: pendulum_runs(periods, quick)
    )
    tell("numerics: higher index, other mechanisms")
    others = [] if quick else kept(store, "numerics-index-mechanisms", [STEPS, 100], lambda: mechanisms(100))
    tell("numerics: higher index, peers")
    peers = kept(
        store, "numerics-index-peers", [AMPLITUDE, quick], lambda: against_time(AMPLITUDE, 5 if quick else 20, quick)
    )
    tell("numerics: higher index, friction")
    friction = kept(store, "numerics-index-friction", [NOISE, FAST, SLOW, quick], lambda: learned_friction(quick))
    rows = [{name: value for name, value in row.items() if name != "curves"} for row in long]
    whole, rattle = (next(row for row in long if row["method"].endswith(name)) for name in (WHOLE, "RATTLE"))
    tables = [
        Table(
            "index_pendulum",
            f"A pendulum of index 3 over {periods} periods of {STEPS} steps: largest relative violation",
            rows,
            caption="Up to where a run is lost (`failed_after`, in periods). Drift is the fitted change of energy over "
            "the whole run, relative to the energy's size; phase is the error of the position at the end.",
        ),
        Table(
            "index_peers",
            "The same pendulum by other solvers: error of the position, violation of the length, time",
            peers,
            caption="DOP853 is SciPy's, in the angle and in Cartesian coordinates (index reduced); IDAS is that of "
            "SUNDIALS through CasADi, on the index-1 form. After whole periods and a quarter: the exact position is "
            "known there, and moves fastest.",
        ),
        Table("index_friction", "The friction law, true and learned", friction["rows"]),
    ]
    if others:
        title = "Other mechanisms, projected onto all they have to obey, and RATTLE: largest relative violation"
        tables.insert(1, Table("index_mechanisms", title, others))
    pictures = [_drifts(long), _peers(peers), law_picture(friction)]
    summary = {
        "pendulum_violation_max": max(whole[level] for level in LEVELS),
        "pendulum_energy_drift": rattle["energy_drift"],
        "friction_law_error": friction["error"],
    }
    return Findings(words(long, others, peers, friction, periods), tables, pictures, summary)


def contenders(mechanism: Multibody) -> dict[str, Cell]:
    """The ways to keep a mechanism together."""
    both = constraint_of(mechanism)
    found = {
        "RK4": Cell(mechanism, constraint=both),
        "RK4, stabilised": Cell(Stabilised(mechanism, both), constraint=both),
        "RK4, position": Cell(mechanism, constraint=constraint_of(mechanism, hidden=False), projection=Newton()),
        "RK4, position, velocity": Cell(mechanism, constraint=both, projection=Newton()),
        f"RK4, {WHOLE}": Cell(mechanism, constraint=constraint_of(mechanism, energy=True), projection=Newton()),
    }
    if mechanism.velocity is None:
        found["RATTLE"] = Cell(mechanism, integrator=Rattle(mechanism), constraint=both)
    return found


def simulate(cell: Cell, x0: jax.Array, ts: jax.Array) -> tuple[Trajectory, float]:
    """The run, and its seconds once compiled."""
    run = eqx.filter_jit(lambda x0, ts: rollout(cell, x0, ts, throw=False))
    jax.block_until_ready(run(x0, ts).xs)
    start = time.perf_counter()
    trajectory = run(x0, ts)
    jax.block_until_ready(trajectory.xs)
    return trajectory, time.perf_counter() - start


def violations(mechanism: Multibody, trajectory: Trajectory) -> tuple[np.ndarray, int]:
    """Relative violation of position level, velocity level and energy at each sample; samples until the run is lost.

    A column for each of `LEVELS`, the largest of its equations; not a number where the mechanism has none.
    """
    whole, ts, xs = constraint_of(mechanism, energy=True), trajectory.ts, trajectory.xs
    level = whole.level(ts[0], xs[0], {})
    off = jax.vmap(lambda t, x: jnp.abs(whole.residual(t, x, {}, level)))(ts, xs)
    off = np.asarray(off / violation_scale(whole, ts[0], xs[0], {}, level))
    count = off.shape[1] - 1  # the last is the energy
    positions = count // 2 if mechanism.position is not None else 0
    groups = (off[:, :positions], off[:, positions:count], off[:, count:])
    # A length that is off by all of itself is no pendulum any more.
    failed = np.asarray(trajectory.result != RESULTS.successful) | ~(off.max(1) < 1)
    values = np.stack([group.max(1) if group.shape[1] else np.full(len(off), np.nan) for group in groups], axis=1)
    return values, int(failed.argmax()) if failed.any() else len(off)


def pendulum_runs(periods: int, quick: bool) -> list[dict[str, Any]]:
    """Each way over the whole time: what it keeps, what drifts, and where it ends."""
    mechanism, x0, period = pendulum(), pendulum_state(AMPLITUDE), pendulum_period(AMPLITUDE)
    ts = jnp.linspace(0.0, (periods + 0.25) * period, STEPS * periods + STEPS // 4 + 1)
    rows = []
    for name, cell in contenders(mechanism).items():
        if quick and name not in ("RK4", f"RK4, {WHOLE}", "RATTLE"):
            continue
        trajectory, seconds = simulate(cell, x0, ts)
        off, alive = violations(mechanism, trajectory)
        energy = np.asarray(jax.vmap(lambda x: mechanism.energy(x, {}))(trajectory.xs))[:alive]
        size = float(violation_scale(Conserved(mechanism.energy), ts[0], x0, {}, jnp.array([energy[0]]))[0])
        # At whole periods and a quarter the pendulum hangs straight down.
        phase = float(np.linalg.norm(np.asarray(trajectory.xs[-1, :2]) - [0.0, -1.0]))
        rows.append(
            {"method": name}
            | {level: float(off[:alive, column].max()) for column, level in enumerate(LEVELS)}
            | {
                "energy_drift": _drift(energy[1:], STEPS) / size,
                "phase": phase if alive == len(off) else None,
                "failed_after": None if alive == len(off) else alive / STEPS,
                "seconds": seconds,
                "curves": _thinned(np.arange(alive) / STEPS, off[:alive]),
            }
        )
    return rows


def _drift(energy: np.ndarray, per: int) -> float:
    """|slope| times length of a line through the means over each period: what oscillates within one does not count."""
    count = len(energy) // per
    if count < 2:
        return float("nan")
    means = energy[: count * per].reshape(count, per).mean(1)
    return float(abs(np.polyfit(np.arange(count), means - means[0], 1)[0]) * count)


def _thinned(periods: np.ndarray, off: np.ndarray, count: int = 60) -> list[list[float]]:
    """Time and the largest violation of each level in windows of equal width on a log axis."""
    edges = np.unique(np.geomspace(1, len(periods), count).astype(int))
    return [[float(periods[b - 1]), *(float(value) for value in off[a:b].max(0))] for a, b in itertools.pairwise(edges)]


def mechanisms(periods: int) -> list[dict[str, Any]]:
    """Double pendulum, slider-crank and skate: index, and what holds over a hundred turns or swings."""
    cases: dict[str, tuple[Multibody, jax.Array, float]] = {
        "slider-crank": (slider_crank(), slider_crank_state(0.3, 6.0), 1.05),
        "double pendulum": (double_pendulum(), double_pendulum_state([0.8, 1.2]), 2.2),
        "skate": (skate(), skate_motion(jnp.array(0.0), 1.3), 4.84),
    }
    rows = []
    for name, (mechanism, x0, period) in cases.items():
        ts = jnp.linspace(0.0, periods * period, STEPS * periods + 1)
        found = index_of(mechanism, x0)
        for method in (f"RK4, {WHOLE}", "RATTLE"):
            if method not in contenders(mechanism):
                continue
            trajectory, seconds = simulate(contenders(mechanism)[method], x0, ts)
            off, alive = violations(mechanism, trajectory)
            worst = {level: float(off[:alive, column].max()) for column, level in enumerate(LEVELS)}
            rows.append(
                {"mechanism": name, "index": found.index, "hidden": found.hidden, "method": method, "periods": periods}
                | {level: value if np.isfinite(value) else None for level, value in worst.items()}
                | {"failed_after": None if alive == len(off) else alive / STEPS, "seconds": seconds}
            )
    return rows


def words(long: Sequence, others: Sequence, peers: Sequence, friction: dict, periods: int) -> list[str]:
    """What was found, in sentences."""
    by = {row["method"]: row for row in long}
    whole, rattle = by[f"RK4, {WHOLE}"], by["RATTLE"]
    projected = [row for row in others if row["method"] != "RATTLE"]
    worst = max((row[level] for row in projected for level in LEVELS if row[level] is not None), default=None)
    law = friction["rows"][0]
    sentences = [
        f"Pendulum (index 3), {periods} periods: projected onto position, velocity and energy, no relative violation "
        f"exceeds {number(max(whole[level] for level in LEVELS))}.",
        f"RATTLE keeps both levels to {number(max(rattle['position'], rattle['velocity']))}; its energy error stays "
        f"below {number(rattle['energy'])}, and {number(rattle['energy_drift'])} of it is drift.",
        f"Friction law from positions with noise {number(NOISE)}: within {number(law['law_error_rms'])} (relative, rms)"
        + (f", both levels of the fitted twin within {number(law['violation_max'])}." if law["projected"] else "."),
    ]
    if worst is not None:
        sentences.append(f"Double pendulum, slider-crank and skate: no relative violation above {number(worst)}.")
    for name, what in (("RK4", "no projection"), ("RK4, position", "the length alone, its hidden constraint left out")):
        if name in by and by[name]["failed_after"] is not None:
            sentences.append(f"With {what}, the run ends after {by[name]['failed_after']:.0f} periods.")
    idas = [row["violation"] for row in peers if row["solver"].startswith("IDAS")]
    if idas:
        sentences.append(f"CasADi's IDAS on the index-1 form leaves the length by up to {number(max(idas))}.")
    return sentences


def _drifts(rows: Sequence[dict[str, Any]]) -> Picture:
    panels: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {level: {} for level in LEVELS}
    for row in rows:
        values = np.array(row["curves"])
        for column, level in enumerate(LEVELS):
            panels[level][row["method"]] = values[:, 0], values[:, 1 + column]
    return Picture(
        "index_drift",
        "What a pendulum of index 3 keeps",
        "Largest relative violation within windows of time. A line ends where its run is lost.",
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
        "Error against time, and what is left of the constraint",
        "A pendulum of index 3: each solver at several steps or tolerances.",
        lambda: curves(panels, "seconds", "error", columns=2),
    )
