"""Discrete against continuous adjoint: errors of a gradient through projected steps, by step size."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.numerics import RK4, Cell, Newton, rollout
from twinfold.report import format_number
from twinfold.systems import two_body
from twinfold_studies.bench.figures import curves

HALVINGS = 5


def adjoints() -> list[dict[str, Any]]:
    """Errors of d|x(T) - target|^2 / dGM by reverse mode through the projected steps, and by the continuous adjoint."""
    x0 = two_body().draw(jax.random.key(0), 1)[0]
    duration = float(np.pi)
    system = two_body()
    target = jnp.zeros_like(x0)

    def field(t: Any, x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
        q = x[:2]
        return jnp.concatenate([x[2:], -p["gm"] * q / jnp.sum(q**2) ** 1.5])

    def simulate(gm: jax.Array, ts: jax.Array) -> jax.Array:
        cell = Cell(field, None, RK4(), system.constraint, Newton())
        return rollout(cell, x0, ts, p={"gm": gm}, throw=False).xs

    def objective(gm: jax.Array, ts: jax.Array) -> jax.Array:
        return jnp.sum((simulate(gm, ts)[-1] - target) ** 2)

    gm = jnp.array(1.0)
    exact = float(jax.jit(jax.grad(objective))(gm, jnp.linspace(0.0, duration, 20001)))
    rows = []
    for halving in range(HALVINGS):
        ts = jnp.linspace(0.0, duration, 20 * 2**halving + 1)
        discrete = float(jax.jit(jax.grad(objective))(gm, ts))
        continuous, violation = _continuous_adjoint(field, simulate(gm, ts), ts, target, gm, system)
        rows.append(
            {
                "dt": float(ts[1] - ts[0]),
                "discrete_error": abs(discrete - exact) / abs(exact),
                "continuous_error": abs(continuous - exact) / abs(exact),
                "between_them": abs(continuous - discrete) / abs(discrete),
                "interpolant_violation": violation,
            }
        )
    return rows


def _continuous_adjoint(
    field: Callable, xs: jax.Array, ts: jax.Array, target: jax.Array, gm: jax.Array, system: Any
) -> tuple[float, float]:
    """The gradient by lambda' = -(df/dx)' lambda along the interpolant, and the violation of the interpolant."""
    h = ts[1] - ts[0]
    slopes = jax.vmap(lambda t, x: field(t, x, {"gm": gm}))(ts, xs)

    def state(t: jax.Array) -> jax.Array:
        index = jnp.clip(jnp.floor(t / h).astype(int), 0, len(ts) - 2)
        s = t / h - index
        a, b, c, d = xs[index], xs[index + 1], slopes[index], slopes[index + 1]
        return (1 + 2 * s) * (1 - s) ** 2 * a + s**2 * (3 - 2 * s) * b + h * (s * (1 - s) ** 2 * c - s**2 * (1 - s) * d)

    def backward(t: jax.Array, carry: tuple) -> tuple:
        adjoint, _ = carry
        _, pull = jax.vjp(lambda x, gm: field(t, x, {"gm": gm}), state(t), gm)
        by_x, by_gm = pull(adjoint)
        return -by_x, -by_gm

    steps = 4000
    step = -ts[-1] / steps

    def body(carry: tuple, index: jax.Array) -> tuple:
        t = ts[-1] + step * index

        def advanced(slope: tuple, size: float) -> tuple:
            return jax.tree.map(lambda value, rate: value + size * step * rate, carry, slope)

        k1 = backward(t, carry)
        k2 = backward(t + step / 2, advanced(k1, 0.5))
        k3 = backward(t + step / 2, advanced(k2, 0.5))
        k4 = backward(t + step, advanced(k3, 1.0))
        new = jax.tree.map(lambda x, a, b, c, d: x + step / 6 * (a + 2 * b + 2 * c + d), carry, k1, k2, k3, k4)
        return new, None

    start = (2 * (xs[-1] - target), jnp.zeros(()))
    (_, gradient), _ = jax.jit(lambda start: jax.lax.scan(body, start, jnp.arange(steps)))(start)
    between = jax.vmap(state)(ts[:-1] + h / 2)
    level = system.constraint.level(0.0, xs[0], {})
    violation = jax.vmap(lambda x: system.constraint.residual(0.0, x, {}, level))(between)
    return float(gradient), float(jnp.max(jnp.abs(violation)))


def adjoint_figure(rows: list[dict[str, Any]]) -> Any:
    dt = np.array([row["dt"] for row in rows])
    columns = {
        "discrete": "discrete_error",
        "continuous": "continuous_error",
        "violation of the interpolant": "interpolant_violation",
    }
    panel = {name: (dt, np.array([row[key] for row in rows])) for name, key in columns.items()}
    return curves({"Two-body, half a period": panel}, "dt", "relative error of the gradient")


def adjoint_sentence(rows: list[dict[str, Any]]) -> str:
    """The errors of both adjoints at the smallest step."""
    last = rows[-1]
    return (
        f"Adjoints at dt = {last['dt']:.3g}: the relative error of the gradient is "
        f"{format_number(last['discrete_error'])} (discrete) and {format_number(last['continuous_error'])} "
        f"(continuous); the violation of the interpolant is {format_number(last['interpolant_violation'])}."
    )
