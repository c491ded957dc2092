"""Which projection suits a constraint: dense, sparse or matrix-free, by its size and by what couples to what."""

import importlib.util
import warnings

import jax
import jax.numpy as jnp

from twinfold.numerics._constraint import AbstractConstraint, check_constraint
from twinfold.numerics._project.base import AbstractProjection, Derivative, ProjectionProblem
from twinfold.numerics._project.krylov import Krylov
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.pattern import NotSparseError, find_pattern
from twinfold.numerics._project.sparse import Sparse
from twinfold.typing import ConstraintVector, Parameters, Scalar, State

# Up to this many states, dense matrices are the fastest; up to the others, they are still possible.
DENSE_STATES = 100
MAX_DENSE_STATES, MAX_DENSE_CONSTRAINTS = 2000, 500
# Up to this bandwidth of G G', the matrix-free preconditioner is (nearly) the matrix itself.
MAX_BANDWIDTH = 8


def select_projection(
    constraint: AbstractConstraint,
    x: State,
    *,
    t: Scalar = 0.0,
    p: Parameters | None = None,
    level: ConstraintVector | None = None,
    derivative: Derivative = "implicit",
) -> AbstractProjection:
    """`Newton` for few states, `Sparse` for many with few couplings, `Krylov` where neither can be.

    **Arguments:** a state `x` of the size that will be projected (its values do not matter), and where the
    constraint names them, `t`, `p` and `level`. **Returns** a projection to pass on; print it to see the choice.

    **Example:**

    ```python
    circle = tw.Constraint(lambda x: x @ x - 1)
    tw.select_projection(circle, jnp.ones(2))  # Newton(...)
    ```
    """
    parameters = {} if p is None else p
    m, n = check_constraint(constraint, t, x, parameters), x.shape[0]
    if n <= DENSE_STATES:
        return Newton(derivative=derivative)
    if importlib.util.find_spec("asdex") is None or importlib.util.find_spec("klujax") is None:
        warnings.warn(
            "without asdex and klujax the structure of the constraint is not known, and it is taken to couple each "
            "equation to the next alone: pip install 'twinfold[sparse]'",
            stacklevel=2,
        )
        return Krylov(derivative=derivative)
    given = jnp.zeros((m,), x.dtype) if level is None else level
    try:
        pattern = find_pattern(ProjectionProblem(constraint, t, x, parameters, given, None))
    except NotSparseError:
        if n <= MAX_DENSE_STATES and m <= MAX_DENSE_CONSTRAINTS:
            return Newton(derivative=derivative)
        return Krylov(bandwidth=0, derivative=derivative)
    if jax.default_backend() == "cpu" and jax.config.read("jax_enable_x64"):
        return Sparse(derivative=derivative)
    return Krylov(bandwidth=pattern.bandwidth if pattern.bandwidth <= MAX_BANDWIDTH else 0, derivative=derivative)
