"""A constant inside a model: an array that training leaves alone."""

from typing import Any

import equinox as eqx


class Frozen(eqx.Module):
    """Marks `value`, an array or a tree of arrays, as not trainable.

    **Example:**

    ```python
    import equinox as eqx

    class Lookup(eqx.Module):
        gain: jax.Array  # trained
        table: tw.Frozen  # measured, not trained

        def __call__(self, x):
            return -self.gain * jnp.interp(x, *self.table.value)

    field = Lookup(jnp.array(1.0), tw.Frozen((jnp.array([0.0, 1.0]), jnp.array([0.0, 2.0]))))
    tw.Twin(field).simulate([1.0], jnp.linspace(0, 1, 11)).xs[-1]  # [0.135]
    ```
    """

    value: Any
