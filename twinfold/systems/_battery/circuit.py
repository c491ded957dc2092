"""The equivalent circuit of a cell: a voltage source U(SoC), a resistor and RC pairs in series, for any chemistry.

    dSoC/dt = -i / Q,    dv_k/dt = (R_k i - v_k) / tau_k,    V = U(SoC) - R_0 i - v_1 - ... - v_n

Each parameter may be a number or a table over the state of charge, and resistances depend on temperature through an
activation energy. With `kinetics="butler-volmer"` the first pair is the charge transfer, whose overpotential grows with
the logarithm of a large current: R_1 i is replaced by (2 R T / F) asinh(F R_1 i / (2 R T)).
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.model import GreyBox, Twin, Unknown
from twinfold.numerics import RK4, AbstractIntegrator
from twinfold.systems._battery.open_circuit import OpenCircuit, interpolate
from twinfold.systems._battery.parameters import FARADAY, GAS, KELVIN
from twinfold.systems._battery.root import increasing_root
from twinfold.systems._battery.temperature import (
    THERMAL,
    Number,
    Temperature,
    arrhenius,
    check_temperature,
    first_temperature,
    generated_heat,
    temperature_rate,
)
from twinfold.typing import Parameters, State

RESISTANCES = {"R_0": 0.03, "R_1": 0.02, "tau_1": 20.0, "R_2": 0.02, "tau_2": 500.0}  # ohm and s
ENERGY = 20e3  # J/mol: a factor of 2.1 between 25 and 0 degrees Celsius
OUTERMOST = 0.2  # the voltage at rest is inverted for states of charge within this distance of [0, 1]


class Elements(eqx.Module):
    """The source and the elements of the circuit at a state and input, by name; `heat` if temperature is a state."""

    open_circuit: OpenCircuit
    pairs: int = eqx.field(static=True)
    knots: tuple[float, ...] | None = eqx.field(static=True)
    kinetics: str = eqx.field(static=True)
    heated: bool = eqx.field(static=True)

    def __call__(self, x: State, w: Float[Array, " d"], p: Parameters) -> dict[str, Array]:
        i, celsius = w[0], x[-1] if self.heated else w[1]
        soc = x[0]
        out = {"U": self.open_circuit(soc), "V_0": i * self.resistance("0", soc, celsius, p)}
        for k in range(1, self.pairs + 1):
            drop = i * self.resistance(str(k), soc, celsius, p)
            if k == 1 and self.kinetics == "butler-volmer":
                scale = 2 * GAS * (celsius + KELVIN) / FARADAY
                drop = scale * jnp.arcsinh(drop / scale)
            out |= {f"V_{k}": drop, f"tau_{k}": self.at_charge(p[f"tau_{k}"], soc)}
        if self.heated:
            loss = out["V_0"] + jnp.sum(x[1 : 1 + self.pairs])
            out["heat"] = generated_heat(i, loss, self.at_charge(p["dU_dT"], soc), celsius)
        return out

    def resistance(self, name: str, soc: Number, celsius: Number, p: Parameters) -> Number:
        return self.at_charge(p[f"R_{name}"], soc) * arrhenius(p[f"E_{name}"], celsius)

    def at_charge(self, value: Float[Array, "..."], soc: Number) -> Number:
        """A parameter at a state of charge; constant beyond the outer knots."""
        if value.ndim == 0:
            return value
        knots = np.linspace(0, 1, value.shape[0]) if self.knots is None else np.array(self.knots)
        return interpolate(soc, jnp.asarray(knots, soc.dtype), value)


def circuit(
    open_circuit: OpenCircuit,
    *,
    pairs: int = 1,
    unknown: Mapping[str, Any] | None = None,
    knots: Any = None,
    kinetics: Literal["linear", "butler-volmer"] = "linear",
    temperature: Temperature = "input",
    initial: Literal["full", "rest"] = "full",
    residual: Callable | None = None,
    integrator: AbstractIntegrator | None = None,
) -> Twin:
    """An equivalent circuit of a cell: inputs w = (current, > 0 on discharge; degrees Celsius), output the voltage.

    **Arguments:**

    - `open_circuit`: the voltage at rest.
    - `pairs`: how many RC pairs, 0 to 2. The state is (SoC, v_1, ..., v_pairs).
    - `unknown`: values that replace the first guesses, numbers or `Unknown`s: `Q` [Ah], `R_0`, `R_1`, `R_2` [ohm, at 25
      degrees], `tau_1`, `tau_2` [s], the activation energies `E_0`, `E_1`, `E_2` [J/mol] of the resistances, and
      `offset`, which is added to the state of charge at the start of a run. A vector of a resistance, of `tau_1`,
      `tau_2` or `dU_dT` is a table over the state of charge, at `knots` (evenly spaced from 0 to 1 when left out).
    - `kinetics`: `"linear"`, or `"butler-volmer"`, in which the first pair is the charge transfer:
      (2 R T / F) asinh(F R_1 i / (2 R T)) in place of R_1 i.
    - `temperature`: as for `battery`: `"input"`, measured; `"state"`, the last state, predicted from the second input,
      which is then that of the surroundings; `"output"`, also the second output. Parameters `C_th`, `R_th`, `dU_dT`.
    - `initial`: a run starts at rest and `"full"`, or at the charge that explains its first sample, `"rest"`.
    - `residual`: a learned contribution to dx/dt, for example `MLP(states=[0, 1], inputs=[0], adds_to=[1])`.
    - `integrator`: default `RK4()`. Choose substeps below twice the shortest time constant.

    **Returns:** a `Twin`.

    **Raises:** `ValueError` for an unknown parameter or option, or a table that does not fit its knots.

    **Example:**

    ```python
    ocv = tw.systems.OpenCircuit([0.0, 0.1, 1.0], [2.8, 3.4, 4.2])
    cell = tw.systems.circuit(ocv, pairs=1, unknown={"Q": 2.0, "R_0": tw.Unknown(0.05, positive=True)})
    ts = np.arange(0.0, 61.0, 1.0)
    load = np.stack([np.full_like(ts, 2.0), np.full_like(ts, 25.0)], axis=1)
    cell.simulate([1.0, 0.0], ts, load).ys[0, 0]  # 4.1 V: 4.2 V less the drop over R_0
    ```
    """
    if pairs not in (0, 1, 2):
        raise ValueError(f"circuit(pairs={pairs}): give 0, 1 or 2 RC pairs.")
    if kinetics not in ("linear", "butler-volmer"):
        raise ValueError(f'circuit(kinetics={kinetics!r}): give "linear" or "butler-volmer".')
    if kinetics == "butler-volmer" and not pairs:
        raise ValueError('circuit(kinetics="butler-volmer"): the charge transfer is the first pair; give pairs=1 or 2.')
    if initial not in ("full", "rest"):
        raise ValueError(f'circuit(initial={initial!r}): give "full" or "rest".')
    check_temperature(temperature)
    heated = temperature != "input"
    values: dict[str, Any] = {"Q": 1.0 if open_circuit.capacity is None else open_circuit.capacity, "offset": 0.0}
    for name, value in RESISTANCES.items():
        if int(name[-1]) <= pairs:
            values[name] = value
    values |= {f"E_{k}": ENERGY for k in range(pairs + 1)}
    if heated:
        values |= THERMAL
    for name in unknown or {}:
        if name not in values:
            raise ValueError(f"circuit(unknown=...): it has no parameter '{name}'; it has {', '.join(values)}.")
    values |= dict(unknown or {})
    at = None if knots is None else tuple(float(each) for each in knots)
    _check_tables(values, at)
    elements = Elements(open_circuit, pairs, at, kinetics, heated)
    return Twin(
        Rates(pairs, heated) if residual is None else GreyBox(Rates(pairs, heated), residual),
        algebraic=elements,
        observe=Terminal(pairs, temperature == "output"),
        params=values,
        initial=Start(elements, initial == "rest"),
        integrator=RK4() if integrator is None else integrator,
    )


class Rates(eqx.Module):
    """dx/dt of the state of charge, the pairs and, if it is a state, the temperature."""

    pairs: int = eqx.field(static=True)
    heated: bool = eqx.field(static=True)

    def __call__(self, x: State, z: dict[str, Array], w: Float[Array, " d"], p: Parameters) -> State:
        pairs = [(z[f"V_{k}"] - x[k]) / z[f"tau_{k}"] for k in range(1, self.pairs + 1)]
        heating = [temperature_rate(z["heat"], x[-1], w[1], p)] if self.heated else []
        return jnp.stack([-w[0] / (3600 * p["Q"]), *pairs, *heating])


class Terminal(eqx.Module):
    """The voltage at the terminals and, if it is measured, the temperature."""

    pairs: int = eqx.field(static=True)
    temperature: bool = eqx.field(static=True)

    def __call__(self, x: State, z: dict[str, Array]) -> Float[Array, " k"]:
        voltage = z["U"] - z["V_0"] - jnp.sum(x[1 : 1 + self.pairs])
        return jnp.stack([voltage, x[-1]] if self.temperature else [voltage])


class Start(eqx.Module):
    """The state at the first sample of a run: at rest, full, or at the charge that explains the first voltage."""

    elements: Elements
    rest: bool = eqx.field(static=True)

    def __call__(self, y: Float[Array, " k"], w: Float[Array, " d"], p: Parameters) -> State:
        celsius = first_temperature(y, w) if self.elements.heated else w[1]
        soc = jnp.ones_like(w[0])
        if self.rest:

            def excess(soc: Number) -> Number:
                return self.elements.open_circuit(soc) - w[0] * self.elements.resistance("0", soc, celsius, p) - y[0]

            soc = increasing_root(excess, y[0], -OUTERMOST, 1 + OUTERMOST)
        zero = jnp.zeros_like(soc)
        heat = [celsius] if self.elements.heated else []
        return jnp.stack([soc + p["offset"], *[zero] * self.elements.pairs, *heat])


def _check_tables(values: Mapping[str, Any], knots: tuple[float, ...] | None) -> None:
    if knots is not None and (len(knots) < 2 or not (np.diff(knots) > 0).all()):
        raise ValueError(f"circuit(knots={list(knots)}): give at least two increasing states of charge.")
    for name, value in values.items():
        shape = tuple(np.shape(value.guess.value if isinstance(value, Unknown) else value))
        tabular = name.startswith(("R_", "tau_", "dU_")) and name != "R_th"
        if shape and not tabular:
            raise ValueError(f"circuit(unknown=...): '{name}' is one number, not a table over the state of charge.")
        if shape and (len(shape) > 1 or min(shape) < 2 or (knots is not None and shape != (len(knots),))):
            wanted = "at least two values" if knots is None else f"{len(knots)} values, one for each of the knots"
            raise ValueError(f"circuit(unknown=...): the table '{name}' has the shape {shape}; give {wanted}.")
