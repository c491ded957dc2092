"""Levenberg-Marquardt on the same least-squares problem: what small networks and smooth losses are made for.

    (J'J + lambda D) d = -J'r,    D = diag(J'J)

Dense: J by forward sensitivities, normal equations by Cholesky. Matrix-free, for networks beyond a few thousand
weights: conjugate gradients on products with J and J'.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from twinfold.train.method import AbstractMethod, Problem, Progress
from twinfold.train.sensitivity import Vector, residuals_with_jacobian

LARGE = 3000  # parameters from which the matrix-free solver is chosen
TRIES = 8  # dampings tried in one step


class LevenbergMarquardt(AbstractMethod):
    """Damped Gauss-Newton steps, accepted only where the loss falls.

    **Arguments:** `epochs`, the number of steps; `solver`: `"dense"`, `"cg"`, or `"auto"` by the number of
    parameters; `damping`, the first lambda; `tolerance`, the relative gain of a step below which a seed is done;
    `patience`, steps without a better validation score after which it stops; `window`, samples per training
    window in this stage.
    """

    epochs: int = eqx.field(static=True, default=40)
    solver: Literal["auto", "dense", "cg"] = eqx.field(static=True, default="auto")
    damping: float = eqx.field(static=True, default=1e-2)
    tolerance: float = eqx.field(static=True, default=1e-6)
    patience: int | None = eqx.field(static=True, default=None)
    cg_steps: int = eqx.field(static=True, default=100)
    window: int | None = eqx.field(static=True, default=None)
    name: str = eqx.field(static=True, default="Levenberg-Marquardt")

    def __check_init__(self):
        if self.solver not in ("auto", "dense", "cg"):
            raise ValueError(f'LevenbergMarquardt(solver={self.solver!r}): give "auto", "dense" or "cg".')
        if self.epochs < 0:
            raise ValueError(f"epochs={self.epochs}: cannot be negative.")
        if not self.damping > 0:
            raise ValueError(f"LevenbergMarquardt(damping={self.damping}): must be positive.")

    def begin(self, problem: Problem, params: PyTree) -> Any:
        dtype = ravel_pytree(params)[0].dtype
        return jnp.array(self.damping, dtype), jnp.array(2.0, dtype)

    def epoch(self, problem: Problem, params: PyTree, state: Any, key: PRNGKeyArray) -> tuple[PyTree, Any, Progress]:
        v, unravel = ravel_pytree(params)
        damping, growth = state

        def cost(v: Vector) -> Float[Array, ""]:
            return problem.training_loss(unravel(v))[0]

        dense = self.solver == "dense" or (self.solver == "auto" and v.shape[0] < LARGE)
        build = _DenseSystem.build if dense else _MatrixFreeSystem.build
        system = build(problem, unravel, v, self.cg_steps)
        loss = jnp.sum(system.residuals**2)

        def rejected(trial: tuple) -> Array:
            return ~trial[-1] & (trial[0] < TRIES)

        def attempt(trial: tuple) -> tuple:
            tries, damping, growth, _, _, _ = trial
            d = system.solve(damping)
            new = cost(v + d)
            gain = (loss - new) / jnp.maximum(system.predicted_gain(d, damping), jnp.finfo(v.dtype).tiny)
            good = jnp.isfinite(new) & (new < loss)
            # Nielsen's rule: the better the model predicted the gain, the smaller the next damping.
            shrink = jnp.clip(1 - (2 * gain - 1) ** 3, 1 / 3, 1)
            damping = jnp.where(good, damping * shrink, damping * growth)
            growth = jnp.where(good, 2.0, 2 * growth)
            return tries + 1, damping, growth, jnp.where(good, v + d, v), jnp.where(good, new, loss), good

        start = (jnp.array(0), damping, growth, v, loss, jnp.array(False))
        _, damping, growth, moved, new, good = jax.lax.while_loop(rejected, attempt, start)
        finished = ~good | (loss - new <= self.tolerance * loss)
        progress = Progress(loss, damping, system.failed, finished)
        return unravel(moved), (jnp.clip(damping, 1e-12, 1e12), growth), progress


class _DenseSystem(eqx.Module):
    residuals: Float[Array, " N"]
    gradient: Vector  # J'r
    gramian: Float[Array, "P P"]  # J'J
    failed: Array

    @staticmethod
    def build(problem: Problem, unravel: Any, v: Vector, cg_steps: int) -> "_DenseSystem":
        windows = jnp.arange(problem.batch.size)
        r, jacobian, failed = residuals_with_jacobian(
            problem.objective, lambda v: problem.estimate(unravel(v)), v, problem.batch, windows
        )
        return _DenseSystem(r, jacobian.T @ r, jacobian.T @ jacobian, failed)

    @property
    def scale(self) -> Vector:
        return _floored(jnp.diagonal(self.gramian))

    def solve(self, damping: Float[Array, ""]) -> Vector:
        factor = jax.scipy.linalg.cho_factor(self.gramian + jnp.diag(damping * self.scale))
        return -jax.scipy.linalg.cho_solve(factor, self.gradient)

    def predicted_gain(self, d: Vector, damping: Float[Array, ""]) -> Float[Array, ""]:
        return d @ (damping * self.scale * d - self.gradient)


class _MatrixFreeSystem(eqx.Module):
    residuals: Float[Array, " N"]
    gradient: Vector
    product: Any  # d -> J'J d
    failed: Array
    cg_steps: int = eqx.field(static=True)

    @staticmethod
    def build(problem: Problem, unravel: Any, v: Vector, cg_steps: int) -> "_MatrixFreeSystem":
        windows = jnp.arange(problem.batch.size)

        def residuals(v: Vector) -> tuple[Float[Array, " N"], Array]:
            estimate = problem.estimate(unravel(v))
            prediction = problem.objective.predict(estimate, problem.batch, windows)
            r = problem.objective.residuals(estimate, prediction, problem.batch)
            return r, jnp.sum(prediction.failed)

        r, push, failed = jax.linearize(residuals, v, has_aux=True)
        pull = jax.linear_transpose(push, v)
        return _MatrixFreeSystem(r, pull(r)[0], lambda d: pull(push(d))[0], failed, cg_steps)

    def solve(self, damping: Float[Array, ""]) -> Vector:
        operator = lx.FunctionLinearOperator(
            lambda d: self.product(d) + damping * d,
            jax.eval_shape(lambda: self.gradient),
            lx.positive_semidefinite_tag,
        )
        # An inexact solution is enough for a step that is tested anyway: stop after a fixed number of products.
        solver = lx.CG(rtol=1e-3, atol=0.0, max_steps=self.cg_steps)
        return -lx.linear_solve(operator, self.gradient, solver, throw=False).value

    def predicted_gain(self, d: Vector, damping: Float[Array, ""]) -> Float[Array, ""]:
        return d @ (damping * d - self.gradient)


def _floored(diagonal: Vector) -> Vector:
    """Weights without influence get the damping of the least influential ones, not none."""
    return jnp.maximum(diagonal, 1e-8 * jnp.max(diagonal) + jnp.finfo(diagonal.dtype).tiny)
