"""The mass matrix of a mechanism, through its root: M = R R', so that accelerations are compared in units of energy.

A vector is a diagonal; a matrix is factorised after scaling to a unit diagonal, so that grams beside tonnes are safe.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from twinfold._core import Frozen, call_by_name, named_arguments
from twinfold.numerics._linalg.dense import apply, apply_transposed, cholesky, solve_lower, solve_lower_transposed
from twinfold.typing import Parameters


class Inertia(eqx.Module):
    """R of M = R R', lower triangular, or its diagonal. Not a number where M is not positive definite."""

    root: Float[Array, "..."]

    def half(self, b: Float[Array, " k"]) -> Float[Array, " k"]:
        """R^-1 b."""
        return b / self.root if self.root.ndim == 1 else solve_lower(self.root, b)

    def half_transposed(self, b: Float[Array, " k"]) -> Float[Array, " k"]:
        """R^-T b."""
        return b / self.root if self.root.ndim == 1 else solve_lower_transposed(self.root, b)

    def times_root_transposed(self, b: Float[Array, " k"]) -> Float[Array, " k"]:
        """R' b."""
        return self.root * b if self.root.ndim == 1 else apply_transposed(self.root, b)


def known_mass(mass: ArrayLike | Sequence | Callable) -> Callable | Frozen:
    """A constant mass matrix, checked; a function of q and p as it is."""
    if callable(mass):
        named_arguments(mass, ("q", "p"), "mass")
        return mass
    value = np.asarray(mass, dtype=float)
    if not np.isfinite(value).all() or value.ndim not in (1, 2) or value.shape[0] != value.shape[-1]:
        raise ValueError(f"mass of shape {value.shape}: give a vector of masses, or a finite square mass matrix.")
    if value.ndim == 2 and not np.allclose(value, value.T):
        raise ValueError("mass: the matrix is not symmetric; a mass matrix is the Hessian of the kinetic energy.")
    smallest = value.min() if value.ndim == 1 else np.linalg.eigvalsh(value).min()
    if not smallest > 0:
        raise ValueError(
            f"mass: not positive definite (smallest {'entry' if value.ndim == 1 else 'eigenvalue'} {smallest:.3g}). "
            "Give every coordinate a mass, or leave out the coordinates that have none."
        )
    return Frozen(jnp.asarray(value))


def mass_of(mass: Callable | Frozen, q: Float[Array, " k"], p: Parameters) -> Any:
    """M at a position: a vector (its diagonal) or a matrix."""
    value = mass.value if isinstance(mass, Frozen) else call_by_name(mass, "mass", q=q, p=p)
    value = jnp.asarray(value, q.dtype)
    if value.shape not in ((q.shape[0],), (q.shape[0], q.shape[0])):
        raise ValueError(
            f"mass has shape {value.shape} for {q.shape[0]} positions; give {q.shape[0]} masses, or a matrix "
            f"{q.shape[0]} x {q.shape[0]}."
        )
    return value


def times_mass(mass: Float[Array, "..."], v: Float[Array, " k"]) -> Float[Array, " k"]:
    """M v."""
    return mass * v if mass.ndim == 1 else apply(mass, v)


def inertia(mass: Float[Array, "..."]) -> Inertia:
    """The root of a mass matrix."""
    if mass.ndim == 1:
        return Inertia(jnp.sqrt(mass))
    sizes = jnp.sqrt(jnp.diagonal(mass))
    lower, definite = cholesky(mass / (sizes[:, None] * sizes[None]))
    return Inertia(jnp.where(definite, sizes[:, None] * lower, jnp.nan))
