"""The pendulum of index 3 by other solvers: SciPy in the angle and in Cartesian coordinates, CasADi's IDAS."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from twinfold.model import constraint_of
from twinfold.numerics import Cell, Newton, Rattle, rollout
from twinfold_studies.bench.timing import best_time
from twinfold_studies.systems.pendulum import pendulum, pendulum_period, pendulum_state

GRAVITY = 9.81


def peer_rows(amplitude: float, periods: int, quick: bool) -> list[dict[str, Any]]:
    """Error of the position, violation of the length and time of each solver, with several steps or tolerances.

    After a number of periods and a quarter, where the exact position is (0, -1) for any amplitude.
    """
    end = (periods + 0.25) * pendulum_period(amplitude)
    steps = (100,) if quick else (50, 100, 200, 400, 800)
    tolerances = (1e-6, 1e-9) if quick else (1e-4, 1e-6, 1e-8, 1e-10, 1e-12)
    rows = []
    for solver, settings, solve in (
        ("RK4, projected", steps, lambda per: _twinfold("projected", amplitude, end, round((periods + 0.25) * per))),
        ("RATTLE", steps, lambda per: _twinfold("rattle", amplitude, end, round((periods + 0.25) * per))),
        ("DOP853, angle", tolerances, lambda rtol: _angle(amplitude, end, rtol)),
        ("DOP853", tolerances, lambda rtol: _cartesian(amplitude, end, rtol)),
        ("IDAS", tolerances, lambda rtol: _idas(amplitude, end, rtol)),
    ):
        for setting in settings:
            run = solve(setting)
            if run is None:
                continue
            q, seconds = best_time(run, 2)
            rows.append(
                {
                    "solver": solver,
                    "setting": setting,
                    "error": float(np.linalg.norm(q - np.array([0.0, -1.0]))),
                    "violation": float(abs(np.linalg.norm(q) - 1)),
                    "seconds": seconds,
                }
            )
    return rows


def _twinfold(kind: str, amplitude: float, end: float, count: int) -> Callable[[], np.ndarray]:
    mechanism, x0 = pendulum(), pendulum_state(amplitude)
    cell = Cell(mechanism, constraint=constraint_of(mechanism, energy=True), projection=Newton())
    if kind == "rattle":
        cell = Cell(mechanism, integrator=Rattle(mechanism), constraint=constraint_of(mechanism))
    ts = jnp.linspace(0.0, end, count + 1)
    run = eqx.filter_jit(lambda x0: rollout(cell, x0, ts, throw=False).xs[-1, :2])
    return lambda: np.asarray(run(x0))


def _angle(amplitude: float, end: float, rtol: float) -> Callable[[], np.ndarray]:
    """The reduced equation, which has no constraint."""
    from scipy.integrate import solve_ivp

    def rate(t: float, y: np.ndarray) -> list[float]:
        return [y[1], -GRAVITY * math.sin(y[0])]

    def run() -> np.ndarray:
        angle = solve_ivp(rate, (0.0, end), [amplitude, 0.0], "DOP853", rtol=max(rtol, 3e-14), atol=rtol).y[0, -1]
        return np.array([math.sin(angle), -math.cos(angle)])

    return run


def _cartesian(amplitude: float, end: float, rtol: float) -> Callable[[], np.ndarray]:
    """The index-reduced equations, whose solution drifts off the constraint."""
    from scipy.integrate import solve_ivp

    def rate(t: float, y: np.ndarray) -> list[float]:
        x, h, u, v = y
        tension = (u * u + v * v - GRAVITY * h) / (x * x + h * h)
        return [u, v, -tension * x, -tension * h - GRAVITY]

    start = np.asarray(pendulum_state(amplitude))
    return lambda: solve_ivp(rate, (0.0, end), start, "DOP853", rtol=max(rtol, 3e-14), atol=rtol).y[:2, -1]


def _idas(amplitude: float, end: float, rtol: float) -> Callable[[], np.ndarray] | None:
    """SUNDIALS' DAE solver for the index-1 form, with the multiplier as algebraic variable; None without CasADi."""
    try:
        import casadi  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    x, tension = casadi.SX.sym("x", 4), casadi.SX.sym("tension")
    ode = casadi.vertcat(x[2], x[3], -tension * x[0], -tension * x[1] - GRAVITY)
    alg = x[2] ** 2 + x[3] ** 2 - tension * (x[0] ** 2 + x[1] ** 2) - GRAVITY * x[1]
    options = {"reltol": rtol, "abstol": rtol, "max_num_steps": 1_000_000}
    solver = casadi.integrator("pendulum", "idas", {"x": x, "z": tension, "ode": ode, "alg": alg}, 0.0, end, options)
    start = np.asarray(pendulum_state(amplitude))
    return lambda: np.asarray(solver(x0=start, z0=-GRAVITY * start[1])["xf"]).ravel()[:2]
