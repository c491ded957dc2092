"""Diffrax at a constant step with the same tableau, in each way it can be differentiated and batched."""

import time
from collections.abc import Callable
from typing import ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.jax_step import training_task, with_weights
from benchmarks.work import DT, STATES, STEPS, WIDTH, Task, Work


class ClassicalRK4(diffrax.AbstractERK):
    """The classical Runge-Kutta method, which Diffrax does not ship. Constant steps need no error estimate."""

    tableau: ClassVar = diffrax.ButcherTableau(
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
        b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
        b_error=np.zeros(4),
        c=np.array([0.5, 0.5, 1.0]),
    )
    interpolation_cls: ClassVar[Callable] = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms: object) -> int:
        return 4


# Vmapped is how Diffrax documents a batch and how twinfold does it; by hand, one solve has the batch as its state.
LAYOUTS = ("vmapped", "by hand")
ADJOINTS = {
    "RecursiveCheckpointAdjoint()": diffrax.RecursiveCheckpointAdjoint(),
    f"RecursiveCheckpointAdjoint(checkpoints={STEPS})": diffrax.RecursiveCheckpointAdjoint(STEPS),
    "DirectAdjoint()": diffrax.DirectAdjoint(),
    "BacksolveAdjoint()": diffrax.BacksolveAdjoint(),
}


def solve_task(work: Work, layout: str, adjoint: str) -> Task:
    """The training step through `diffeqsolve`."""
    x0, ts = jnp.asarray(work.x0), jnp.asarray(work.ts)
    network = eqx.nn.MLP(STATES, STATES, WIDTH, 2, activation=jnp.tanh, dtype=x0.dtype, key=jax.random.key(0))
    backsolve = adjoint.startswith("Backsolve")

    def field(t: object, x: jax.Array, network: eqx.nn.MLP) -> jax.Array:
        return network(x) if layout == "vmapped" else jax.vmap(network)(x)

    def solve(network: eqx.nn.MLP, x: jax.Array) -> jax.Array:
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),  # pyright: ignore[reportArgumentType]
            ClassicalRK4(),
            ts[0],
            ts[-1],
            DT if backsolve else None,
            x,
            args=network,
            # `steps=True` and `StepTo` are the faster way to save at each step; BacksolveAdjoint takes neither.
            saveat=diffrax.SaveAt(ts=ts[1:]) if backsolve else diffrax.SaveAt(steps=True),
            stepsize_controller=diffrax.ConstantStepSize() if backsolve else diffrax.StepTo(ts=ts),
            adjoint=ADJOINTS[adjoint],
            max_steps=STEPS + backsolve,  # rounding may leave a last tiny step
            throw=False,
        )
        assert solution.ys is not None
        return solution.ys

    def predict(network: eqx.nn.MLP) -> jax.Array:
        if layout == "vmapped":
            return jax.vmap(lambda x: solve(network, x))(x0)
        return jnp.swapaxes(solve(network, x0), 0, 1)

    return training_task(with_weights(network, work), predict, work, adjoint)


def tried(layout: str) -> list[str]:
    """The adjoints worth a trial: solving backwards is not exact, so once is enough to see what it costs."""
    return [name for name in ADJOINTS if layout == "vmapped" or name != "BacksolveAdjoint()"]


def fastest_adjoints(work: Work) -> tuple[dict[str, str], dict[str, str]]:
    """For each layout the fastest adjoint with the exact gradient, and what was seen of each of them."""
    best: dict[str, str] = {}
    seen: dict[str, str] = {}
    for layout in LAYOUTS:
        tasks = {name: solve_task(work, layout, name) for name in tried(layout)}
        exact = tasks["RecursiveCheckpointAdjoint()"].gradient
        assert exact is not None
        seconds = dict.fromkeys(tasks, np.inf)
        for _ in range(15):
            for name, task in tasks.items():
                began = time.perf_counter()
                task.step()
                seconds[name] = min(seconds[name], time.perf_counter() - began)
        errors = {
            name: float(np.linalg.norm(task.gradient - exact) / np.linalg.norm(exact))
            for name, task in tasks.items()
            if task.gradient is not None
        }
        for name, error in errors.items():
            seen[f"{layout}, {name}"] = f"{1e3 * seconds[name]:.1f} ms, gradient off by {error:.0e}"
        usable = [name for name, error in errors.items() if error <= 1e-5]
        best[layout] = min(usable, key=seconds.__getitem__)
    return best, seen
