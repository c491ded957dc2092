"""Algebraic variables that are defined by equations: z with 0 = h(t, x, z, w, p), solved in every stage.

Use it where z has no closed form: the node voltages of a circuit with diodes, a reaction's overpotential, a valve's
flow. Learned parts may be anywhere inside h. The equations must determine z (index 1: dh/dz is regular).

Newton's method with the natural monotonicity test (Deuflhard 2004, section 3.3): a step is halved until the correction
that would follow it is shorter than the one it makes. The test does not depend on the units of the equations, and it
keeps a diode's exponential from overflowing. The derivative is that of the implicit function theorem,

    dz = -(dh/dz)^-1 (h_t dt + h_x dx + h_w dw + h_p dp),

whatever the iteration started from.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from twinfold._types import Count, Flag, Parameters, Scalar, State
from twinfold.contain import contained
from twinfold.field.arguments import call_by_name, named_arguments
from twinfold.field.learned import Frozen
from twinfold.pivoted import inverse

Algebraic = Float[Array, " k"]
SHORTEST = 1e-8  # of a Newton step, below which the search is given up


class Solved(eqx.Module):
    """z, the number of points at which h was linearised, and whether z solves the equations."""

    z: Algebraic
    steps: Count
    solved: Flag


class Equations(eqx.Module):
    """h and everything but z that its solution depends on."""

    h: Callable
    t: Scalar
    x: State
    w: Any
    p: Parameters

    def residual(self, z: Algebraic) -> Float[Array, " equations"]:
        return jnp.atleast_1d(call_by_name(self.h, "h", t=self.t, x=self.x, z=z, w=self.w, p=self.p))


class Implicit(eqx.Module):
    """z from 0 = h(t, x, z, w, p): for `Twin(algebraic=Implicit(h, start))`.

    **Arguments:**

    - `h`: a function or module of what it names of t, x, z, w, p; as many equations as z has variables.
    - `start`: where the iteration begins at a run's first sample: a vector, a number where there is one variable (or
      `names` say how many), or a function of t, x, w, p. Afterwards it begins at the last solution.
    - `names` of the variables, for messages.
    - `gives`: what the field and the observation see as z, a function of t, x, z, w, p (for instance a dictionary);
      the vector itself when left out.
    - `size`: typical magnitudes of the variables; corrections far below them end the iteration.
    - `max_steps`: how often h may be linearised before the solution counts as failed.
    """

    h: Callable
    start: Callable | Frozen
    names: tuple[str, ...] | None = eqx.field(static=True)
    gives: Callable | None
    size: Frozen
    max_steps: int = eqx.field(static=True)

    def __init__(
        self,
        h: Callable,
        start: Callable | ArrayLike | Sequence,
        names: Sequence[str] | None = None,
        *,
        gives: Callable | None = None,
        size: ArrayLike | Sequence = 1.0,
        max_steps: int = 60,
    ):
        named_arguments(h, ("t", "x", "z", "w", "p"), "h")
        if gives is not None:
            named_arguments(gives, ("t", "x", "z", "w", "p"), "gives")
        if max_steps < 1:
            raise ValueError(f"Implicit(max_steps={max_steps}): it takes at least one step to solve an equation.")
        magnitudes = np.asarray(size, dtype=float)
        if magnitudes.ndim > 1 or not (np.isfinite(magnitudes).all() and (magnitudes > 0).all()):
            raise ValueError(f"Implicit(size={size}): give one positive magnitude, or one for each variable.")
        if callable(start):
            named_arguments(start, ("t", "x", "w", "p"), "start")
            self.start = start
        else:
            self.start = Frozen(_vector(start, names))
        self.h = h
        self.names = None if names is None else tuple(names)
        self.gives = gives
        self.size = Frozen(jnp.asarray(magnitudes))
        self.max_steps = max_steps

    def guess(self, t: Scalar, x: State, w: Any, p: Parameters) -> Algebraic:
        """Where the iteration begins when no solution is known yet."""
        if isinstance(self.start, Frozen):
            first = self.start.value
        else:
            first = jnp.atleast_1d(call_by_name(self.start, "start", t=t, x=x, w=w, p=p))
        return jax.lax.stop_gradient(first.astype(x.dtype))

    def solve(self, t: Scalar, x: State, w: Any, p: Parameters, z: Algebraic | None = None) -> Solved:
        """The solution near `z` (or `start`), or the last iterate, flagged, with a derivative of zero."""
        begin = self.guess(t, x, w, p) if z is None else jax.lax.stop_gradient(z)
        size = jax.lax.stop_gradient(jnp.broadcast_to(self.size.value, begin.shape).astype(begin.dtype))
        return root(Equations(self.h, t, x, w, p), begin=begin, size=size, max_steps=self.max_steps)

    def given(self, t: Scalar, x: State, z: Algebraic, w: Any, p: Parameters) -> Any:
        """What the field and the observation see as z."""
        return z if self.gives is None else call_by_name(self.gives, "gives", t=t, x=x, z=z, w=w, p=p)

    def __call__(self, t: Scalar, x: State, w: Any, p: Parameters, z: Algebraic | None = None) -> Any:
        """What the field and the observation see as z; NaN where the equations were not solved."""
        found = self.solve(t, x, w, p, z)
        return self.given(t, x, jnp.where(found.solved, found.z, jnp.nan), w, p)


def _vector(start: ArrayLike | Sequence, names: Sequence[str] | None) -> Array:
    first = np.asarray(start, dtype=float)
    if first.ndim == 0:
        first = np.full(1 if names is None else len(names), first)
    if first.ndim != 1 or not np.isfinite(first).all():
        raise ValueError(f"Implicit(start={start}): give a finite vector, one value for each variable, or a function.")
    if names is not None and len(names) != len(first):
        raise ValueError(f"Implicit(names=...): {len(names)} names for {len(first)} variables in start.")
    return jnp.asarray(first)


@eqx.filter_custom_jvp
def root(equations: Equations, *, begin: Algebraic, size: Algebraic, max_steps: int) -> Solved:
    """The z near `begin` with h = 0, differentiated by the implicit function theorem."""
    return _newton(equations, begin, size, max_steps)


@root.def_jvp
def _root_jvp(primals, tangents, *, begin: Algebraic, size: Algebraic, max_steps: int):
    (equations,), (changes,) = primals, tangents
    out = root(equations, begin=begin, size=size, max_steps=max_steps)

    # Beside a failure h may not be finite: its derivative would be NaN even where it is multiplied by zero.
    _, change = eqx.filter_jvp(
        lambda equations: contained((equations, out.z), fn=Equations.residual), (equations,), (changes,)
    )
    slope, _ = inverse(jax.jacfwd(equations.residual)(out.z))
    nothing = jax.tree.map(lambda _: None, out)
    moved = jnp.zeros_like(out.z) if change is None else jnp.where(out.solved, -slope @ change, 0)
    return out, eqx.tree_at(lambda out: out.z, nothing, moved, is_leaf=lambda node: node is None)


class _Iterate(eqx.Module):
    """A point z, the Newton correction from it, and the inverse Jacobian that gave it."""

    z: Algebraic
    correction: Algebraic
    slope: Float[Array, "k k"]
    done: Flag  # nothing is left to correct but rounding


def _newton(equations: Equations, begin: Algebraic, size: Algebraic, max_steps: int) -> Solved:
    eps = jnp.finfo(begin.dtype).eps
    # The correction after one this small is about its square: below rounding.
    tolerance = 10 * eps**0.75

    def at(z: Algebraic) -> tuple[_Iterate, Algebraic, Flag]:
        """The iterate, h there, and whether both h and its Jacobian can be used."""
        push = jax.vmap(lambda along: jax.jvp(equations.residual, (z,), (along,)), out_axes=(None, 1))
        value, jacobian = push(jnp.eye(z.shape[0], dtype=z.dtype))
        slope, singular = inverse(jacobian)
        correction = -slope @ value
        usable = ~singular & jnp.all(jnp.isfinite(correction))
        scale = jnp.abs(z) + size
        short = jnp.all(jnp.abs(correction) <= tolerance * scale)
        # An ill-conditioned Jacobian makes long corrections out of rounding in h.
        rounding = jnp.all(jnp.abs(value) <= 8 * eps * (jnp.abs(jacobian) @ scale))
        return _Iterate(z, correction, slope, usable & (short | rounding)), value, usable

    def length(correction: Algebraic, z: Algebraic) -> Float[Array, ""]:
        return jnp.max(jnp.abs(correction) / (jnp.abs(z) + size), initial=0)

    def unfinished(state: tuple) -> Flag:
        here, part, steps = state
        return ~here.done & (steps < max_steps) & (part > SHORTEST)

    def advance(state: tuple) -> tuple:
        here, part, steps = state
        there, value, usable = at(here.z + part * here.correction)
        # Both in the metric of the point that the step leaves: the correction that would follow, from the same slope.
        shorter = length(here.slope @ value, here.z) <= (1 - part / 4) * length(here.correction, here.z)
        accepted = usable & (shorter | there.done)
        here = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), there, here)
        shortened = jnp.where(steps == 0, 0, part / 4)
        return here, jnp.where(accepted, jnp.minimum(4 * part, 1), shortened), steps + 1

    # No correction leads to the first point: it is linearised in the loop like any other.
    nothing, zeros = jnp.array(False), jnp.zeros_like(begin)
    first = _Iterate(begin, zeros, jnp.zeros((zeros.shape[0],) * 2, begin.dtype), nothing)
    here, _, steps = jax.lax.while_loop(unfinished, advance, (first, jnp.ones((), begin.dtype), jnp.array(0)))
    return Solved(jnp.where(here.done, here.z + here.correction, here.z), steps, here.done)
