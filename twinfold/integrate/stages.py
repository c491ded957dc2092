"""The stage equations of an implicit method, solved by a damped Newton iteration, with their exact derivative.

z = c + h (A x I) f(x + z),        z_i = x_i - x the increments of s stages, A the method's coefficients

Newton's matrix is exact (n push-forwards for all stages at once). A step is shortened until what would be left of it
shrinks (Deuflhard's natural test: it does not depend on the units of the equations). The derivative is that of the
implicit function theorem, in everything the field depends on, closed over or not; it serves jvp and vjp.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jaxtyping import Array, Float

from twinfold._types import Flag, Parameters, Scalar, Signal, State
from twinfold.choose import choose
from twinfold.contain import contained

MAX_STEPS = 50
SHORTEST = 1e-3  # fraction of a Newton step below which it is given up


class Stages(eqx.Module):
    """z = offset + weights f(x + z): the equations of one step, with all that they can be differentiated in."""

    rates: Callable  # f at each of the stages, [s, n] -> [s, n]; stages do not depend on each other
    weights: Float[Array, "s s"]  # h A
    offset: Float[Array, "s n"]
    x: State

    def residual(self, z: Float[Array, "s n"]) -> Float[Array, "s n"]:
        return z - self.offset - self.weights @ self.rates(self.x + z)

    def matrix(self, z: Float[Array, "s n"]) -> Float[Array, "sn sn"]:
        """d residual / dz, by blocks I - h a_ij J_j."""
        stages, n = z.shape
        _, push = jax.linearize(self.rates, self.x + z)
        columns = jax.vmap(lambda e: push(jnp.broadcast_to(e, z.shape)))(jnp.eye(n, dtype=z.dtype))
        blocks = jnp.einsum("ij,bja->iajb", self.weights, columns)
        return jnp.eye(stages * n, dtype=z.dtype) - blocks.reshape(stages * n, stages * n)


def stage_equations(
    field: Callable[..., State],
    ts: Float[Array, " s"],
    weights: Float[Array, "s s"],
    offset: Float[Array, "s n"],
    x: State,
    w: Signal,
    p: Parameters,
) -> Stages:
    """The equations for stages at the times `ts`, with what the field closes over made explicit."""

    def rates(states: Float[Array, "s n"]) -> Float[Array, "s n"]:
        return jax.vmap(lambda t, x: field(t, x, w(t), p))(ts, states)

    return Stages(eqx.filter_closure_convert(rates, offset), weights, offset, x)


@eqx.filter_custom_jvp
def solve_stages(stages: Stages) -> tuple[Float[Array, "s n"], Flag]:
    """The increments z and whether they were found; where they were not, z = 0, whose derivative is zero."""
    z, solved = _newton(stages)
    return jnp.where(solved, z, 0), solved


@solve_stages.def_jvp
def _solve_stages_jvp(primals, tangents):
    (stages,), (tangent,) = primals, tangents
    z, solved = solve_stages(stages)
    _, change = eqx.filter_jvp(
        lambda stages: contained((stages,), fn=lambda stages: stages.residual(z)), (stages,), (tangent,)
    )
    if change is None:
        return (z, solved), (jnp.zeros_like(z), None)
    # Both the matrix and the right-hand side are harmless where nothing was solved.
    matrix = jnp.where(solved, stages.matrix(z), jnp.eye(z.size, dtype=z.dtype))
    dz = jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(matrix), jnp.where(solved, -change, 0).reshape(-1))
    return (z, solved), (dz.reshape(z.shape), None)


class _Iterate(eqx.Module):
    z: Float[Array, "s n"]
    residual: Float[Array, "s n"]
    error: Scalar  # what a full step would still change, relative to the states
    moving: Flag
    steps: Array


def _newton(stages: Stages) -> tuple[Float[Array, "s n"], Flag]:
    eps = float(jnp.finfo(stages.x.dtype).eps)
    # What is left after the last step is smaller still, by the quadratic convergence.
    tolerance, acceptable = eps ** (2 / 3), eps ** (1 / 2)

    def unfinished(here: _Iterate) -> Flag:
        return here.moving & (here.error > tolerance) & (here.steps < MAX_STEPS)

    def step(here: _Iterate) -> _Iterate:
        factor = jax.scipy.linalg.lu_factor(stages.matrix(here.z))

        def correction(residual: Float[Array, "s n"]) -> Float[Array, "s n"]:
            return -jax.scipy.linalg.lu_solve(factor, residual.reshape(-1)).reshape(residual.shape)

        move = correction(here.residual)

        def attempt(trial: tuple) -> tuple:
            length = trial[0] / 2
            z = here.z + length * move
            residual = stages.residual(z)
            left = correction(residual)
            scale = _scale(stages.x, z)
            error, before = jnp.max(jnp.abs(left) / scale), jnp.max(jnp.abs(move) / scale)
            good = (error <= (1 - length / 4) * before) & jnp.isfinite(before)
            return length, z, residual, left, error, before, good

        nothing = jnp.array(jnp.inf, here.z.dtype)
        untried = (jnp.array(2.0, here.z.dtype), here.z, here.residual, move, nothing, nothing, jnp.array(False))
        trial = jax.lax.while_loop(lambda trial: ~trial[-1] & (trial[0] > SHORTEST), attempt, untried)
        _, z, residual, left, error, before, good = trial
        # The correction with the old matrix is known already: at the end it is one more step for nothing.
        last = good & (error <= tolerance)
        taken = _Iterate(jnp.where(last, z + left, z), residual, error, good, here.steps + 1)
        # Where rounding is all that is left no step helps: what it would have changed says whether that is enough.
        return choose(good, taken, _Iterate(here.z, here.residual, before, good, here.steps + 1))

    zero = jnp.zeros_like(stages.offset)
    start = _Iterate(zero, stages.residual(zero), jnp.array(jnp.inf, zero.dtype), jnp.array(True), jnp.array(0))
    out = jax.lax.while_loop(unfinished, step, start)
    return out.z, (out.error <= acceptable) & jnp.all(jnp.isfinite(out.z))


def _scale(x: State, z: Float[Array, "s n"]) -> State:
    """The size of each state over the step; for one that is nearly zero, a bit of the largest.

    The tolerance times that bit is one rounding error of the largest state.
    """
    size = jnp.maximum(jnp.abs(x), jnp.max(jnp.abs(x + z), axis=0))
    finfo = jnp.finfo(x.dtype)
    return size + float(finfo.eps) ** (1 / 3) * jnp.max(size) + finfo.tiny
