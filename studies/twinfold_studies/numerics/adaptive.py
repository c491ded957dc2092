"""Adaptive projection: violation, distance from the nearest points and cost of a whole step, against the threshold."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold.model import hrpinn
from twinfold.numerics import RK4, AbstractProjection, Adaptive, Cell, Newton, Tangent, rollout
from twinfold.numerics._project.adaptive import MAX_FROZEN_STEPS
from twinfold.report import number
from twinfold.systems import System, two_body
from twinfold_studies.bench.contenders import Design
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.kept import kept
from twinfold_studies.bench.store import Store
from twinfold_studies.systems.robot_arm import robot_arm

SYSTEMS: dict[str, Callable[[], System]] = {"two_body": lambda: two_body(energy=True), "robot_arm": robot_arm}
BATCH, STEPS, WEIGHTS = 16, 50, 300
REPEATS = 400  # of a program that takes less than a scheduler's time slice: the best of them met nobody
SMALL_WEIGHTS = 0.05  # of a grey box near the end of its training, in units of those that it starts with
# A field off by this much takes the predictors far enough for the threshold to matter.
DISTURBANCE = 0.1
DEFAULT = Adaptive().threshold
THRESHOLDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, DEFAULT, 0.5)
QUICK = (1e-3, DEFAULT)


def find(store: Store, quick: bool, tell: Callable[[str], None]) -> Findings:
    """The exact field and a grey box at the default threshold, a disturbed field at all of them."""
    rows, sweep = [], []
    for name in ("two_body",) if quick else SYSTEMS:
        if quick:
            tell(f"adaptive projection: {name}")
            sweep += _kept(store, name, "exact", QUICK, quick)
            rows += [row for row in sweep if row["threshold"] in (None, DEFAULT)]
            continue
        for field in ("exact", "grey box"):
            tell(f"adaptive projection: {name}, {field} field")
            rows += _kept(store, name, field, (DEFAULT,), quick)
        tell(f"adaptive projection: {name}, thresholds")
        sweep += _kept(store, name, "disturbed", THRESHOLDS, quick)
    used = [row for row in rows if row["projection"] == "adaptive"]
    summary = {
        "adaptive_violation_max": max(row["violation_max"] for row in rows + sweep if row["projection"] == "adaptive"),
        "adaptive_cost_ratio": max(row["cost_ratio"] for row in used),
    }
    caption = (
        f"A batch of {BATCH} trajectories of {STEPS} RK4 steps under vmap, float64, forward; best of many, in turns. "
        "cost_ratio: over the fast projection. robust_share: of the steps of all trajectories. distance: largest "
        f"distance from the trajectory of the robust projection. A disturbed field is off by {DISTURBANCE}."
    )
    tables = [
        Table("adaptive", "Adaptive projection: a whole step", rows, caption=caption),
        Table("adaptive_threshold", "Adaptive projection: the threshold", sweep, caption=caption),
    ]
    return Findings(_words(rows, sweep, summary), tables, _pictures(sweep), summary)


def _kept(store: Store, name: str, field: str, thresholds: tuple[float, ...], quick: bool) -> list[dict[str, Any]]:
    settings = [
        name,
        field,
        thresholds,
        BATCH,
        STEPS,
        WEIGHTS,
        REPEATS,
        DISTURBANCE,
        SMALL_WEIGHTS,
        quick,
        jax.default_backend(),
    ]
    return kept(store, "numerics-adaptive", settings, lambda: measured(name, field, thresholds, quick))


def measured(name: str, field: str, thresholds: tuple[float, ...], quick: bool) -> list[dict[str, Any]]:
    """A row for each projection: time of a step, violation, share of robust steps, distance from the robust result."""
    system = SYSTEMS[name]()
    x0s, ts = system.draw(jax.random.key(1), BATCH), system.dt * jnp.arange(STEPS + 1)
    projections: dict[tuple[str, float | None], AbstractProjection] = {
        ("fast", None): Tangent(),
        **{("adaptive", threshold): Adaptive(threshold=threshold) for threshold in thresholds},
        ("robust", None): Newton(),
    }

    def program(projection: AbstractProjection) -> Callable[..., Any]:
        cell = Cell(_field(system, field), None, RK4(system.substeps), system.constraint, projection)
        return jax.jit(lambda x0s: jax.vmap(lambda x0: rollout(cell, x0, ts, throw=False))(x0s)).lower(x0s).compile()

    programs = {key: program(projection) for key, projection in projections.items()}
    found = {key: each(x0s) for key, each in programs.items()}
    best = _best(
        {key: lambda each=each: each(x0s) for key, each in programs.items()}, REPEATS // 4 if quick else REPEATS
    )
    return [
        {
            "system": name,
            "field": field,
            "projection": key[0],
            "threshold": key[1],
            "step_us": 1e6 * best[key] / STEPS,
            "cost_ratio": best[key] / best["fast", None],
            "violation_max": float(jnp.max(out.relative_violation)),
            "robust_share": float(jnp.mean(out.steps > MAX_FROZEN_STEPS))
            if key[0] == "adaptive"
            else float(key[0] == "robust"),
            "distance": float(jnp.max(jnp.abs(out.xs - found["robust", None].xs))),
            "failed": int(jnp.sum(out.failed)),
        }
        for key, out in found.items()
    ]


def _field(system: System, kind: str) -> Callable:
    """The exact field, one off by a smooth disturbance, or a grey box whose network is off by its small weights."""
    if kind == "exact":
        return system.truth
    states = len(system.state_names)
    if kind == "disturbed":
        wave = jnp.arange(1.0, 1 + states)
        return lambda t, x: system.truth(t, x) + DISTURBANCE * jnp.cos(wave * jnp.sum(x) + wave) / jnp.sqrt(states)
    twin = hrpinn(system.truth, Design(system, WEIGHTS, None).residual()).initialise(jax.random.key(0), states=states)
    weights, rest = eqx.partition(twin.field, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: SMALL_WEIGHTS * leaf, weights), rest)


def _best(programs: dict[Any, Callable[[], Any]], repeats: int) -> dict[Any, float]:
    """The shortest time of each; they take turns, so that a busy moment meets them all."""
    best = dict.fromkeys(programs, float("inf"))
    for repeat in range(repeats):
        for key in programs if repeat % 2 else reversed(programs):
            began = time.perf_counter()
            jax.block_until_ready(programs[key]())
            best[key] = min(best[key], time.perf_counter() - began)
    return best


def _words(rows: list[dict[str, Any]], sweep: list[dict[str, Any]], summary: dict[str, float]) -> list[str]:
    said = [
        f"Adaptive projection: relative violation at most {number(summary['adaptive_violation_max'])}, a whole step at "
        f"most {summary['adaptive_cost_ratio']:.2f} times as long as with the fast projection (threshold {DEFAULT:g}, "
        f"batch of {BATCH})."
    ]
    for row in rows:
        if row["projection"] != "fast":
            said.append(
                f"{row['system']}, {row['field']} field, {row['projection']}: {row['cost_ratio']:.2f} times the fast "
                f"step, violation {number(row['violation_max'])}."
            )
    for name in dict.fromkeys(row["system"] for row in sweep):
        here = [row for row in sweep if row["system"] == name and row["projection"] == "adaptive"]
        said.append(
            f"{name}, {here[0]['field']} field: from threshold {here[0]['threshold']:g} to {here[-1]['threshold']:g} "
            f"the share of robust steps falls from {here[0]['robust_share']:.0%} to {here[-1]['robust_share']:.0%}, "
            f"the cost from {here[0]['cost_ratio']:.2f} to {here[-1]['cost_ratio']:.2f} times the fast step's, and the "
            f"distance from the robust trajectory grows from {number(here[0]['distance'])} to "
            f"{number(here[-1]['distance'])}."
        )
    return said


def _pictures(sweep: list[dict[str, Any]]) -> list[Picture]:
    def panels(named: dict[str, str]) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
        out: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        for name in dict.fromkeys(row["system"] for row in sweep):
            here = [row for row in sweep if row["system"] == name and row["projection"] == "adaptive"]
            across = np.array([row["threshold"] for row in here])
            out[SYSTEMS[name]().title] = {
                label: (across, np.array([row[key] for row in here])) for label, key in named.items()
            }
            for label, key in (("fast", "fast"), ("robust", "robust")):
                (row,) = (row for row in sweep if row["system"] == name and row["projection"] == key)
                for shown, of in named.items():
                    if of in ("violation_max", "cost_ratio"):
                        out[SYSTEMS[name]().title][f"{shown}, {label}"] = (across, np.full(len(across), row[of]))
        return out

    errors = {"violation": "violation_max", "distance from the robust trajectory": "distance"}
    costs = {"cost": "cost_ratio", "share of robust steps": "robust_share"}
    return [
        Picture(
            "adaptive_error",
            "Adaptive projection: error against the threshold",
            f"The field and runs of the table; the largest over {BATCH} trajectories of {STEPS} steps.",
            lambda: curves(panels(errors), "threshold", "relative violation, distance"),
        ),
        Picture(
            "adaptive_cost",
            "Adaptive projection: cost against the threshold",
            f"A whole step of {BATCH} trajectories under vmap, over that of the fast projection; the same runs.",
            lambda: curves(panels(costs), "threshold", "cost over that of fast, share", log=(True, False)),
        ),
    ]
