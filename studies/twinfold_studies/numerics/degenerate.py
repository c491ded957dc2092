"""Degenerate constraints and bounds: redundant, singular, infeasible and one-sided constraints."""

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold import RESULTS
from twinfold.model import Bounds, Conserved, Constraint, Stack
from twinfold.numerics import RK4, AbstractProjection, Adaptive, Cell, Euler, Newton, NoProjection, Tangent, rollout
from twinfold.plot import COLOURS, GREY, INK, subplots
from twinfold.report import format_number
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.timing import best_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROJECTIONS: dict[str, AbstractProjection] = {
    "fast": Tangent(derivative="implicit"),
    "frozen": Tangent(max_steps=20, derivative="implicit"),
    "adaptive": Adaptive(),
    "robust": Newton(),
}
H = 1e-5  # step of central differences


def circle(x: Any) -> Any:
    return x[0] ** 2 + x[1] ** 2 - 1


# Constraints by number of equations; a parameter selects one.
KINDS: dict[int, dict[str, Callable]] = {
    1: {
        "circle": circle,
        "crossing lines": lambda x: x[0] * x[1],
        "cone": lambda x: x[0] ** 2 + x[1] ** 2 - x[2] ** 2,
        "no solution": lambda x: x @ x + 1,
    },
    2: {
        "circle and plane": lambda x: jnp.stack([circle(x), x[2] - x[0]]),
        "the same twice": lambda x: jnp.stack([circle(x), 2 * circle(x)]),
        "touching curves": lambda x: jnp.stack([x[1], x[1] - x[0] ** 2]),
        "contradiction": lambda x: jnp.stack([circle(x), circle(x) - 1]),
        "bent": lambda x: jnp.stack([circle(x), circle(x) + 0.1 * circle(x) ** 2]),  # the same manifold
    },
    3: {
        "circle, twice, and plane": lambda x: jnp.stack([circle(x), x[2] - x[0], 3 * circle(x)]),
        "a sum of the others": lambda x: jnp.stack([circle(x), x[2] - x[0], circle(x) - 2 * (x[2] - x[0])]),
        "a product in the sum": lambda x: jnp.stack([circle(x), x[2] - x[0], circle(x) + (x[2] - x[0]) * (1 + x[1])]),
        "one contradicts": lambda x: jnp.stack([circle(x), x[2] - x[0], circle(x) + x[2] - x[0] - 0.5]),
    },
}
# Constraint, situation, predictor, last state on the manifold.
CASES: list[tuple[str, str, list[float], list[float]]] = [
    ("circle", "regular", [0.7, 0.8, 0.3], [0.6, 0.8, 0.0]),
    ("circle", "far predictor", [30.0, -4.0, 2.0], [0.6, 0.8, 0.0]),
    ("circle", "centre: no nearest point", [0.0, 0.0, 0.0], [0.6, 0.8, 0.0]),
    ("crossing lines", "regular", [0.8, 0.1, 0.2], [0.7, 0.0, 0.0]),
    ("crossing lines", "at the crossing", [0.0, 0.0, 0.2], [0.7, 0.0, 0.0]),
    ("cone", "at the tip", [0.0, 0.0, 0.0], [0.3, 0.4, 0.5]),
    ("no solution", "infeasible", [0.3, 0.4, 0.1], [0.3, 0.4, 0.1]),
    ("circle and plane", "regular", [0.7, 0.8, 0.5], [0.6, 0.8, 0.6]),
    ("circle and plane", "far predictor", [7.0, -3.0, 1.0], [0.6, 0.8, 0.6]),
    ("the same twice", "rank-deficient", [0.7, 0.8, 0.3], [0.6, 0.8, 0.0]),
    ("the same twice", "rank-deficient, far", [30.0, -4.0, 2.0], [0.6, 0.8, 0.0]),
    ("touching curves", "where they touch", [0.0, 0.0, 0.4], [0.0, 0.0, 0.5]),
    ("contradiction", "infeasible", [0.6, 0.8, 0.1], [0.6, 0.8, 0.0]),
    ("bent", "rank-deficient", [0.7, 0.8, 0.3], [0.6, 0.8, 0.0]),
    ("circle, twice, and plane", "rank-deficient", [0.7, 0.8, 0.5], [0.6, 0.8, 0.6]),
    ("circle, twice, and plane", "rank-deficient, far", [7.0, -3.0, 1.0], [0.6, 0.8, 0.6]),
    ("a sum of the others", "rank-deficient", [0.7, 0.8, 0.5], [0.6, 0.8, 0.6]),
    ("a sum of the others", "rank-deficient, far", [7.0, -3.0, 1.0], [0.6, 0.8, 0.6]),
    ("a product in the sum", "rank-deficient", [0.7, 0.8, 0.5], [0.6, 0.8, 0.6]),
    ("a product in the sum", "rank-deficient, far", [7.0, -3.0, 1.0], [0.6, 0.8, 0.6]),
    ("one contradicts", "infeasible", [0.7, 0.8, 0.5], [0.6, 0.8, 0.6]),
]
OUTCOMES = ("successful", "outside_domain", "not_differentiable", "singular", "not_converged", "second_order")


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """Degenerate situations, a pendulum with a redundant constraint, and bounds."""
    names = ["robust"] if quick else list(PROJECTIONS)
    dtypes = ["float64"] if quick else ["float64", "float32"]
    rows = []
    for name in names:
        for dtype in dtypes:
            log(f"degenerate constraints: {name}, {dtype}")
            rows += cached(
                store,
                "numerics-degenerate",
                [name, dtype, CASES, H],
                lambda name=name, dtype=dtype: case_rows(name, dtype),
            )
    log("redundant constraints: a pendulum with its length given twice")
    steps = 50 if quick else 1000
    swing = cached(store, "numerics-redundant", [steps], lambda: redundant_pendulum(steps))
    log("bounds")
    count = 20 if quick else 200
    bounded = cached(store, "numerics-bounds", [count], lambda: bounded_projections(count))
    run = cached(store, "numerics-kinetics", ["Euler", 1.4], concentrations)
    wrong = sum(row["verdict"] == "wrong" for row in rows)
    summary = {
        "degenerate_wrong": float(wrong),
        "redundant_violation_max": max(row["violation_max"] for row in swing),
        "bounds_violation_max": bounded["violation_max"],
        "bounds_solved_share": bounded["solved"] / bounded["states"],
    }
    sentences = [
        f"Degenerate constraints: of {len(rows)} combinations of projection, precision, situation and order of the "
        f"equations "
        f"{sum(row['verdict'] == 'correct' for row in rows)} are correct, "
        f"{sum(row['verdict'] == 'flagged' for row in rows)} flagged (state unchanged, identity derivative), "
        f"{sum(row['verdict'] == 'reported' for row in rows)} reported by their violation (a single linearised step), "
        f"and {wrong} wrong.",
        f"A pendulum with its length given twice, {steps} steps: largest relative violation "
        f"{format_number(summary['redundant_violation_max'])}, distance from the trajectory with the length given once "
        f"{format_number(swing[-1]['distance'])}, {swing[-1]['cost_ratio']:.2f} times its time.",
        f"Bounds on a sphere: {bounded['solved']} of {bounded['states']} states solved, largest violation "
        f"{format_number(bounded['violation_max'])}; the point of SciPy's SLSQP is nearer by more than "
        f"1e-7 for {bounded['peer_nearer']} of them and farther for {bounded['peer_farther']}.",
    ]
    tables = [
        Table(
            "degenerate",
            "Degenerate constraints, by projection",
            rows,
            caption="Each situation with its equations in every order. correct: on the manifold, and the derivative "
            "agrees with central differences; flagged: state unchanged, identity derivative; reported: one "
            "linearised step, with its violation.",
        ),
        Table("redundant", "A pendulum with its length given once and twice", swing),
        Table("bounds", "Nearest states with bounds, compared with SciPy's SLSQP", [bounded]),
    ]
    pictures = [
        Picture(
            "bounds",
            "Bounds and a conserved total",
            "A -> B -> C by explicit Euler with steps that are far too long: unprojected (the method itself conserves "
            "the total), and projected onto the total with non-negative concentrations.",
            lambda: concentration_figure(run),
        )
    ]
    return Findings(sentences, tables, pictures, summary)


def case_rows(name: str, dtype: str) -> list[dict[str, Any]]:
    """A row for each situation: result, violation, error of the derivative, and verdict."""
    shifts = H * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    rows = []
    for equations, kinds in KINDS.items():
        orders = list(itertools.permutations(range(equations)))
        chosen = [(*case, order) for case in CASES if case[0] in kinds for order in orders]
        names = list(kinds)
        selected = np.repeat([np.eye(len(names))[names.index(case[0])] for case in chosen], 7, axis=0)
        xs = np.concatenate([np.array(case[2]) + shifts for case in chosen])
        anchors = np.repeat([case[3] for case in chosen], 7, axis=0)
        permutations = np.repeat([np.eye(equations)[list(case[4])] for case in chosen], 7, axis=0)
        arrays = [jnp.asarray(each, dtype) for each in (xs, selected, anchors, permutations)]
        results = _program(PROJECTIONS[name], kinds, equations)(*arrays)
        by_case = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, 7, *leaf.shape[1:]), results)
        for i, (kind, situation, _, _, order) in enumerate(chosen):
            out, slopes = jax.tree.map(lambda leaf, i=i: leaf[i], by_case)
            difference = (out.x[1:4] - out.x[4:7]).T / (2 * H)
            label = next(name.replace("_", " ") for name in OUTCOMES if (out.result == getattr(RESULTS, name))[0])
            # Single precision has too few digits for differences; flagged states are unchanged.
            compared = dtype == "float64" and label == "successful"
            row = {
                "projection": name,
                "dtype": dtype,
                "constraint": kind,
                "situation": situation,
                "row_order": " ".join(str(1 + row) for row in order),
                "result": label,
                "violation": float(out.violation[0].max()),
                "redundant": int(out.redundant[0]),
                "derivative_error": float(np.abs(slopes[0] - difference).max()) if compared else None,
            }
            rows.append(row | {"verdict": _verdict(row, name, out.x[0], xs[7 * i], slopes[0])})
    return rows


def _program(projection: AbstractProjection, kinds: dict[str, Callable], equations: int) -> Callable:
    def residual(x: Any, p: Any) -> Any:
        return p["order"] @ (p["kind"] @ jnp.stack([jnp.atleast_1d(g(x)) for g in kinds.values()]))

    constraint = Constraint(residual)

    def one(x: Any, kind: Any, anchor: Any, order: Any) -> Any:
        def run(x: Any) -> Any:
            level, p = jnp.zeros(equations, x.dtype), {"kind": kind, "order": order}
            out = projection.project(constraint, jnp.zeros((), x.dtype), x, p, level, anchor=anchor)
            return out.x, out

        slopes, out = jax.jacfwd(run, has_aux=True)(x)
        return out, slopes

    # It runs once, so compilation dominates.
    return jax.jit(jax.vmap(one), compiler_options={"xla_backend_optimization_level": 0})


def _verdict(row: dict[str, Any], name: str, x: np.ndarray, target: np.ndarray, slopes: np.ndarray) -> str:
    """Correct, flagged, reported (by the violation) or wrong; see the caption of the table."""
    if not (np.isfinite(x).all() and np.isfinite(slopes).all()):
        return "wrong"
    if row["result"] != "successful":
        same = np.array_equal(x, target.astype(x.dtype)) and np.array_equal(slopes, np.eye(3))
        return "flagged" if same else "wrong"
    exact = row["derivative_error"] is None or row["derivative_error"] <= 1e-6
    if not exact:
        return "wrong"
    size = max(float(np.abs(target).max()), 1.0)
    satisfied = row["violation"] <= (1e-11 if row["dtype"] == "float64" else 1e-4) * size**2
    return "correct" if satisfied else "reported" if name == "fast" else "wrong"


def redundant_pendulum(steps: int) -> list[dict[str, Any]]:
    """The Cartesian pendulum with position and velocity constraints, and with the former given twice."""

    def field(x: Any) -> Any:
        pull = (x[2] ** 2 + x[3] ** 2 - 9.81 * x[1]) / (x[0] ** 2 + x[1] ** 2)
        return jnp.stack([x[2], x[3], -pull * x[0], -9.81 - pull * x[1]])

    velocity = Constraint(lambda x: x[0] * x[2] + x[1] * x[3])
    stacks = {
        "once": Stack([Constraint(circle), velocity]),
        "twice": Stack([Constraint(circle), Constraint(lambda x: 3 * circle(x)), velocity]),
    }
    x0, ts = jnp.array([0.8, -0.6, 0.3, 0.4]), 0.02 * jnp.arange(steps + 1)
    rows, first, seconds = [], None, {}
    for name, constraint in stacks.items():
        cell = Cell(field, integrator=RK4(), constraint=constraint, projection=Newton())
        run = jax.jit(lambda x0, cell=cell: rollout(cell, x0, ts, throw=False))
        out, seconds[name] = best_time(lambda run=run: run(x0), 9)
        first = out.xs if first is None else first
        rows.append(
            {
                "length given": name,
                "violation_max": float(out.relative_violation.max()),
                "failed": bool(out.failed),
                "redundant": int(np.max(np.asarray(out.redundant))),
                "distance": float(jnp.max(jnp.abs(out.xs - first))),
                "microseconds a step": 1e6 * seconds[name] / steps,
                "cost_ratio": seconds[name] / seconds["once"],
            }
        )
    return rows


def bounded_projections(count: int) -> dict[str, Any]:
    """The nearest states of a sphere with bounds on x_0 and x_1 x_2, and those of SLSQP from the same start."""
    from scipy.optimize import minimize

    constraint = Stack(
        [
            Constraint(lambda x: x @ x - 1),
            Bounds(lambda x: jnp.stack([x[0], x[1] * x[2]]), lower=[-0.2, -np.inf], upper=[0.5, 0.1]),
        ]
    )
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(count, 3))
    xs *= rng.uniform(0.7, 1.3, size=(count, 1)) / np.linalg.norm(xs, axis=1, keepdims=True)
    run = jax.jit(jax.vmap(lambda x: Newton().project(constraint, 0.0, x, {}, jnp.zeros(3))))
    out, ours = best_time(lambda: run(jnp.asarray(xs)), 1)
    solved = np.asarray(out.result == RESULTS.successful)
    rules = [
        {"type": "eq", "fun": lambda y: y @ y - 1},
        {"type": "ineq", "fun": lambda y: np.array([y[0] + 0.2, 0.5 - y[0], 0.1 - y[1] * y[2]])},
    ]
    start = time.perf_counter()
    peers = [
        minimize(
            lambda y, x=x: 0.5 * np.sum((y - x) ** 2),
            x,
            jac=lambda y, x=x: y - x,
            method="SLSQP",
            constraints=rules,
            options={"ftol": 1e-14, "maxiter": 300},
        )
        for x in xs
    ]
    theirs = time.perf_counter() - start
    nearest = np.stack([peer.x for peer in peers])
    gap = np.linalg.norm(np.asarray(out.x) - xs, axis=1) - np.linalg.norm(nearest - xs, axis=1)
    both = solved & np.array([peer.success for peer in peers])
    return {
        "states": count,
        "solved": int(solved.sum()),
        "violation_max": float(out.violation[solved].max()),
        "active, mean": float((np.asarray(out.multiplier)[:, 1:] != 0).sum(axis=1).mean()),
        "microseconds": 1e6 * ours / count,
        "peer_solved": int(sum(peer.success for peer in peers)),
        "peer_nearer": int((both & (gap > 1e-7)).sum()),
        "peer_farther": int((both & (gap < -1e-7)).sum()),
        "peer_microseconds": 1e6 * theirs / count,
    }


def concentrations() -> dict[str, Any]:
    """A -> B -> C with steps so long that explicit Euler makes concentrations negative."""

    def field(x: Any) -> Any:
        first, second = 1.4 * x[0], 0.3 * x[1]
        return jnp.stack([-first, first - second, second])

    total = Conserved(lambda x: jnp.sum(x))
    ts, x0 = 1.0 * jnp.arange(9), jnp.array([1.0, 0.0, 0.0])
    models: dict[str, tuple[Any, AbstractProjection]] = {
        "unprojected": (total, NoProjection()),
        "total and bounds": (Stack([total, Bounds(lambda x: x, lower=0.0)]), Newton()),
    }
    runs: dict[str, Any] = {"ts": np.asarray(ts).tolist()}
    for name, (constraint, projection) in models.items():
        cell = Cell(field, integrator=Euler(), constraint=constraint, projection=projection)
        runs[name] = np.asarray(rollout(cell, x0, ts, throw=False).xs).tolist()
    return runs


def concentration_figure(run: dict[str, Any]) -> "Figure":
    """The three concentrations against time, without and with projection."""
    with subplots(1, 2, width=8.4, height=2.9) as (figure, axes):
        for axis, name in zip(axes, ("unprojected", "total and bounds"), strict=False):
            xs = np.array(run[name])
            for index, label in enumerate("ABC"):
                axis.plot(run["ts"], xs[:, index], marker="o", markersize=3.5, color=COLOURS[index], label=label)
            axis.axhline(0, color=GREY, linewidth=1)
            axis.set_title(f"{name}: lowest {xs.min():.1e}", color=INK)
            axis.set_xlabel("time")
            axis.set_ylim(-0.5, 1.5)
        axes[0].set_ylabel("concentration")
        axes[1].legend(loc="upper right", ncols=3)
    return figure
