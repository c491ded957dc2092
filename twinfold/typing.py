"""Names for the arrays that appear everywhere: n states, m constraints, d inputs, k outputs, T times."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from jaxtyping import Array, Bool, Float, Int

__all__ = ["ConstraintVector", "Count", "Flag", "Jacobian", "Parameters", "Scalar", "Signal", "State", "Times"]

Scalar: TypeAlias = Float[Array, ""] | float
State: TypeAlias = Float[Array, " n"]
ConstraintVector: TypeAlias = Float[Array, " m"]
Jacobian: TypeAlias = Float[Array, "m n"]
Times: TypeAlias = Float[Array, " T"]
Flag: TypeAlias = Bool[Array, ""]
Count: TypeAlias = Int[Array, ""]

# Physical parameters by name; a value is an array, or a small tree of arrays.
Parameters: TypeAlias = Mapping[str, Any]
# The input over one step, as a function of time; its value is None when the system has no input.
Signal: TypeAlias = Callable[[Any], Any]
