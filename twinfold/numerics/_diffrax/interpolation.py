"""The state between two steps of a projected solver: interpolated as the solver does it, then brought to the manifold.

Diffrax interpolates the values it saves between steps (`SaveAt(ts=...)`, dense output, the time of an event). An
interpolation through points of a manifold leaves it in between, so each value is projected.
"""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from twinfold._core import RESULTS
from twinfold.typing import State


class Packed(eqx.Module):
    """Any tree, as float arrays and what is not an array: Diffrax can fill buffers with infinities of it."""

    arrays: tuple[Array, ...]
    rest: tuple = eqx.field(static=True)  # the structure, the arrays' dtypes, the other leaves


def pack(tree: Any) -> Packed:
    """`tree` as Diffrax can keep it, once for each step of a solve."""
    leaves, structure = jax.tree.flatten(tree)
    held = [isinstance(leaf, jax.Array | np.ndarray | np.generic) for leaf in leaves]
    arrays = [jnp.asarray(leaf) for leaf, is_array in zip(leaves, held, strict=True) if is_array]
    dtypes = tuple(array.dtype for array in arrays)
    others = tuple(None if is_array else leaf for leaf, is_array in zip(leaves, held, strict=True))
    floats = tuple(each if jnp.issubdtype(each.dtype, jnp.inexact) else each.astype(float) for each in arrays)
    return Packed(floats, (structure, tuple(held), dtypes, others))


def unpack(packed: Packed) -> Any:
    """The tree that was packed."""
    structure, held, dtypes, others = packed.rest
    arrays = iter([array.astype(dtype) for array, dtype in zip(packed.arrays, dtypes, strict=True)])
    leaves = [next(arrays) if is_array else other for is_array, other in zip(held, others, strict=True)]
    return jax.tree.unflatten(structure, leaves)


class ProjectedInterpolation(diffrax.AbstractLocalInterpolation):
    """One step of a `Projected` solver as a function of time. Where the projection of a value fails, it is NaN.

    **Arguments:** `t0`, `t1`, the ends of the step, as Diffrax counts time (always forwards); `inner`, what the inner
    solver's interpolation needs; `manifold`, (its class, form of the state, constraint on its vector, projection, p,
    level), packed; `anchor`, the vector of the state at t0; `direction`, -1 where the solve runs backwards in time.
    """

    t0: Any
    t1: Any
    inner: dict[str, Any]
    manifold: Packed
    anchor: State
    direction: Float[Array, ""]

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> PyTree:
        if t1 is not None:
            ends = self.evaluate(t1, left=left), self.evaluate(t0, left=left)
            return jax.tree.map(jnp.subtract, *ends)
        interpolation, form, constraint, projection, p, level = unpack(self.manifold)
        x = form.flatten(interpolation(t0=self.t0, t1=self.t1, **self.inner).evaluate(t0, left=left))
        t = jnp.asarray(self.direction * t0, x.dtype)
        out = projection.project(constraint, t, x, p, level, anchor=self.anchor)
        return form.unflatten(jnp.where(out.result == RESULTS.successful, out.x, jnp.nan))
