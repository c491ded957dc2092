"""Names for the arrays that appear everywhere: n states, m constraints, d inputs, k outputs, T times."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from jaxtyping import Array, Bool, Float, Int

__all__ = ["ConstraintVector", "Count", "Flag", "Jacobian", "Parameters", "Scalar", "Signal", "State", "Times"]

Scalar: TypeAlias = Float[Array, ""] | float
"""One number."""

State: TypeAlias = Float[Array, " n"]
"""The state x of n numbers, or its derivative."""

ConstraintVector: TypeAlias = Float[Array, " m"]
"""One number per constraint: residuals, levels, multipliers."""

Jacobian: TypeAlias = Float[Array, "m n"]
"""dg/dx of m constraints in n states."""

Times: TypeAlias = Float[Array, " T"]
"""The times of T samples."""

Flag: TypeAlias = Bool[Array, ""]
"""True or false, as an array."""

Count: TypeAlias = Int[Array, ""]
"""An integer, as an array."""

Parameters: TypeAlias = Mapping[str, Any]
"""Physical parameters by name; a value is an array, or a small tree of arrays."""

Signal: TypeAlias = Callable[[Any], Any]
"""The input over one step, as a function of time; its value is None when the system has no input."""
