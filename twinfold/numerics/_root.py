"""Roots of small systems of equations, 0 = r(z): implicit algebraic variables, stages of integrators, RATTLE.

Newton's method with the natural monotonicity test (Deuflhard 2004, section 3.3): a step is halved until the correction
that would follow it, with the same matrix, is shorter than the one it makes. The test does not depend on the units of
the equations, and it keeps a diode's exponential from overflowing. The derivative of the root is that of the implicit
function theorem, dz = -(dr/dz)^-1 dr, independent of the initial guess.

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
from twinfold.numerics._iterate import backtrack, iterate
from twinfold.numerics._linalg.square import factorise_square
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
        last = _damped_newton(equations, self.guess, self.max_steps, self.shortest)
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


def _damped_newton(equations: AbstractEquations, guess: Vector, max_steps: int, shortest: float) -> _Iterate:
    eps = float(jnp.finfo(guess.dtype).eps)
    # The correction after one this short is about its square: below rounding.
    tolerance = eps ** (2 / 3)

    def unfinished(here: _Iterate) -> Flag:
        return here.moving & (here.error > tolerance) & (here.steps < max_steps)

    def step(here: _Iterate) -> _Iterate:
        jacobian = equations.jacobian(here.z)
        factors = factorise_square(jacobian)
        move = -factors.solve(here.residual)

        def attempt(length: Float[Array, ""]) -> tuple[tuple, Flag]:
            z = here.z + length * move
            residual = equations.residual(z)
            correction = -factors.solve(residual)  # the next one, with the matrix of this step
            scale = equations.scale(z)
            error = jnp.max(jnp.abs(correction) / scale, initial=0)
            before = jnp.where(factors.singular, jnp.inf, jnp.max(jnp.abs(move) / scale, initial=0))
            good = (error <= (1 - length / 4) * before) & jnp.isfinite(before)
            return (z, residual, correction, error, before), good

        untried = (here.z, here.residual, move, here.error, here.error)
        length, (z, residual, correction, error, before) = backtrack(
            attempt, untried, shortest=shortest, dtype=here.z.dtype
        )
        taken, steps = length > 0, here.steps + 1
        # The next correction is known already: at the end it is one more step for free.
        z = jnp.where(error <= tolerance, z + correction, z)
        # No step helps where only rounding is left, and an ill-conditioned matrix makes long corrections out of it.
        size = jnp.abs(jacobian) @ equations.scale(here.z)
        rounding = jnp.all(jnp.abs(here.residual) <= 8 * eps * size) & ~factors.singular
        moved = _Iterate(z, residual, error, jnp.array(False), taken, steps)
        return tree_where(taken, moved, _Iterate(here.z, here.residual, before, rounding, taken, steps))

    no, infinite = jnp.array(False), jnp.array(jnp.inf, guess.dtype)
    first = _Iterate(guess, equations.residual(guess), infinite, no, jnp.array(True), jnp.array(0))
    return iterate(first, step, unfinished)
