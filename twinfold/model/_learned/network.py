"""A plain multilayer perceptron that receives its weights late; use it anywhere inside a field or observation."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from twinfold.model._learned.base import AbstractLearned, Context
from twinfold.model._learned.structure import (
    Bounds,
    as_bounds,
    as_structure,
    bounded,
    check_sizes,
    check_structure,
    is_monotone,
    structured,
)

NEARLY_ZERO = 1e-3  # of the drawn weights: the absolute value of a weight has no derivative at zero


class Network(AbstractLearned):
    """y = W_L a(... a(W_1 u + b_1) ...) + b_L with `depth` hidden layers of `width`.

    `zero_last=True` starts the last layer at zero, so that the untrained network contributes nothing (next to nothing,
    where its structure excludes zero).

    Whatever the weights are, y has the `structure`: one or several of `"odd"`, `"even"`, `"increasing"`, `"decreasing"`
    (in each input), `"positive"` and `"dissipative"` (y_i u_i >= 0: what resists a rate; further inputs may follow the
    rates); and it is inside its `bounds`, a lower and an upper one.

    **Example:**

    ```python
    law = tw.Network(1, 1, width=8, depth=1)
    twin = tw.Twin(lambda x, p: -x, observe=lambda x: x)  # or anywhere inside a module of your own:
    tw.Friction(rates=lambda q, v: v, law=law)
    tw.Network(1, 1, structure=["odd", "increasing"], bounds=(-2.0, 2.0))
    ```
    """

    in_size: int = eqx.field(static=True)
    out_size: int = eqx.field(static=True)
    width: int = eqx.field(static=True, default=32)
    depth: int = eqx.field(static=True, default=2)
    activation: Callable = eqx.field(static=True, default=jnp.tanh, kw_only=True)
    zero_last: bool = eqx.field(static=True, default=False, kw_only=True)
    structure: tuple[str, ...] = eqx.field(static=True, default=(), converter=as_structure, kw_only=True)
    bounds: Bounds | None = eqx.field(static=True, default=None, converter=as_bounds, kw_only=True)
    weights: eqx.nn.MLP | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        for name in ("in_size", "out_size", "width", "depth"):
            if getattr(self, name) < 1:
                raise ValueError(f"Network({name}={getattr(self, name)}): must be at least 1.")
        check_structure("Network", self.structure, self.bounds, self.activation)
        check_sizes("Network", self.structure, self.in_size, self.out_size)

    def check(self, context: Context) -> None:
        del context

    def initialise(self, key: PRNGKeyArray, context: Context) -> "Network":
        weights = eqx.nn.MLP(
            self.in_size,
            self.out_size,
            self.width,
            self.depth,
            activation=self.activation,
            dtype=context.dtype,
            key=key,
        )
        if self.zero_last:
            weights = eqx.tree_at(lambda weights: weights.layers[-1], weights, self._first(weights.layers[-1]))
        return eqx.tree_at(lambda n: n.weights, self, weights, is_leaf=lambda node: node is None)

    def _first(self, layer: eqx.nn.Linear) -> eqx.nn.Linear:
        """A last layer whose output is zero, or nearly so where the derivative at zero would vanish."""
        zeros = jax.tree.map(jnp.zeros_like, layer)
        if not is_monotone(self.structure):
            return zeros
        return eqx.tree_at(lambda layer: layer.weight, zeros, NEARLY_ZERO * layer.weight)

    def plain(self, u: Float[Array, " in"]) -> Float[Array, " out"]:
        """The perceptron without its structure, but with weights that are not negative if that is monotone."""
        if self.weights is None:
            raise ValueError("The network has no weights yet: call `twin.initialise(key, ...)` or `fit` first.")
        if not is_monotone(self.structure):
            return self.weights(u)
        matrices = [jnp.abs(layer.weight) for layer in self.weights.layers]
        return eqx.tree_at(lambda mlp: [layer.weight for layer in mlp.layers], self.weights, matrices)(u)

    def __call__(self, u: Float[Array, " in"]) -> Float[Array, " out"]:
        out = structured(self.plain, u, self.structure)
        return bounded(out, self.structure, self.bounds)


def parameter_count(in_size: int, out_size: int, width: int, depth: int) -> int:
    """Number of weights and biases of such a network."""
    return (in_size + 1) * width + (depth - 1) * (width + 1) * width + (width + 1) * out_size


def matched_width(count: int, in_size: int, out_size: int, depth: int) -> int:
    """The width whose parameter count is nearest to `count`, for fair comparisons.

    **Example:**

    ```python
    tw.model.matched_width(300, in_size=2, out_size=1, depth=2)  # 15
    ```
    """
    width = 1
    while parameter_count(in_size, out_size, width, depth) < count:
        width += 1
    below, above = (parameter_count(in_size, out_size, k, depth) for k in (max(width - 1, 1), width))
    return max(width - 1, 1) if abs(below - count) < abs(above - count) else width
