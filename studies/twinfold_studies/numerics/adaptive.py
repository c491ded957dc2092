"""Adaptive projection: violation, distance from the robust trajectory and cost of a step, against the threshold."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold.model import hrpinn
from twinfold.numerics import RK4, AbstractProjection, Adaptive, Cell, Newton, Tangent, rollout
from twinfold.report import format_number
from twinfold.systems import System, two_body
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.contenders import Design
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.timing import best_times
from twinfold_studies.systems.robot_arm import robot_arm

SYSTEMS: dict[str, Callable[[], System]] = {"two_body": lambda: two_body(energy=True), "robot_arm": robot_arm}
BATCH, STEPS, WEIGHTS = 16, 50, 300
REPEATS = 400  # the program is shorter than a time slice of the scheduler: the best run is undisturbed
SMALL_WEIGHTS = 0.05  # weights of a grey box near the end of training, relative to the initial ones
MAX_FROZEN_STEPS = 16  # of `Adaptive`: a result with more steps comes from its robust iteration
# The disturbance of the field moves the predictors far enough for the threshold to matter.
DISTURBANCE = 0.1
DEFAULT = Adaptive().threshold
THRESHOLDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, DEFAULT, 0.5)
QUICK = (1e-3, DEFAULT)


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """The true field and a grey box at the default threshold, and a disturbed field at all thresholds."""
    rows, sweep = [], []
    for name in ("two_body",) if quick else SYSTEMS:
        if quick:
            log(f"adaptive projection: {name}")
            sweep += _cached_rows(store, name, "exact", QUICK, quick)
            rows += [row for row in sweep if row["threshold"] in (None, DEFAULT)]
            continue
        for field in ("exact", "grey box"):
            log(f"adaptive projection: {name}, {field} field")
            rows += _cached_rows(store, name, field, (DEFAULT,), quick)
        log(f"adaptive projection: {name}, thresholds")
        sweep += _cached_rows(store, name, "disturbed", THRESHOLDS, quick)
    used = [row for row in rows if row["projection"] == "adaptive"]
    summary = {
        "adaptive_violation_max": max(row["violation_max"] for row in rows + sweep if row["projection"] == "adaptive"),
        "adaptive_cost_ratio": max(row["cost_ratio"] for row in used),
    }
    caption = (
        f"A batch of {BATCH} trajectories of {STEPS} RK4 steps under vmap, float64, forward; best of many. cost_ratio: "
        "relative to the fast projection. robust_share: of the steps of all trajectories. distance: largest distance "
        f"from the trajectory of the robust projection. The disturbance of a disturbed field is {DISTURBANCE}."
    )
    tables = [
        Table("adaptive", "Adaptive projection: one step", rows, caption=caption),
        Table("adaptive_threshold", "Adaptive projection: the threshold", sweep, caption=caption),
    ]
    return Findings(_summarise(rows, sweep, summary), tables, _pictures(sweep), summary)


def _cached_rows(
    store: Store, name: str, field: str, thresholds: tuple[float, ...], quick: bool
) -> list[dict[str, Any]]:
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
    return cached(store, "numerics-adaptive", settings, lambda: measure(name, field, thresholds, quick))


def measure(name: str, field: str, thresholds: tuple[float, ...], quick: bool) -> list[dict[str, Any]]:
    """A row for each projection: time per step, violation, share of robust steps, distance from robust."""
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
    trajectories = {key: each(x0s) for key, each in programs.items()}
    runs = {key: lambda each=each: each(x0s) for key, each in programs.items()}
    best = best_times(runs, REPEATS // 4 if quick else REPEATS)
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
            "distance": float(jnp.max(jnp.abs(out.xs - trajectories["robust", None].xs))),
            "failed": int(jnp.sum(out.failed)),
        }
        for key, out in trajectories.items()
    ]


def _field(system: System, kind: str) -> Callable:
    """The true field, with a smooth disturbance, or with a network of small weights (a grey box)."""
    if kind == "exact":
        return system.truth
    states = len(system.state_names)
    if kind == "disturbed":
        wave = jnp.arange(1.0, 1 + states)
        return lambda t, x: system.truth(t, x) + DISTURBANCE * jnp.cos(wave * jnp.sum(x) + wave) / jnp.sqrt(states)
    twin = hrpinn(system.truth, Design(system, WEIGHTS, None).residual()).initialise(jax.random.key(0), states=states)
    weights, rest = eqx.partition(twin.field, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: SMALL_WEIGHTS * leaf, weights), rest)


def _summarise(rows: list[dict[str, Any]], sweep: list[dict[str, Any]], summary: dict[str, float]) -> list[str]:
    sentences = [
        f"Adaptive projection: largest relative violation {format_number(summary['adaptive_violation_max'])}; a step "
        f"takes at most {summary['adaptive_cost_ratio']:.2f} times as long as with the fast projection (threshold "
        f"{DEFAULT:g}, batch "
        f"of {BATCH})."
    ]
    for row in rows:
        if row["projection"] != "fast":
            sentences.append(
                f"{row['system']}, {row['field']} field, {row['projection']}: {row['cost_ratio']:.2f} times the time "
                f"of a fast step, violation {format_number(row['violation_max'])}."
            )
    for name in dict.fromkeys(row["system"] for row in sweep):
        here = [row for row in sweep if row["system"] == name and row["projection"] == "adaptive"]
        sentences.append(
            f"{name}, {here[0]['field']} field: from threshold {here[0]['threshold']:g} to {here[-1]['threshold']:g} "
            f"the share of robust steps falls from {here[0]['robust_share']:.0%} to {here[-1]['robust_share']:.0%}, "
            f"the time from {here[0]['cost_ratio']:.2f} to {here[-1]['cost_ratio']:.2f} times that of a fast step, and "
            f"the distance from the robust trajectory grows from {format_number(here[0]['distance'])} to "
            f"{format_number(here[-1]['distance'])}."
        )
    return sentences


def _pictures(sweep: list[dict[str, Any]]) -> list[Picture]:
    def panels(labels: dict[str, str]) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
        out: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        for name in dict.fromkeys(row["system"] for row in sweep):
            here = [row for row in sweep if row["system"] == name and row["projection"] == "adaptive"]
            thresholds = np.array([row["threshold"] for row in here])
            out[SYSTEMS[name]().title] = {
                label: (thresholds, np.array([row[key] for row in here])) for label, key in labels.items()
            }
            for label, key in (("fast", "fast"), ("robust", "robust")):
                (row,) = (row for row in sweep if row["system"] == name and row["projection"] == key)
                for metric, column in labels.items():
                    if column in ("violation_max", "cost_ratio"):
                        constant = np.full(len(thresholds), row[column])
                        out[SYSTEMS[name]().title][f"{metric}, {label}"] = (thresholds, constant)
        return out

    errors = {"violation": "violation_max", "distance from the robust trajectory": "distance"}
    costs = {"time": "cost_ratio", "share of robust steps": "robust_share"}
    return [
        Picture(
            "adaptive_error",
            "Adaptive projection: error against the threshold",
            f"The same runs as in the table; largest values over {BATCH} trajectories of {STEPS} steps.",
            lambda: curves(panels(errors), "threshold", "relative violation, distance"),
        ),
        Picture(
            "adaptive_cost",
            "Adaptive projection: cost against the threshold",
            f"Time of a step of {BATCH} trajectories under vmap, relative to the fast projection; the same runs.",
            lambda: curves(panels(costs), "threshold", "time relative to fast, share", log=(True, False)),
        ),
    ]
