"""Diffrax's own tests with every solver inside `Projected`, as a pytest plugin.

    PYTHONPATH=. python -m pytest -p tests.support.wrapped_diffrax --rootdir DIFFRAX DIFFRAX/test

The constraint, bounds that no state reaches, makes every step a projected one and changes nothing. What the tests
assert must therefore hold as before, except for `BacksolveAdjoint`, which `Projected` refuses.
`WRAPPED_DIFFRAX=off` leaves the solvers alone, for comparison.
"""

import functools
import os
from typing import Any

import diffrax
import jax
import jax.numpy as jnp

from twinfold.model import Bounds
from twinfold.numerics import Projected

FAR = 1e30


def first_value(x: Any) -> Any:
    """One number of the state, if it has any."""
    leaves = [leaf for leaf in jax.tree.leaves(x) if leaf.size]
    return jnp.real(leaves[0]).ravel()[0] if leaves else jnp.zeros(())


def wrap(solve: Any) -> Any:
    """`diffeqsolve` with its solver wrapped."""

    @functools.wraps(solve)
    def wrapped(terms: Any, solver: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(solver, Projected):
            solver = Projected(solver, Bounds(first_value, lower=-FAR, upper=FAR))
        return solve(terms, solver, *arguments, **options)

    return wrapped


if os.environ.get("WRAPPED_DIFFRAX") != "off":
    diffrax.diffeqsolve = wrap(diffrax.diffeqsolve)
