"""A constraint that is only nearly true: the projection pulls towards it, as hard as the data confirm it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from twinfold.model._unknown import Unknown
from twinfold.numerics import AbstractConstraint, AbstractSlack
from twinfold.numerics._constraint import has_inequalities
from twinfold.typing import ConstraintVector, Parameters, Scalar


def _as_size(size: Any) -> Any:
    if isinstance(size, Unknown):
        return size
    if not size > 0:
        raise ValueError(f"Slack(size={size}): give a positive number, or an Unknown to be estimated.")
    return float(size)


class Slack(AbstractSlack):
    """g(t, x, p) = level + s, for a constraint that rests on a parameter or a model that may be wrong.

    After each step the projection minimises |x - x~|^2 + (s / (size |dg/dx|))^2: the state moves by the fraction
    1 / (1 + size^2) of the way to the manifold. A small `size` is a constraint that is nearly exact, a large one none
    at all; as an `Unknown` it is estimated together with everything else, and the fit says how much slack the data
    ask for.

    **Arguments:** `constraint`, without `Bounds`; `size`, a positive number, or an `Unknown` (the default: positive,
    from 1, with a prior for `Loss(prior=...)`).

    **Example:**

    ```python
    energy = tw.Conserved(lambda x: 0.5 * x[1] ** 2 + 1.9 * x[0] ** 2)  # the stiffness is not known well
    physics = lambda x: jnp.stack([x[1], -4.0 * x[0]])
    tw.phrpinn(physics, tw.MLP(states=[0], adds_to=[1]), tw.Slack(energy))
    ```
    """

    constraint: AbstractConstraint
    size: Unknown | float = eqx.field(
        converter=_as_size, default_factory=lambda: Unknown(1.0, positive=True, spread=2.0)
    )

    def __check_init__(self):
        if has_inequalities(self.constraint):
            raise ValueError("Slack: it cannot contain Bounds; put them beside it: Stack([Slack(...), Bounds(...)]).")

    def residual(self, t: Scalar, x: PyTree, p: Parameters, level: ConstraintVector) -> ConstraintVector:
        return self.constraint.residual(t, x, p, level)

    def level(self, t: Scalar, x0: PyTree, p: Parameters) -> ConstraintVector:
        return self.constraint.level(t, x0, p)

    def slack(self, t: Scalar, x: PyTree, p: Parameters) -> ConstraintVector:
        count = jax.eval_shape(lambda: self.constraint.level(t, x, p))
        size = self.size.value() if isinstance(self.size, Unknown) else self.size
        return jnp.broadcast_to(jnp.asarray(size, count.dtype), count.shape)
