"""Stabilisation: the field itself pulls the state back to the manifold, at a finite rate.

    dx/dt = f(t, x) - gamma G' (G G')^-1 (g(t, x) - level),    G = dg/dx

The constraint's residual then decays as exp(-gamma t) where it is not driven: no projection, no hard guarantee, and an
explicit step is stable only while gamma dt stays below its limit (2.8 for RK4). White et al. 2023.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from twinfold._core import call_by_name
from twinfold.numerics import AbstractConstraint
from twinfold.numerics._constraint import residual_and_jacobian
from twinfold.numerics._linalg.dense import factorise
from twinfold.typing import ConstraintVector, Parameters, Scalar, State


class Stabilised(eqx.Module):
    """A field with a pull towards the manifold of `constraint` (the same one as the twin's), of rate `gamma`.

    **Example:**

    ```python
    energy = tw.Conserved(lambda x: 0.5 * x @ x)
    field = tw.model.Stabilised(lambda x: jnp.stack([x[1], -x[0]]), energy, gamma=5.0)
    tw.Twin(field, constraint=energy).simulate([1.0, 0.0], jnp.linspace(0, 10, 51)).trajectory.violation.max()
    ```
    """

    field: Callable
    constraint: AbstractConstraint
    gamma: float = eqx.field(static=True, default=8.0)

    def __call__(self, t: Scalar, x: State, z: Any, w: Any, p: Parameters, level: ConstraintVector) -> State:
        free = call_by_name(self.field, "field", t=t, x=x, z=z, w=w, p=p, level=level)
        residual, jacobian = residual_and_jacobian(self.constraint, t, x, p, level)
        return free - self.gamma * factorise(jacobian).min_norm(residual)
