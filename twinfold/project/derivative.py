"""The exact derivative of a projection, by the implicit function theorem on the equations that define it.

A `custom_jvp` whose rule is linear algebra that JAX can transpose: it serves jvp and vjp alike, in the target, in t,
p and the level, and in any array inside the constraint.
"""

from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp

from twinfold._types import Level, State
from twinfold.contain import contained
from twinfold.project.base import Correction, Problem
from twinfold.result import RESULTS


@runtime_checkable
class Solvable(Protocol):
    """A projection that can solve its problem and the linearisation of its defining equations."""

    def solve(self, problem: Problem) -> Correction: ...

    def sensitivity(self, problem: Problem, out: Correction, tangent: Problem) -> tuple[State, Level]: ...


@eqx.filter_custom_jvp
def implicit(problem: Problem, *, projection: Solvable) -> Correction:
    """`projection.solve(problem)`, differentiated by `projection.sensitivity`."""
    return projection.solve(problem)


@implicit.def_jvp
def _implicit_jvp(primals, tangents, *, projection: Solvable):
    (problem,), (tangent,) = primals, tangents
    out = implicit(problem, projection=projection)
    dx, multiplier = projection.sensitivity(problem, out, tangent)
    # A failed projection returned its target: so does its derivative.
    solved = out.result == RESULTS.successful
    unmoved = jnp.zeros_like(out.x) if tangent.target is None else tangent.target
    nothing = jax.tree.map(lambda _: None, out)
    return out, eqx.tree_at(
        lambda out: (out.x, out.multiplier),
        nothing,
        (jnp.where(solved, dx, unmoved), jnp.where(solved, multiplier, 0)),
        is_leaf=lambda node: node is None,
    )


def input_tangents(problem: Problem, x: State, multiplier: Level, tangent: Problem) -> tuple[State, State, Level]:
    """Changes of x~, of G(x)' lambda and of g(x), at a fixed x and lambda, for a change of the inputs."""
    target = jnp.zeros_like(x) if tangent.target is None else tangent.target
    rest = eqx.tree_at(lambda tangent: tangent.target, tangent, None, is_leaf=lambda node: node is None)
    if not jax.tree.leaves(rest):
        return target, jnp.zeros_like(x), jnp.zeros_like(multiplier)

    def equations(problem: Problem) -> tuple[State, Level]:
        value, pullback = jax.vjp(problem.residual, x)
        return pullback(multiplier)[0], value

    _, (slope, change) = eqx.filter_jvp(lambda problem: contained((problem,), fn=equations), (problem,), (rest,))
    # A change that is zero by structure comes as None.
    slope = jnp.zeros_like(x) if slope is None else slope
    return target, slope, jnp.zeros_like(multiplier) if change is None else change
