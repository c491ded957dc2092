"""What the cell needs to know of algebraic variables that are defined by equations."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from twinfold.numerics._root import Root
from twinfold.typing import Parameters, Scalar, State


class AbstractImplicit(eqx.Module):
    """z from 0 = h(t, x, z, w, p), solved in every stage of the integrator."""

    @abc.abstractmethod
    def initial_guess(self, t: Scalar, x: State, w: Any, p: Parameters) -> Float[Array, " k"]:
        """Where the iteration begins when no solution is known yet."""

    @abc.abstractmethod
    def solve(self, t: Scalar, x: State, w: Any, p: Parameters, z: Float[Array, " k"] | None = None) -> Root:
        """The solution near `z`, or near the initial guess."""

    @abc.abstractmethod
    def given(self, t: Scalar, x: State, z: Float[Array, " k"], w: Any, p: Parameters) -> Any:
        """What the field and the observation see as z."""

    @abc.abstractmethod
    def __call__(self, t: Scalar, x: State, w: Any, p: Parameters, z: Float[Array, " k"] | None = None) -> Any:
        """What the field and the observation see as z; NaN where the equations were not solved."""
