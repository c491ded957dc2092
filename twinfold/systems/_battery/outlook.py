"""What is asked of the twin of a cell at a moment: charge, health, power and energy, as functions of the twin.

All are differentiable in the parameters of the twin, so that `Posterior.spread_of` gives their standard deviations.
Power limits are those of a constant current that reaches a limit of the voltage at the end of the pulse; it is found by
bisection, with the derivative of the implicit function theorem.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Twin, simulate_unchecked
from twinfold.systems._battery.circuit import Elements
from twinfold.systems._battery.root import increasing_root
from twinfold.typing import Parameters, State

PULSE_STEPS = 20
ENERGY_STEPS = 400
BEYOND = 1.1  # of the charge that is left: how far a discharge is followed to find its end
Number = Float[Array, ""]


class Outlook(eqx.Module):
    """The state and the prospects of a cell; see `outlook`.

    **Attributes:** `soc`, the state of charge, 0 to 1; `capacity` [Ah]; `resistance` [ohm] of a pulse;
    `discharge_power` and `charge_power` [W] that it can give or take; `energy` [Wh] that is left.

    **Example:** see `outlook`, which returns it.

    ```python
    from dataclasses import fields

    [field.name for field in fields(tw.systems.Outlook)][:3]  # ["soc", "capacity", "resistance"]
    ```
    """

    soc: Number
    capacity: Number
    resistance: Number
    discharge_power: Number
    charge_power: Number
    energy: Number

    def values(self) -> Float[Array, "6"]:
        """All of them as a vector, in this order: what `Posterior.spread_of` needs."""
        return jnp.stack(
            [self.soc, self.capacity, self.resistance, self.discharge_power, self.charge_power, self.energy]
        )


def outlook(
    twin: Twin,
    x: State,
    *,
    celsius: float,
    current: float,
    voltages: tuple[float, float],
    max_current: float,
    seconds: float = 10.0,
    run: int | str | None = None,
) -> Outlook:
    """State of charge, health, power limits and energy left of a cell in a state x.

    **Arguments:**

    - `twin`, of `battery` or `circuit`; `x`, its state: the last one of a simulation, or an estimate.
    - `celsius`: the second input, of the cell or, where its temperature is a state, of the surroundings.
    - `current` [A], at which the energy that is left is counted, until the lower limit of the voltage.
    - `voltages` [V]: the lower and the upper limit.
    - `max_current` [A]: the limit of the data sheet, in both directions.
    - `seconds`: the length of the pulse of resistance and power limits.
    - `run`: whose parameters to use, where cells have their own.

    **Returns:** an `Outlook`. The capacity is the charge between full and empty in the twin (SoC 1 to 0), whatever
    the voltage is there; a cell that is already below the lower limit has no power and no energy left.

    **Raises:** `ValueError` if a limit is impossible.

    **Example:**

    ```python
    ocv = tw.systems.OpenCircuit([0.0, 0.1, 1.0], [2.8, 3.4, 4.2])
    cell = tw.systems.circuit(ocv, unknown={"Q": 2.0})
    half = tw.systems.outlook(
        cell, jnp.array([0.5, 0.0]), celsius=25.0, current=1.0, voltages=(3.0, 4.2), max_current=20.0
    )
    half.discharge_power  # 47 W; after a fit, posterior.spread_of(lambda twin: outlook(twin, ...).values())
    ```
    """
    low, high = voltages
    if not low < high:
        raise ValueError(f"outlook(voltages={voltages}): the lower limit must be below the upper one.")
    for name, value in (("current", current), ("max_current", max_current), ("seconds", seconds)):
        if not value > 0:
            raise ValueError(f"outlook({name}={value}): must be positive.")
    p = twin.parameters(run)
    x = jnp.asarray(x)
    soc, capacity = charge_left(twin, x, p)

    def after_pulse(i: Number) -> Number:
        ts = jnp.linspace(0.0, seconds, PULSE_STEPS + 1, dtype=x.dtype)
        return _voltages(twin, x, ts, i, celsius, p)[-1]

    zero = jnp.zeros_like(soc)
    # A small pulse, so that the resistance is that of the present state and not of a limit.
    small = jnp.full_like(soc, 0.01 * max_current)
    resistance = (after_pulse(-small) - after_pulse(small)) / (2 * small)
    drawn = increasing_root(lambda i: low - after_pulse(i), zero, 0.0, max_current)
    taken = increasing_root(lambda i: after_pulse(-i) - high, zero, 0.0, max_current)
    drawn, taken = jnp.clip(drawn, 0.0, max_current), jnp.clip(taken, 0.0, max_current)
    return Outlook(
        soc,
        capacity,
        resistance,
        drawn * after_pulse(drawn),
        taken * after_pulse(-taken),
        _energy(twin, x, soc * capacity, current, celsius, low, p),
    )


def charge_left(twin: Twin, x: State, p: Parameters) -> tuple[Number, Number]:
    """State of charge, and capacity in Ah."""
    if isinstance(twin.algebraic, Elements):
        return x[0], p["Q"]
    if "q_max" not in p:
        raise ValueError("outlook(twin=...): give a twin that `battery` or `circuit` built.")
    full = p["x_n"] * p["q_max"]
    return (x[2] + x[3]) / full, full / 3600


def _voltages(
    twin: Twin, x: State, ts: Float[Array, " T"], current: Number, celsius: float, p: Parameters
) -> Float[Array, " T"]:
    """The voltage along a constant current."""
    w = jnp.broadcast_to(jnp.stack([current, jnp.full_like(current, celsius)]), (ts.shape[0], 2))
    return simulate_unchecked(twin, x, ts, w, p).ys[:, 0]


def _energy(twin: Twin, x: State, charge: Number, current: float, celsius: float, low: float, p: Parameters) -> Number:
    """The energy in Wh of a discharge at constant current from x until the voltage falls to `low`."""
    return discharge(twin, x, charge, current, celsius, low, p)[1]


def discharge(
    twin: Twin, x: State, charge: Number, current: float, celsius: float, low: float, p: Parameters
) -> tuple[Number, Number]:
    """Charge in Ah and energy in Wh of a discharge at constant current from x until the voltage falls to `low`.

    `charge` is about what is left in Ah: the discharge is followed a tenth beyond it.
    """
    hours = BEYOND * jnp.maximum(charge, 0.0) / current
    ts = 3600 * hours * jnp.linspace(0.0, 1.0, ENERGY_STEPS + 1, dtype=x.dtype)
    v = _voltages(twin, x, ts, jnp.full_like(charge, current), celsius, p)
    before, after = v[:-1], v[1:]
    falling = (before > low) & (after <= low)
    share = jnp.where(falling, (before - low) / jnp.where(falling, before - after, 1.0), 1.0)
    alive = jnp.cumprod((before > low).astype(v.dtype))
    # The last part of a step ends at the limit.
    mean = jnp.where(falling, (before + low) / 2, (before + after) / 2)
    taken = current * alive * share * jnp.diff(ts) / 3600
    return jnp.sum(taken), jnp.sum(taken * mean)
