"""Whether algebraic equations determine their variables: asked once, before anything is compiled.

At the first state dh/dz is decomposed: a direction in which z can move without changing h names the variables that are
left open, the combination of equations that vanishes names those that say the same.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold._types import Parameters, Scalar, State
from twinfold.field.implicit import Equations, Implicit, Solved

SHARE = 1e-3  # of the largest entry of a null vector, from which a variable belongs to it


def check_implicit(algebraic: Implicit, t: Scalar, x: State, w: Any, p: Parameters) -> None:
    """A `ValueError` that names the equations or variables, unless h determines z at this state."""
    guess = algebraic.guess(t, x, w, p)
    count, names = guess.shape[0], algebraic.names
    if names is not None and len(names) != count:
        raise ValueError(f"algebraic: {len(names)} names for {count} variables; `start` must return one for each name.")
    if algebraic.size.value.shape not in ((), (count,)):
        raise ValueError(f"algebraic: size has shape {algebraic.size.value.shape} for {count} variables.")
    equations = jax.eval_shape(Equations(algebraic.h, t, x, w, p).residual, guess)
    if equations.shape != (count,):
        raise ValueError(
            f"algebraic: h returned shape {equations.shape} for {count} variables; it must be a vector of as many "
            "equations as `start` has values."
        )
    found, value, jacobian = _at_solution(algebraic, t, x, w, p)
    if not (np.isfinite(value).all() and np.isfinite(jacobian).all()):
        raise ValueError(
            f"algebraic: h or dh/dz is not finite at start={np.asarray(guess)}: h = {np.asarray(value)}. Give a start "
            "at which the equations are defined."
        )
    open_, same = undetermined(np.asarray(jacobian))
    if not open_:
        return
    called = [f"z[{index}]" if names is None else names[index] for index in open_]
    where = f"z = {np.asarray(found.z)}" if bool(found.solved) else f"start={np.asarray(guess)}"
    raise ValueError(
        f"algebraic: dh/dz is singular at the first state, {where}. The equations do not determine "
        f"{', '.join(called)}; among {', '.join(f'h[{index}]' for index in same)} one follows from the others or says "
        "nothing about z. Give an equation that fixes them (a floating node of a circuit needs a path to ground), or "
        "another `start` if only this point is singular. Equations that restrict x rather than z (an index above 1: "
        "capacitors in a loop, a mechanical joint) are no algebraic equations: give them as `constraint`."
    )


@eqx.filter_jit
def _at_solution(algebraic: Implicit, t: Scalar, x: State, w: Any, p: Parameters) -> tuple[Solved, Any, Any]:
    """The solution, with h and dh/dz there; at the start where none was found."""
    found = algebraic.solve(t, x, w, p)
    residual = Equations(algebraic.h, t, x, w, p).residual
    z = jnp.where(found.solved, found.z, algebraic.guess(t, x, w, p))
    return found, residual(z), jax.jacfwd(residual)(z)


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
    return np.flatnonzero(free > SHARE * free.max()).tolist(), np.flatnonzero(same > SHARE * same.max()).tolist()
