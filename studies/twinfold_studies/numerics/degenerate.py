"""Degenerate constraints and bounds: what each projection makes of constraints that are redundant, singular, impossible
or one-sided: correct, or flagged."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import RESULTS
from twinfold.model import Bounds, Conserved, Constraint, Stack
from twinfold.numerics import RK4, AbstractProjection, Adaptive, Cell, Euler, Newton, NoProjection, Tangent, rollout
from twinfold.plot import COLOURS, GREY, INK, STYLE, grid_of, matplotlib_of
from twinfold.report import number
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.kept import kept
from twinfold_studies.bench.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROJECTIONS: dict[str, AbstractProjection] = {
    "fast": Tangent(derivative="implicit"),
    "frozen": Tangent(max_steps=20, derivative="implicit"),
    "adaptive": Adaptive(),
    "robust": Newton(),
}
H = 1e-5  # of central differences


def circle(x: Any) -> Any:
    return x[0] ** 2 + x[1] ** 2 - 1


# By number of equations: the kinds of constraint, of which a parameter chooses one.
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
    },
}
# Kind, situation, predictor, last state on the manifold.
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
]
OUTCOMES = ("successful", "outside_domain", "not_differentiable", "singular", "not_converged", "second_order")
WORDS = {int(getattr(RESULTS, name)._value): name.replace("_", " ") for name in OUTCOMES}


def find(store: Store, quick: bool, tell: Callable[[str], None]) -> Findings:
    """A table of situations, a pendulum with a redundant constraint, and bounds."""
    names = ["robust"] if quick else list(PROJECTIONS)
    dtypes = ["float64"] if quick else ["float64", "float32"]
    rows = []
    for name in names:
        for dtype in dtypes:
            tell(f"degenerate constraints: {name}, {dtype}")
            found = kept(
                store, "numerics-degenerate", [name, dtype, CASES, H], lambda name=name, dtype=dtype: cases(name, dtype)
            )
            rows += found
    tell("a pendulum whose length is given twice")
    steps = 50 if quick else 1000
    swing = kept(store, "numerics-redundant", [steps], lambda: redundant_pendulum(steps))
    tell("bounds")
    count = 20 if quick else 200
    bounded = kept(store, "numerics-bounds", [count], lambda: bounds_and_peer(count))
    run = kept(store, "numerics-kinetics", ["Euler", 1.4], concentrations)
    wrong = sum(row["verdict"] == "wrong" for row in rows)
    summary = {
        "degenerate_wrong": float(wrong),
        "redundant_violation_max": max(row["violation_max"] for row in swing),
        "bounds_violation_max": bounded["violation_max"],
        "bounds_solved_share": bounded["solved"] / bounded["states"],
    }
    words = [
        f"Degenerate constraints: of {len(rows)} combinations of projection, precision and situation "
        f"{sum(row['verdict'] == 'correct' for row in rows)} are correct, "
        f"{sum(row['verdict'] == 'flagged' for row in rows)} flagged (the state as it was, identity derivative), "
        f"{sum(row['verdict'] == 'reported' for row in rows)} told by their violation alone (one step promises no "
        f"more), and {wrong} wrong.",
        f"A pendulum whose length is given twice over {steps} steps: largest relative violation "
        f"{number(summary['redundant_violation_max'])}, distance from the one with the length given once "
        f"{number(swing[-1]['distance'])}, {swing[-1]['cost_ratio']:.2f} times its cost.",
        f"Bounds on a sphere: {bounded['solved']} of {bounded['states']} states solved, largest violation "
        f"{number(bounded['violation_max'])}; SciPy's SLSQP is nearer by more than 1e-7 for "
        f"{bounded['peer_nearer']} of them and farther for {bounded['peer_farther']}.",
    ]
    tables = [
        Table(
            "degenerate",
            "Degenerate constraints, by projection",
            rows,
            caption="correct: on the manifold, with the derivative that central differences find; flagged: the state "
            "as it was, identity derivative; reported: one linearised step, its violation says how far it is.",
        ),
        Table("redundant", "A pendulum with its length given once, and twice", swing),
        Table("bounds", "Nearest states with bounds, against SLSQP from SciPy", [bounded]),
    ]
    pictures = [
        Picture(
            "bounds",
            "Bounds beside a conserved total",
            "A -> B -> C by explicit Euler with steps that are far too long: unprojected (the total is kept by the "
            "method itself), and projected onto the total with concentrations that are not negative.",
            lambda: draw(run),
        )
    ]
    return Findings(words, tables, pictures, summary)


def cases(name: str, dtype: str) -> list[dict[str, Any]]:
    """A row for each situation: how it ended, violation, error of the derivative, and the verdict."""
    shifts = H * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    rows = []
    for equations, kinds in KINDS.items():
        chosen = [case for case in CASES if case[0] in kinds]
        every = list(kinds)
        which = np.repeat([np.eye(len(every))[every.index(case[0])] for case in chosen], 7, axis=0)
        xs = np.concatenate([np.array(case[2]) + shifts for case in chosen])
        anchors = np.repeat([case[3] for case in chosen], 7, axis=0)
        arrays = [jnp.asarray(each, dtype) for each in (xs, which, anchors)]
        found = _program(PROJECTIONS[name], kinds, equations)(*arrays)
        by_case = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, 7, *leaf.shape[1:]), found)
        for i, (kind, situation, _, _) in enumerate(chosen):
            out, slopes = jax.tree.map(lambda leaf, i=i: leaf[i], by_case)
            difference = (out.x[1:4] - out.x[4:7]).T / (2 * H)
            reason = WORDS[int(out.result._value[0])]
            # Single precision has too few digits for differences; what is flagged has not moved.
            compared = dtype == "float64" and reason == "successful"
            row = {
                "projection": name,
                "dtype": dtype,
                "constraint": kind,
                "situation": situation,
                "result": reason,
                "violation": float(out.violation[0].max()),
                "redundant": int(out.redundant[0]),
                "derivative_error": float(np.abs(slopes[0] - difference).max()) if compared else None,
            }
            rows.append(row | {"verdict": _verdict(row, name, out.x[0], xs[7 * i], slopes[0])})
    return rows


def _program(projection: AbstractProjection, kinds: dict[str, Callable], equations: int) -> Callable:
    constraint = Constraint(lambda x, p: p["kind"] @ jnp.stack([jnp.atleast_1d(g(x)) for g in kinds.values()]))

    def one(x: Any, kind: Any, anchor: Any) -> Any:
        def run(x: Any) -> Any:
            level = jnp.zeros(equations, x.dtype)
            out = projection.project(constraint, jnp.zeros((), x.dtype), x, {"kind": kind}, level, anchor=anchor)
            return out.x, out

        slopes, out = jax.jacfwd(run, has_aux=True)(x)
        return out, slopes

    # It runs once: compiling it is what takes the time.
    return jax.jit(jax.vmap(one), compiler_options={"xla_backend_optimization_level": 0})


def _verdict(row: dict[str, Any], name: str, x: np.ndarray, target: np.ndarray, slopes: np.ndarray) -> str:
    """Correct, flagged, told by the violation alone, or wrong."""
    if not (np.isfinite(x).all() and np.isfinite(slopes).all()):
        return "wrong"
    if row["result"] != "successful":
        same = np.array_equal(x, target.astype(x.dtype)) and np.array_equal(slopes, np.eye(3))
        return "flagged" if same else "wrong"
    exact = row["derivative_error"] is None or row["derivative_error"] <= 1e-6
    if not exact:
        return "wrong"
    size = max(float(np.abs(target).max()), 1.0)
    held = row["violation"] <= (1e-11 if row["dtype"] == "float64" else 1e-4) * size**2
    return "correct" if held else "reported" if name == "fast" else "wrong"


def redundant_pendulum(steps: int) -> list[dict[str, Any]]:
    """The Cartesian pendulum with position and velocity constraint, and with the former given twice."""

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
        out = jax.block_until_ready(run(x0))
        times = []
        for _ in range(9):
            begin = time.perf_counter()
            jax.block_until_ready(run(x0))
            times.append(time.perf_counter() - begin)
        seconds[name] = min(times)
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


def bounds_and_peer(count: int) -> dict[str, Any]:
    """The nearest states of a sphere with a band and a saddle cut away, and those of SLSQP from the same start."""
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
    out = jax.block_until_ready(run(jnp.asarray(xs)))
    begin = time.perf_counter()
    jax.block_until_ready(run(jnp.asarray(xs)))
    ours = time.perf_counter() - begin
    solved = np.asarray(out.result == RESULTS.successful)
    rules = [
        {"type": "eq", "fun": lambda y: y @ y - 1},
        {"type": "ineq", "fun": lambda y: np.array([y[0] + 0.2, 0.5 - y[0], 0.1 - y[1] * y[2]])},
    ]
    begin = time.perf_counter()
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
    theirs = time.perf_counter() - begin
    found = np.stack([peer.x for peer in peers])
    gap = np.linalg.norm(np.asarray(out.x) - xs, axis=1) - np.linalg.norm(found - xs, axis=1)
    settled = solved & np.array([peer.success for peer in peers])
    return {
        "states": count,
        "solved": int(solved.sum()),
        "violation_max": float(out.violation[solved].max()),
        "active, mean": float((np.asarray(out.multiplier)[:, 1:] != 0).sum(axis=1).mean()),
        "microseconds": 1e6 * ours / count,
        "peer_solved": int(sum(peer.success for peer in peers)),
        "peer_nearer": int((settled & (gap > 1e-7)).sum()),
        "peer_farther": int((settled & (gap < -1e-7)).sum()),
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
    found: dict[str, Any] = {"ts": np.asarray(ts).tolist()}
    for name, (constraint, projection) in models.items():
        cell = Cell(field, integrator=Euler(), constraint=constraint, projection=projection)
        found[name] = np.asarray(rollout(cell, x0, ts, throw=False).xs).tolist()
    return found


def draw(run: dict[str, Any]) -> "Figure":
    """The three concentrations against time, without and with projection."""
    with matplotlib_of().rc_context(STYLE):
        figure, axes = grid_of(1, 2, width=8.4, height=2.9)
        for axis, name in zip(axes, ("unprojected", "total and bounds"), strict=False):
            xs = np.array(run[name])
            for index, label in enumerate("ABC"):
                axis.plot(run["ts"], xs[:, index], marker="o", markersize=3.5, color=COLOURS[index], label=label)
            axis.axhline(0, color=GREY, linewidth=1)
            axis.set_title(f"{name}: least {xs.min():.1e}", color=INK)
            axis.set_xlabel("time")
            axis.set_ylim(-0.5, 1.5)
        axes[0].set_ylabel("concentration")
        axes[1].legend(loc="upper right", ncols=3)
    return figure
