"""Double precision, asked for by the program, never by importing the library."""

import jax


def enable_x64() -> None:
    """Switch JAX to float64; call it before the first array is made.

    **Example:**

    ```python
    tw.enable_x64()
    jnp.zeros(1).dtype  # float64
    ```
    """
    jax.config.update("jax_enable_x64", True)
