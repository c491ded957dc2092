"""The library's own iterations beside Optimistix (`python -m benchmarks.solvers`).

Two problems as a training step has them: inside a scan over 100 steps, vmapped over 16 trajectories, in float64, the
value and its gradient. `projection`: a planet's step projected onto its energy and angular momentum. `root`: two diode
voltages from two implicit equations, each step from the same cold guess, where undamped Newton steps are many.
Both sides solve to rounding; values and gradients are compared first. Prints a table and writes `solvers.json`.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from rich.console import Console
from rich.table import Table

import twinfold as tw
from benchmarks.surroundings import write_record

STEPS, BATCH, DT = 100, 16, 0.02
TOLERANCE = 1e-12
MAX_STEPS = 64


def orbit(theta: jax.Array, x: jax.Array) -> jax.Array:
    """One Euler step with a wrong mass and a wrong drag, so that every step leaves the manifold."""
    pull = theta[0] * x[:2] / jnp.linalg.norm(x[:2]) ** 3
    return x + DT * jnp.concatenate([x[2:], -pull + theta[1] * x[2:]])


def invariants(x: jax.Array) -> jax.Array:
    energy = 0.5 * x[2:] @ x[2:] - 1 / jnp.linalg.norm(x[:2])
    return jnp.stack([energy, x[0] * x[3] - x[1] * x[2]])


def project_ours(x: jax.Array, level: jax.Array) -> jax.Array:
    constraint = tw.Conserved(invariants)
    return tw.Newton().project(constraint, jnp.zeros(()), x, {}, level).x


def project_optimistix(solver: optx.AbstractRootFinder | optx.AbstractLeastSquaresSolver) -> Callable:
    def project(x: jax.Array, level: jax.Array) -> jax.Array:
        def kkt(z: jax.Array, args: tuple) -> jax.Array:
            target, level = args
            value, pullback = jax.vjp(invariants, z[:4])
            return jnp.concatenate([z[:4] - target + pullback(z[4:])[0], value - level])

        guess = jnp.concatenate([x, jnp.zeros(2)])
        return optx.root_find(kkt, solver, guess, (x, level), max_steps=MAX_STEPS, throw=False).value[:4]

    return project


def projection_loss(project: Callable) -> Callable:
    def loss(theta: jax.Array, x0: jax.Array) -> jax.Array:
        level = invariants(x0)

        def step(x: jax.Array, _: None) -> tuple:
            x = project(orbit(theta, x), level)
            return x, x

        return jnp.mean(jax.lax.scan(step, x0, None, STEPS)[1] ** 2)

    return lambda theta, x0: jnp.mean(jax.vmap(loss, (None, 0))(theta, x0))


def diodes(z: jax.Array, theta: jax.Array, x: jax.Array) -> jax.Array:
    """Two diodes in series with a resistor each, between a source and a capacitor."""
    current = 1e-9 * (jnp.exp(z / 0.026) - 1)
    return jnp.stack([x[0] - z[0] - theta[0] * current[0], z[0] - z[1] - theta[1] * (current[1] - current[0])])


def root_ours(theta: jax.Array, x: jax.Array) -> jax.Array:
    implicit = tw.Implicit(lambda z, x, p: diodes(z, p["r"], x), [0.0, 0.0])
    return implicit.solve(jnp.zeros(()), x, None, {"r": theta}).z


def root_optimistix(solver: optx.AbstractRootFinder | optx.AbstractLeastSquaresSolver) -> Callable:
    def root(theta: jax.Array, x: jax.Array) -> jax.Array:
        equations = lambda z, args: diodes(z, *args)  # noqa: E731
        return optx.root_find(equations, solver, jnp.zeros(2), (theta, x), max_steps=500, throw=False).value

    return root


def root_loss(root: Callable) -> Callable:
    def loss(theta: jax.Array, x0: jax.Array) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple:
            z = root(theta, x)
            return x + DT * (jnp.roll(z, 1) - 0.2 * x), z

        return jnp.mean(jax.lax.scan(step, 3 * jnp.abs(x0[:2]), None, STEPS)[1] ** 2)

    return lambda theta, x0: jnp.mean(jax.vmap(loss, (None, 0))(theta, x0))


def contenders() -> dict[str, dict[str, Callable]]:
    """The losses of each problem; the first is ours."""
    newton = optx.Newton(TOLERANCE, TOLERANCE, linear_solver=lx.LU())
    dogleg = optx.Dogleg(TOLERANCE, TOLERANCE, linear_solver=lx.AutoLinearSolver(well_posed=None))
    return {
        "projection": {
            "twinfold Newton": projection_loss(project_ours),
            "Optimistix Newton": projection_loss(project_optimistix(newton)),
            "Optimistix Dogleg": projection_loss(project_optimistix(dogleg)),
        },
        "root": {
            "twinfold find_root": root_loss(root_ours),
            "Optimistix Newton": root_loss(root_optimistix(newton)),
            "Optimistix Dogleg": root_loss(root_optimistix(dogleg)),
        },
    }


def measure(losses: dict[str, Callable], rounds: int) -> dict[str, dict[str, float]]:
    """Compile time, best time of a value and gradient, and the differences from the first contender."""
    theta = jnp.array([1.1, 0.05])
    angle = np.random.default_rng(0).uniform(0, 2 * np.pi, BATCH)
    # Orbits of an eccentricity of 0.2; the diodes take the first two entries as voltages, made positive.
    x0 = jnp.asarray(np.stack([np.cos(angle), np.sin(angle), -1.1 * np.sin(angle), 1.1 * np.cos(angle)], 1))
    found: dict[str, dict[str, float]] = {}
    compiled, results = {}, {}
    for name, loss in losses.items():
        started = time.perf_counter()
        compiled[name] = jax.jit(jax.value_and_grad(loss)).lower(theta, x0).compile()
        found[name] = {"compile_s": time.perf_counter() - started}
        results[name] = jax.tree.map(np.asarray, compiled[name](theta, x0))
    value, gradient = results[next(iter(losses))]
    for name, (other, slope) in results.items():
        found[name]["value_difference"] = float(abs(other / value - 1))
        found[name]["gradient_difference"] = float(np.max(np.abs(slope - gradient)) / np.max(np.abs(gradient)))
    best = dict.fromkeys(losses, np.inf)
    for _ in range(rounds):
        for name, program in compiled.items():
            started = time.perf_counter()
            jax.block_until_ready(program(theta, x0))
            best[name] = min(best[name], time.perf_counter() - started)
    ours = best[next(iter(losses))]
    for name, seconds in best.items():
        found[name] |= {"ms": 1e3 * seconds, "ratio": seconds / ours}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.solvers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="timed calls of each contender, taking turns")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "solvers.json")
    options = parser.parse_args()
    tw.enable_x64()
    found = {problem: measure(losses, options.rounds) for problem, losses in contenders().items()}
    for problem, rows in found.items():
        columns = list(next(iter(rows.values())))
        table = Table("", *columns, title=problem)
        for name, row in rows.items():
            table.add_row(name, *(f"{row[column]:.3g}" for column in columns))
        Console().print(table)
    write_record(options.out, found)


if __name__ == "__main__":
    main()
