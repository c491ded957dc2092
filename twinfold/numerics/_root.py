"""Roots of small systems of equations, 0 = r(z): implicit algebraic variables, stages of integrators, RATTLE.

Newton's method with the natural monotonicity test (Deuflhard 2004, section 3.3): a step is halved until the correction
that would follow it, with the same matrix, is shorter than the one it makes. The test does not depend on the units of
the equations, and it keeps a diode's exponential from overflowing. The derivative of the root is that of the implicit
function theorem, dz = -(dr/dz)^-1 dr, whatever the iteration started from.

Optimistix has no such damping, raises inside the transpose of a failed solve, and cannot be exported; in a vmapped scan
the closed-form solves of small systems are faster as well (`benchmarks/README.md`).
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import finite_jvp, stop_gradient_tree, tree_where
from twinfold.numerics._implicit_derivative import implicit_solve
from twinfold.numerics._iterate import AbstractIteration, backtrack, iterate
from twinfold.numerics._linalg.square import SquareFactors, factorise_square
from twinfold.typing import Count, Flag

Vector = Float[Array, " k"]


class AbstractEquations(eqx.Module):
    """0 = residual(z), as many equations as unknowns, with every array that the root depends on."""

    @abc.abstractmethod
    def residual(self, z: Vector) -> Vector:
        """r(z)."""

    @abc.abstractmethod
    def jacobian(self, z: Vector) -> Float[Array, "k k"]:
        """dr/dz."""

    @abc.abstractmethod
    def scale(self, z: Vector) -> Vector:
        """The size of the unknowns, which corrections are compared with."""


class Root(eqx.Module):
    """z, the number of points at which the equations were linearised, and whether z solves them."""

    z: Vector
    steps: Count
    solved: Flag


def find_root(equations: AbstractEquations, guess: Vector, *, max_steps: int = 50, shortest: float = 1e-3) -> Root:
    """The root near `guess`, or the last iterate, flagged, with a derivative of zero.

    **Arguments:** `max_steps`, how often the equations may be linearised; `shortest`, the fraction of a Newton step
    below which the search gives up.
    """
    return implicit_solve(equations, solver=_RootSolver(stop_gradient_tree(guess), max_steps, shortest))


class _RootSolver(eqx.Module):
    guess: Vector
    max_steps: int = eqx.field(static=True)
    shortest: float = eqx.field(static=True)

    def solve(self, equations: AbstractEquations) -> Root:
        last = iterate(_DampedNewton(equations, self.guess, self.max_steps, self.shortest))
        acceptable = float(jnp.finfo(self.guess.dtype).eps) ** (1 / 2)
        solved = (last.rounding | (last.error <= acceptable)) & jnp.all(jnp.isfinite(last.z))
        return Root(last.z, last.steps, solved)

    def sensitivity(self, equations: AbstractEquations, root: Root, tangent: AbstractEquations) -> Root:
        # Where the solve failed r may not be finite: its derivative would be NaN even if multiplied by zero.
        _, change = eqx.filter_jvp(
            lambda equations: finite_jvp((equations, root.z), fn=lambda equations, z: equations.residual(z)),
            (equations,),
            (tangent,),
        )
        dz = jnp.zeros_like(root.z)
        if change is not None:
            # Both sides are harmless where nothing was solved.
            matrix = jnp.where(root.solved, equations.jacobian(root.z), jnp.eye(root.z.shape[0], dtype=root.z.dtype))
            dz = -factorise_square(matrix).solve(jnp.where(root.solved, change, 0))
        nothing: Any = jax.tree.map(lambda _: None, root)
        return eqx.tree_at(lambda root: root.z, nothing, dz, is_leaf=lambda node: node is None)


class _Iterate(eqx.Module):
    z: Vector
    residual: Vector
    error: Float[Array, ""]  # the length of the next correction, relative to the unknowns
    rounding: Flag  # the residual is as small as rounding allows
    moving: Flag
    steps: Count


class _Trial(eqx.Module):
    z: Vector
    residual: Vector
    correction: Vector  # the next one, with the matrix of this step
    error: Float[Array, ""]
    before: Float[Array, ""]


class _DampedNewton(AbstractIteration):
    equations: AbstractEquations
    guess: Vector
    max_steps: int = eqx.field(static=True)
    shortest: float = eqx.field(static=True)

    @property
    def tolerance(self) -> float:
        # The correction after one this short is about its square: below rounding.
        return float(jnp.finfo(self.guess.dtype).eps) ** (2 / 3)

    def init(self) -> _Iterate:
        no, inf = jnp.array(False), jnp.array(jnp.inf, self.guess.dtype)
        return _Iterate(self.guess, self.equations.residual(self.guess), inf, no, jnp.array(True), jnp.array(0))

    def unfinished(self, carry: _Iterate) -> Flag:
        return carry.moving & (carry.error > self.tolerance) & (carry.steps < self.max_steps)

    def step(self, carry: _Iterate) -> _Iterate:
        here, equations = carry, self.equations
        jacobian = equations.jacobian(here.z)
        factors = factorise_square(jacobian)
        move = -factors.solve(here.residual)
        untried = _Trial(here.z, here.residual, move, here.error, here.error)
        length, trial = backtrack(
            lambda length: self._attempt(here, factors, move, length),
            untried,
            shortest=self.shortest,
            dtype=here.z.dtype,
        )
        taken = length > 0
        # The next correction is known already: at the end it is one more step for free.
        last = trial.error <= self.tolerance
        z = jnp.where(last, trial.z + trial.correction, trial.z)
        steps = here.steps + 1
        moved = _Iterate(z, trial.residual, trial.error, jnp.array(False), taken, steps)
        # No step helps where only rounding is left, and an ill-conditioned matrix makes long corrections out of it.
        size = jnp.abs(jacobian) @ equations.scale(here.z)
        rounding = jnp.all(jnp.abs(here.residual) <= 8 * jnp.finfo(size.dtype).eps * size) & ~factors.singular
        stuck = _Iterate(here.z, here.residual, trial.before, rounding, taken, steps)
        return tree_where(taken, moved, stuck)

    def _attempt(
        self, here: _Iterate, factors: SquareFactors, move: Vector, length: Float[Array, ""]
    ) -> tuple[_Trial, Flag]:
        z = here.z + length * move
        residual = self.equations.residual(z)
        correction = -factors.solve(residual)
        scale = self.equations.scale(z)
        error = jnp.max(jnp.abs(correction) / scale, initial=0)
        before = jnp.where(factors.singular, jnp.inf, jnp.max(jnp.abs(move) / scale, initial=0))
        good = (error <= (1 - length / 4) * before) & jnp.isfinite(before)
        return _Trial(z, residual, correction, error, before), good
