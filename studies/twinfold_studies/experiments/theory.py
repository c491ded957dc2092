"""Numerical check of the theorem: orders in dt and in the error of the field, Gronwall's bound, Jacobians."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.numerics import RK4, Cell, Euler, Heun, Newton, NoProjection, rollout
from twinfold.report import format_number
from twinfold.systems import System
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.problems import problem
from twinfold_studies.bench.store import Store
from twinfold_studies.systems import SYSTEMS
from twinfold_studies.systems.truth import truth

INTEGRATORS = {"Euler": (Euler, 1), "Heun": (Heun, 2), "RK4": (RK4, 4)}
DURATION = 2.0  # long enough to see the order, short enough for the asymptotic range
HALVINGS = 5
ERRORS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """All parts on every system."""
    steps, growth, gaps = [], [], []
    for name in options.systems:
        log(f"theory: {name}")
        with record_skips(store):
            settings = [HALVINGS, DURATION, "quarter"]
            steps += cached(store, f"theory-steps-{name}", settings, lambda name=name: step_errors(problem(name)))
        with record_skips(store):
            settings = [ERRORS, DURATION]
            growth += cached(store, f"theory-field-{name}", settings, lambda name=name: field_errors(problem(name)))
        with record_skips(store):
            gaps += cached(store, f"theory-gap-{name}", [1], lambda name=name: jacobian_gap(problem(name)))
    orders = fitted_orders(steps)
    tables = [
        Table("orders", "Orders in dt: trajectory at the samples, and Hermite interpolant between them", orders),
        Table(
            "growth",
            "Error of the trajectory against the error of the field, and Gronwall's bound",
            growth,
            caption="bound = error of the field / L (exp(L T) - 1) with L the largest ||df/dx|| on the trajectory; a "
            "bound beyond the size of the trajectory is vacuous.",
        ),
        Table(
            "gap",
            "Exact against tangent derivative of the projection",
            gaps,
            caption="eta is ||H_lambda|| on the tangent space; theory bounds the gap by eta / (1 - eta).",
        ),
        Table("steps", "Errors against dt", steps, ("system", "integrator", "projected", "dt", "error")),
    ]
    return Findings(summarise(orders, growth, gaps), tables, [_picture(steps)] if steps else [])


def _start(system: System) -> jax.Array:
    return system.draw(jax.random.key(1), 1)[0]


def step_errors(system: System) -> list[dict[str, Any]]:
    """Errors of the trajectory at the samples, and of its cubic Hermite interpolant between them, against dt."""
    x0, rows = _start(system), []
    for name, (kind, _) in INTEGRATORS.items():
        for projected in (False, True):
            cell = Cell(system.truth, None, kind(), system.constraint, Newton() if projected else NoProjection())
            run = jax.jit(lambda ts, cell=cell: rollout(cell, x0, ts, throw=False).xs)
            for halving in range(HALVINGS):
                count = 40 * 2**halving
                ts = jnp.linspace(0.0, DURATION, count + 1)
                fine = jnp.linspace(0.0, DURATION, 4 * count + 1)
                exact = truth(system, x0[None], fine)[0]
                xs = run(ts)
                slopes = jax.vmap(lambda t, x: system.truth(t, x))(ts, xs)
                value, slope = _hermite_quarter(xs, slopes, ts[1] - ts[0])
                quarter = exact[1::4]
                true_slope = jax.vmap(lambda t, x: system.truth(t, x))(fine[1::4], quarter)
                rows.append(
                    {
                        "system": system.name,
                        "integrator": name,
                        "projected": projected,
                        "dt": float(ts[1] - ts[0]),
                        "error": float(jnp.max(jnp.linalg.norm(xs - exact[::4], axis=1))),
                        "between": float(jnp.max(jnp.linalg.norm(value - quarter, axis=1))),
                        "slope_between": float(jnp.max(jnp.linalg.norm(slope - true_slope, axis=1))),
                    }
                )
    return rows


def _hermite_quarter(xs: jax.Array, slopes: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Value and slope of the cubic Hermite interpolant at a quarter of each step (mid-step slopes superconverge)."""
    a, b, c, d = xs[:-1], xs[1:], slopes[:-1], slopes[1:]
    value = (27 * a + 5 * b) / 32 + h * (9 * c - 3 * d) / 64
    slope = 9 / (8 * h) * (b - a) + (3 * c - 5 * d) / 16
    return value, slope


def fitted_orders(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fitted orders and those of theory: p at the samples, min(p, 4) and min(p, 3) between them."""
    out = []
    for key in dict.fromkeys((r["system"], r["integrator"], r["projected"]) for r in rows):
        here = [r for r in rows if (r["system"], r["integrator"], r["projected"]) == key]
        dt = np.log([r["dt"] for r in here])
        nominal = INTEGRATORS[key[1]][1]
        fitted = {
            f"{name}_order": _order(dt, np.array([r[name] for r in here]))
            for name in ("error", "between", "slope_between")
        }
        expected = {"nominal": nominal, "between_expected": min(nominal, 4), "slope_expected": min(nominal, 3)}
        out.append(dict(zip(("system", "integrator", "projected"), key, strict=True)) | fitted | expected)
    return out


def _order(dt: np.ndarray, errors: np.ndarray) -> float:
    """The slope over the errors above rounding."""
    usable = errors > 1e-12
    if usable.sum() < 3:
        return float("nan")
    return float(np.polyfit(dt[usable], np.log(errors[usable]), 1)[0])


def field_errors(system: System) -> list[dict[str, Any]]:
    """Error of the trajectory against that of the field (a smooth disturbance), projected, with small steps."""
    x0 = _start(system)
    ts = jnp.linspace(0.0, DURATION, 401)
    exact = truth(system, x0[None], ts)[0]
    slopes = jax.vmap(lambda t, x: jnp.linalg.norm(jax.jacfwd(lambda x: system.truth(t, x))(x), 2))(ts, exact)
    lipschitz = float(jnp.max(slopes))
    size = float(jnp.max(jnp.linalg.norm(exact - exact.mean(0), axis=1)))

    def disturbed(size: float) -> jax.Array:
        wave = jnp.arange(1.0, 1 + x0.shape[0])
        cell = Cell(
            lambda t, x: system.truth(t, x) + size * jnp.cos(wave * jnp.sum(x) + wave) / jnp.sqrt(x0.shape[0]),
            None,
            RK4(),
            system.constraint,
            Newton(),
        )
        return rollout(cell, x0, ts, throw=False).xs

    rows, errors = [], []
    for error in ERRORS:
        measured = float(jnp.max(jnp.linalg.norm(jax.jit(lambda e: disturbed(e))(error) - exact, axis=1)))
        bound = error / lipschitz * float(np.expm1(lipschitz * DURATION))
        errors.append(measured)
        rows.append(
            {
                "system": system.name,
                "field_error": error,
                "trajectory_error": measured,
                "lipschitz": lipschitz,
                "bound": bound,
            }
            | {"measured_over_bound": measured / bound, "vacuous": bool(bound > size)}
        )
    order = _order(np.log(ERRORS[1:]), np.array(errors[1:]))
    return [row | {"order": order} for row in rows]


def jacobian_gap(system: System) -> list[dict[str, Any]]:
    """||J_exact - J_tangent|| of one projection at increasing distances from the manifold, and its bound.

    With x the projection of x~, lambda its multiplier and P the projector onto the tangent space,

        eta = ||P (sum_i lambda_i d2g_i) P||,    ||J_exact - J_tangent|| <= eta / (1 - eta)
    """
    x0 = _start(system)
    level = system.constraint.level(0.0, x0, {})
    direction = jax.random.normal(jax.random.key(2), x0.shape)
    direction = direction / jnp.linalg.norm(direction) * jnp.linalg.norm(x0)

    @jax.jit
    def at(distance: jax.Array) -> tuple[jax.Array, jax.Array]:
        target = x0 + distance * direction

        def jacobian(derivative: Any) -> jax.Array:
            projection = Newton(derivative=derivative)
            return jax.jacfwd(lambda x: projection.project(system.constraint, 0.0, x, {}, level).x)(target)

        def residual(x: jax.Array) -> jax.Array:
            return system.constraint.residual(0.0, x, {}, level)

        nearest = Newton().project(system.constraint, 0.0, target, {}, level)
        normal = jnp.linalg.qr(jax.jacfwd(residual)(nearest.x).T)[0]
        tangent = jnp.eye(x0.shape[0]) - normal @ normal.T
        curvature = jax.hessian(lambda x: nearest.multiplier @ residual(x))(nearest.x)
        eta = jnp.linalg.norm(tangent @ curvature @ tangent, 2)
        return jnp.linalg.norm(jacobian("implicit") - jacobian("tangent"), 2), eta

    rows = []
    for distance in (1e-4, 1e-3, 1e-2, 1e-1):
        gap, eta = (float(value) for value in at(jnp.array(distance)))
        bound = eta / (1 - eta) if eta < 1 else float("inf")
        rows.append({"system": system.name, "distance": distance, "gap": gap, "eta": eta, "bound": bound})
        rows[-1]["within"] = bool(gap <= bound * (1 + 1e-6) + 1e-12)
    return rows


def summarise(orders: list[dict], growth: list[dict], gaps: list[dict]) -> list[str]:
    """Orders reached and missed, growth of the error, and the gap of the Jacobians."""
    short = [r for r in orders if np.isfinite(r["error_order"]) and r["error_order"] < r["nominal"] - 0.1]
    sentences = [
        f"{len(orders) - len(short)} of {len(orders)} combinations of integrator, projection and system reach their "
        "nominal order at the samples (to within 0.1), or are exact to rounding."
    ]
    sentences += [
        f"Below it: {r['system']}, {r['integrator']}, projected {r['projected']}: {r['error_order']:.2f}."
        for r in short
    ]
    firsts = {r["system"]: r for r in growth}
    sentences += [
        f"{name}: the error of the trajectory grows as that of the field to the power {row['order']:.2f}; Gronwall's "
        f"bound with L = {format_number(row['lipschitz'])} is {format_number(1 / row['measured_over_bound'])} times "
        "the measured error."
        for name, row in firsts.items()
    ]
    within = sum(r["within"] for r in gaps)
    sentences.append(
        f"The gap between exact and tangent Jacobian is within eta / (1 - eta) in {within} of {len(gaps)} cases."
    )
    return sentences


def _picture(rows: list[dict[str, Any]]) -> Picture:
    def draw() -> Any:
        panels: dict[str, dict] = {}
        for row in rows:
            name = f"{row['integrator']}{', projected' if row['projected'] else ''}"
            panels.setdefault(problem(row["system"]).title, {}).setdefault(name, []).append((row["dt"], row["error"]))
        return curves(
            {t: {n: tuple(np.array(p).T) for n, p in each.items()} for t, each in panels.items()}, "dt", "error"
        )

    return Picture(
        "orders", "Error of the trajectory against dt", "Largest error over the trajectory, true field.", draw
    )


THEORY = Experiment(
    "theory",
    "Numerical check of the theorem",
    "Error of the trajectory against dt and the error of the field, Gronwall's bound, Hermite interpolant, Jacobian "
    "gap.",
    full=Options(tuple(SYSTEMS)),
    quick=Options(("mass_spring", "lotka_volterra")),
    requests=lambda options: [],
    analyse=analyse,
)
