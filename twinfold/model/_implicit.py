"""Algebraic variables that are defined by equations: z with 0 = h(t, x, z, w, p), solved in every stage.

Use it where z has no closed form: the node voltages of a circuit with diodes, a reaction's overpotential, a valve's
flow. Learned parts may be anywhere inside h. The equations must determine z (index 1: dh/dz is regular); that is
checked once at the first state, before anything is compiled. The derivative is that of the implicit function theorem,

    dz = -(dh/dz)^-1 (h_t dt + h_x dx + h_w dw + h_p dp).
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from twinfold._core import Frozen, call_by_name, named_arguments
from twinfold.numerics._algebraic import AbstractImplicit
from twinfold.numerics._root import AbstractEquations, Root, find_root
from twinfold.typing import Parameters, Scalar, State

Algebraic = Float[Array, " k"]
SHORTEST_STEP = 1e-8  # fraction of a Newton step; exponentials far from their solution need short ones
NULL_SHARE = 1e-3  # of the largest entry of a null vector, from which a variable belongs to it


def evaluate_algebraic(
    h: Callable, t: Scalar, x: State, z: Algebraic, w: Any, p: Parameters
) -> Float[Array, " equations"]:
    """The user's h as a vector; a scalar is one equation."""
    return jnp.atleast_1d(call_by_name(h, "h", t=t, x=x, z=z, w=w, p=p))


class AlgebraicEquations(AbstractEquations):
    """h and everything but z that its solution depends on; `size`: typical magnitudes of z."""

    h: Callable
    t: Scalar
    x: State
    w: Any
    p: Parameters
    size: Algebraic

    def residual(self, z: Algebraic) -> Float[Array, " equations"]:
        return evaluate_algebraic(self.h, self.t, self.x, z, self.w, self.p)

    def jacobian(self, z: Algebraic) -> Float[Array, "equations k"]:
        return jax.jacfwd(self.residual)(z)

    def scale(self, z: Algebraic) -> Algebraic:
        return jnp.abs(z) + self.size


class Implicit(AbstractImplicit):
    """z from 0 = h(t, x, z, w, p): for `Twin(algebraic=Implicit(h, guess))`.

    **Arguments:**

    - `h`: a function or module of what it names of t, x, z, w, p; as many equations as z has variables.
    - `guess`: where the iteration begins at a run's first sample: a vector, a number where there is one variable (or
      `names` say how many), or a function of t, x, w, p. Afterwards it begins at the last solution.
    - `names` of the variables, for messages.
    - `gives`: what the field and the observation see as z, a function of t, x, z, w, p (for instance a dictionary);
      the vector itself when left out.
    - `size`: typical magnitudes of the variables; corrections far below them end the iteration.
    - `max_steps`: how often h may be linearised before the solution counts as failed.

    **Example:**

    ```python
    diode = tw.Implicit(lambda x, z: z + 1e-3 * (jnp.exp(20 * z) - 1) - x[:1], guess=[0.0], names=["voltage"])
    twin = tw.Twin(lambda x, z: -z, algebraic=diode)
    twin.simulate([1.0], jnp.linspace(0, 1, 11)).zs[-1]
    ```
    """

    h: Callable
    guess: Callable | Frozen
    names: tuple[str, ...] | None = eqx.field(static=True)
    gives: Callable | None
    size: Frozen
    max_steps: int = eqx.field(static=True)

    def __init__(
        self,
        h: Callable,
        guess: Callable | ArrayLike | Sequence,
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
        if callable(guess):
            named_arguments(guess, ("t", "x", "w", "p"), "guess")
            self.guess = guess
        else:
            self.guess = Frozen(_vector(guess, names))
        self.h = h
        self.names = None if names is None else tuple(names)
        self.gives = gives
        self.size = Frozen(jnp.asarray(magnitudes))
        self.max_steps = max_steps

    def initial_guess(self, t: Scalar, x: State, w: Any, p: Parameters) -> Algebraic:
        """Where the iteration begins when no solution is known yet."""
        if isinstance(self.guess, Frozen):
            first = self.guess.value
        else:
            first = jnp.atleast_1d(call_by_name(self.guess, "guess", t=t, x=x, w=w, p=p))
        return jax.lax.stop_gradient(first.astype(x.dtype))

    def solve(self, t: Scalar, x: State, w: Any, p: Parameters, z: Algebraic | None = None) -> Root:
        """The solution near `z` (or the guess), or the last iterate, flagged, with a derivative of zero."""
        guess = self.initial_guess(t, x, w, p) if z is None else z
        size = jnp.broadcast_to(self.size.value, guess.shape).astype(guess.dtype)
        return find_root(
            AlgebraicEquations(self.h, t, x, w, p, size), guess, max_steps=self.max_steps, shortest=SHORTEST_STEP
        )

    def residual(self, t: Scalar, x: State, z: Algebraic, w: Any, p: Parameters) -> Algebraic:
        """h(t, x, z, w, p), zero at a solution."""
        return evaluate_algebraic(self.h, t, x, z, w, p)

    def given(self, t: Scalar, x: State, z: Algebraic, w: Any, p: Parameters) -> Any:
        """What the field and the observation see as z."""
        return z if self.gives is None else call_by_name(self.gives, "gives", t=t, x=x, z=z, w=w, p=p)

    def __call__(self, t: Scalar, x: State, w: Any, p: Parameters, z: Algebraic | None = None) -> Any:
        """What the field and the observation see as z; NaN where the equations were not solved."""
        found = self.solve(t, x, w, p, z)
        return self.given(t, x, jnp.where(found.solved, found.z, jnp.nan), w, p)


def _vector(guess: ArrayLike | Sequence, names: Sequence[str] | None) -> Array:
    first = np.asarray(guess, dtype=float)
    if first.ndim == 0:
        first = np.full(1 if names is None else len(names), first)
    if first.ndim != 1 or not np.isfinite(first).all():
        raise ValueError(f"Implicit(guess={guess}): give a finite vector, one value for each variable, or a function.")
    if names is not None and len(names) != len(first):
        raise ValueError(f"Implicit(names=...): {len(names)} names for {len(first)} variables in guess.")
    return jnp.asarray(first)


def check_implicit(algebraic: Implicit, t: Scalar, x: State, w: Any, p: Parameters) -> None:
    """A `ValueError` that names the equations or variables, unless h determines z at this state."""
    guess = algebraic.initial_guess(t, x, w, p)
    count, names = guess.shape[0], algebraic.names
    if names is not None and len(names) != count:
        raise ValueError(f"algebraic: {len(names)} names for {count} variables; `guess` must return one for each name.")
    if algebraic.size.value.shape not in ((), (count,)):
        raise ValueError(f"algebraic: size has shape {algebraic.size.value.shape} for {count} variables.")
    equations = jax.eval_shape(AlgebraicEquations(algebraic.h, t, x, w, p, guess).residual, guess)
    if equations.shape != (count,):
        raise ValueError(
            f"algebraic: h returned shape {equations.shape} for {count} variables; it must be a vector of as many "
            "equations as `guess` has values."
        )
    found, value, jacobian = _at_solution(algebraic, t, x, w, p)
    if not (np.isfinite(value).all() and np.isfinite(jacobian).all()):
        raise ValueError(
            f"algebraic: h or dh/dz is not finite at guess={np.asarray(guess)}: h = {np.asarray(value)}. Give a guess "
            "at which the equations are defined."
        )
    open_, same = undetermined(np.asarray(jacobian))
    if not open_:
        return
    called = [f"z[{index}]" if names is None else names[index] for index in open_]
    where = f"z = {np.asarray(found.z)}" if bool(found.solved) else f"guess={np.asarray(guess)}"
    raise ValueError(
        f"algebraic: dh/dz is singular at the first state, {where}. The equations do not determine "
        f"{', '.join(called)}; among {', '.join(f'h[{index}]' for index in same)} one follows from the others or says "
        "nothing about z. Give an equation that fixes them (a floating node of a circuit needs a path to ground), or "
        "another `guess` if only this point is singular. Equations that restrict x rather than z (an index above 1: "
        "capacitors in a loop, a mechanical joint) are no algebraic equations: give them as `constraint`."
    )


@eqx.filter_jit
def _at_solution(algebraic: Implicit, t: Scalar, x: State, w: Any, p: Parameters) -> tuple[Root, Any, Any]:
    """The solution, with h and dh/dz there; at the start where none was found."""
    found = algebraic.solve(t, x, w, p)
    guess = algebraic.initial_guess(t, x, w, p)
    z = jnp.where(found.solved, found.z, guess)
    equations = AlgebraicEquations(algebraic.h, t, x, w, p, guess)
    return found, equations.residual(z), equations.jacobian(z)


def undetermined(jacobian: np.ndarray) -> tuple[list[int], list[int]]:
    """Columns in the null space of a matrix, and rows in that of its transpose; none where it is regular."""
    size = jacobian.shape[0]
    rows = np.abs(jacobian).max(axis=1, initial=0)
    scaled = jacobian / np.where(rows > 0, rows, 1)[:, None]
    columns = np.abs(scaled).max(axis=0, initial=0)
    left, values, right = np.linalg.svd((scaled / np.where(columns > 0, columns, 1)).astype(float))
    lost = values <= 10 * size * np.finfo(jacobian.dtype).eps * values.max(initial=0)
    if not lost.any():
        return [], []
    free, same = np.abs(right[lost]).max(axis=0), np.abs(left[:, lost]).max(axis=1)
    return np.flatnonzero(free > NULL_SHARE * free.max()).tolist(), np.flatnonzero(
        same > NULL_SHARE * same.max()
    ).tolist()
