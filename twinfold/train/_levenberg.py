"""Levenberg-Marquardt on the same least-squares problem: the method of choice for small networks and smooth losses.

    (J'J + lambda D) d = -J'r

Dense: J by forward sensitivities (`_window.py`), normal equations by Cholesky, D = diag(J'J) with every entry at least
1e-8 of the largest: a weight without influence on the loss would not be damped at all otherwise.
Matrix-free, for networks beyond a few thousand weights: conjugate gradients on products with J and J', D = I.

Vmapped over seeds inside one compiled program, which Optimistix's `LevenbergMarquardt` is not made for: here each seed
has its own damping and stops by itself, and an epoch can be interrupted and resumed.
"""

from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from twinfold._core import tree_where
from twinfold.numerics import ProjectionResult
from twinfold.numerics._iterate import iterate
from twinfold.train._evidence import EVERY, FIRST_STEP, Weights, estimate_weights
from twinfold.train._method import AbstractMethod, EpochReport, zeros_unless
from twinfold.train._problem import Evaluation, TrainingProblem
from twinfold.train._window import Vector
from twinfold.typing import Count, Flag

MAX_DENSE_PARAMETERS = 3000  # beyond which the matrix-free solver is chosen
MAX_TRIALS = 8  # dampings tried in one step
MIN_DAMPING, MAX_DAMPING = 1e-12, 1e12


class LevenbergMarquardt(AbstractMethod):
    """Damped Gauss-Newton steps, accepted only where the loss falls.

    **Arguments:** `epochs`, the number of steps; `solver`: `"dense"`, `"cg"`, or `"auto"` by the number of
    parameters; `damping`, the first lambda; `tolerance`, the relative gain of a step below which a seed is done;
    `patience`, steps without a better validation score after which it stops; `window`, samples per training
    window in this stage.

    **Example:**

    ```python
    tw.LevenbergMarquardt(40, patience=10)
    ```
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

    def init(self, problem: TrainingProblem, params: PyTree) -> Any:
        dtype = ravel_pytree(params)[0].dtype
        damping = jnp.array(self.damping, dtype), jnp.array(2.0, dtype)
        return damping, ((problem.weights, jnp.array(0)) if problem.estimated else None)

    def unevaluated(self, problem: TrainingProblem, params: PyTree) -> Evaluation:
        shapes = jax.eval_shape(problem.evaluate, params)[1]
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def epoch(
        self, problem: TrainingProblem, params: PyTree, state: Any, key: PRNGKeyArray, trains: Flag, before: Evaluation
    ) -> tuple[PyTree, Any, EpochReport, Evaluation]:
        if not problem.estimated:
            params, damping, report, after, _ = self._step(problem, params, state[0], trains, before)
            return params, (damping, None), report, after
        damping, (weights, step) = state
        problem = problem.with_weights(weights)
        moved, damping, report, after, system = self._step(problem, params, damping, trains, before)
        if not isinstance(system, _DenseSystem):
            raise ValueError(
                f'Loss({problem.estimated[0]}="auto"): it is estimated from a dense matrix, which this fit does not '
                'build; give a number, or LevenbergMarquardt(solver="dense").'
            )
        first = min(FIRST_STEP, self.epochs // 2)
        due = trains & (report.finished | ((step >= first) & ((step - first) % EVERY == 0)))
        new = tree_where(due, estimate_weights(problem, params, system.residuals, system.gramian), weights)
        # Other weights are another loss: a method that has converged has to continue.
        finished = report.finished & new.settled(weights)
        report = eqx.tree_at(lambda report: report.finished, report, finished)
        return moved, (damping, (new, step + jnp.where(trains, 1, 0))), report, after

    def _step(
        self,
        problem: TrainingProblem,
        params: PyTree,
        state: tuple[Array, Array],
        trains: Flag,
        before: Evaluation,
    ) -> tuple:
        """The parameters after one step, damping and its growth, a report, their evaluation, and what was solved."""
        v, unravel = ravel_pytree(params)
        dense = self.solver == "dense" or (self.solver == "auto" and v.shape[0] < MAX_DENSE_PARAMETERS)
        build = partial(_DenseSystem.build if dense else _MatrixFreeSystem.build, problem, unravel, self.cg_steps)
        # Products of a matrix that is not formed cannot be kept from one branch of the program to the next.
        system = zeros_unless(trains, build, v, before.projected) if dense else build(v, before.projected)
        loss = jnp.sum(system.residuals**2)

        def rejected(trial: _Trial) -> Flag:
            return ~trial.good & (trial.tries < MAX_TRIALS)

        def attempt(trial: _Trial) -> _Trial:
            d = jnp.where(trains, system.solve(trial.damping), 0)
            new, evaluation = problem.evaluate(unravel(v + d))
            gain = (loss - new) / jnp.maximum(system.predicted_gain(d, trial.damping), jnp.finfo(v.dtype).tiny)
            good = (jnp.isfinite(new) & (new < loss)) | ~trains
            # Nielsen's rule: the better the model predicted the gain, the smaller the next damping.
            shrink = jnp.clip(1 - (2 * gain - 1) ** 3, 1 / 3, 1)
            damping = trial.damping * jnp.where(good, shrink, trial.growth)
            growth = jnp.where(good, 2.0, 2 * trial.growth)
            v1, new, evaluation = tree_where(good, (v + d, new, evaluation), (v, loss, before))
            return _Trial(trial.tries + 1, damping, growth, v1, new, evaluation, good)

        damping, growth = state
        end = iterate(_Trial(jnp.array(0), damping, growth, v, loss, before, jnp.array(False)), attempt, rejected)
        steps = (jnp.clip(end.damping, MIN_DAMPING, MAX_DAMPING), end.growth)
        finished = trains & (~end.good | (loss - end.loss <= self.tolerance * loss))
        report = EpochReport(loss, steps[0], system.failed, finished)
        return unravel(end.v), tree_where(trains, steps, state), report, end.evaluation, system


def estimated_weights(state: Any) -> Weights:
    """The weights of the loss in the method's state."""
    return state[1][0]


class _Trial(eqx.Module):
    """Where the trials of dampings stand: the vector that is the best so far, its loss and evaluation."""

    tries: Count
    damping: Float[Array, ""]
    growth: Float[Array, ""]
    v: Vector
    loss: Float[Array, ""]
    evaluation: Evaluation
    good: Flag  # the last one was accepted


class _DenseSystem(eqx.Module):
    residuals: Float[Array, " N"]
    gradient: Vector  # J'r
    gramian: Float[Array, "P P"]  # J'J
    failed: Array

    @staticmethod
    def build(
        problem: TrainingProblem, unravel: Any, cg_steps: int, v: Vector, known: ProjectionResult | None
    ) -> "_DenseSystem":
        r, jacobian, failed = problem.residuals_and_jacobian(unravel(v), known)
        return _DenseSystem(r, jacobian.T @ r, jacobian.T @ jacobian, failed)

    @property
    def scale(self) -> Vector:
        """D."""
        diagonal = jnp.diagonal(self.gramian)
        return jnp.maximum(diagonal, 1e-8 * jnp.max(diagonal) + jnp.finfo(diagonal.dtype).tiny)

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
    def build(
        problem: TrainingProblem, unravel: Any, cg_steps: int, v: Vector, known: ProjectionResult | None
    ) -> "_MatrixFreeSystem":
        def residuals(v: Vector) -> tuple[Float[Array, " N"], Array]:
            return problem.residuals(problem.estimate(unravel(v)), problem.batch, problem.windows, known)

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
