"""The capacity of a cell under a stated load: the charge from full down to a voltage."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Twin
from twinfold.systems._battery.outlook import charge_left, discharge
from twinfold.typing import Parameters


def capacity(
    twin: Twin,
    *,
    current: float,
    celsius: float,
    voltages: tuple[float, float],
    run: int | str | None = None,
    p: Parameters | None = None,
) -> Float[Array, ""]:
    """The charge in Ah that a full cell gives at a constant current until its voltage falls to a limit.

    It falls as a cell loses charge and as its resistance rises, and is differentiable in the parameters.

    **Arguments:** `twin`, of `battery`, `circuit` or `fitted_cell`; `current` [A]; `celsius`, the second input: the
    temperature of the cell or, where that is a state, of the surroundings; `voltages` [V]: the lower limit, and that of
    the full cell at rest; `run`, whose parameters to use, or `p`, the parameters themselves.

    **Raises:** `ValueError` if a limit or the current is impossible.

    **Example:**

    ```python
    cell = tw.systems.battery(initial="rest")
    tw.systems.capacity(cell, current=2.0, celsius=24.0, voltages=(2.7, 4.2))  # Ah
    ```
    """
    low, high = voltages
    if not low < high:
        raise ValueError(f"capacity(voltages={voltages}): the lower limit must be below the upper one.")
    if not current > 0:
        raise ValueError(f"capacity(current={current}): must be positive.")
    values = twin.parameters(run) if p is None else p
    x = twin.initial_state(0.0, jnp.array([high, celsius]), jnp.array([0.0, celsius]), values)
    soc, full = charge_left(twin, x, values)
    return discharge(twin, x, soc * full, current, celsius, low, values)[0]
