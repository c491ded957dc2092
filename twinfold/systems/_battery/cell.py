"""The twin of a battery cell: hidden states, measured voltage, learned parts in the equilibrium potentials."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Implicit, Twin
from twinfold.numerics import AbstractIntegrator, Heun
from twinfold.systems._battery.equations import (
    MIN_FRACTION,
    HeatedRelations,
    Interaction,
    Relations,
    at_temperature,
    butler_volmer,
    charged,
    heated_rates,
    rates,
    symmetric_overpotentials,
    voltage,
    voltage_and_temperature,
)
from twinfold.systems._battery.parameters import ACTIVATION, published
from twinfold.systems._battery.root import increasing_root
from twinfold.systems._battery.temperature import (
    THERMAL,
    Temperature,
    check_temperature,
    first_temperature,
    inner_inputs,
)
from twinfold.typing import Parameters, State


def battery(
    parameters: str = "paper",
    *,
    unknown: Mapping[str, Any] | None = None,
    positive: Interaction | None = None,
    negative: Interaction | None = None,
    initial: Literal["full", "rest"] = "full",
    fraction: Literal["surface", "total"] = "surface",
    kinetics: Literal["symmetric", "butler-volmer"] = "symmetric",
    temperature: Temperature = "input",
    arrhenius: bool = False,
    integrator: AbstractIntegrator | None = None,
) -> Twin:
    """The electrochemical battery cell: inputs w = (current, > 0 on discharge; degrees Celsius), output the voltage.

    **Arguments:**

    - `parameters`: the published set, `"paper"` or `"progpy"`.
    - `unknown`: values that replace those of the set, for example
      `{"q_max": Unknown(13200.0, positive=True, per_group=True)}`.
    - `positive`, `negative`: V_INT of the electrodes, with or without a network. The voltage depends on the difference
      of the electrode potentials and x_p + x_n is constant, so only one of them can be identified: give a network to
      one electrode, or interpret only their sum.
    - `initial`: a run starts in equilibrium, `"full"`, or at the charge that explains its first sample, `"rest"` (a
      current at that sample contributes a drop over R_o only). The parameter `offset` is added to the mole fraction.
    - `fraction`: see `Relations`; `"total"` is the one printed in the paper.
    - `kinetics`: `"symmetric"`, overpotentials in closed form, or `"butler-volmer"`, solved in every stage, with the
      transfer coefficients `alpha_p` and `alpha_n` (1/2 unless given in `unknown`) among the parameters.
    - `temperature`: `"input"`, the second input is the measured temperature of the cell; `"state"`, it is that of the
      surroundings, and the temperature of the cell is an eighth state, predicted by a lumped thermal model,

          C_th dT/dt = i (U - V) - i T dU/dT - (T - T_ambient) / R_th,

      from the ambient on; `"output"`, it is also the second output, and a run starts at its first sample. dU/dT is
      that of the model's own potentials plus `dU_dT`. The parameters are `C_th` [J/K], `R_th` [K/W] and `dU_dT` [V/K].
    - `arrhenius`: resistance, diffusion and reaction rates depend on temperature through the activation energies
      `E_R`, `E_D` and `E_k` [J/mol], and have their plain values at 25 degrees.
    - `integrator`: default `Heun(4)`. The fastest state decays within 10 s (6 s in `"progpy"`): choose substeps of at
      most 5 s.

    **Returns:** a `Twin` with seven states, which `charged` builds, or eight: with the temperature, in degrees Celsius.

    **Raises:** `ValueError` for an unknown parameter set, parameter or option.

    **Example:**

    ```python
    # Ten minutes of discharge at 2 A and 25 degrees.
    cell = tw.systems.battery()
    ts = np.arange(0.0, 601.0, 20.0)
    load = np.stack([np.full_like(ts, 2.0), np.full_like(ts, 25.0)], axis=1)
    full = tw.systems.charged(jnp.array(0.6), cell.parameters())
    voltage = cell.simulate(full, ts, load).ys[:, 0]  # falls from 4.19 V to 3.79 V
    data = tw.Dataset.from_arrays(ts, [voltage], inputs=[load])  # a run to fit another cell to
    ```
    """
    values = published(parameters)
    if kinetics not in ("symmetric", "butler-volmer"):
        raise ValueError(f'kinetics={kinetics!r}: give "symmetric" or "butler-volmer".')
    if initial not in ("full", "rest"):
        raise ValueError(f'initial={initial!r}: give "full" or "rest".')
    check_temperature(temperature)
    heated = temperature != "input"
    plain = Relations(positive or Interaction(), negative or Interaction(), fraction)
    algebraic: Relations | HeatedRelations | Implicit = HeatedRelations(plain) if heated else plain
    if heated:
        values |= THERMAL
    if arrhenius:
        values |= ACTIVATION
    if kinetics == "butler-volmer":
        values |= {"alpha_p": 0.5, "alpha_n": 0.5}
        names = ("V_eta_p", "V_eta_n")
        equations = (_heated_kinetics, _heated_guess) if heated else (butler_volmer, symmetric_overpotentials)
        algebraic = Implicit(*equations, names, gives=algebraic, size=0.1)
    for name in unknown or {}:
        if name not in values:
            raise ValueError(f"unknown: a battery has no parameter '{name}'; it has {', '.join(values)}.")
    return Twin(
        heated_rates if heated else rates,
        algebraic=algebraic,
        observe=voltage_and_temperature if temperature == "output" else voltage,
        params=values | dict(unknown or {}),
        initial=STARTS[initial, heated],
        integrator=Heun(4) if integrator is None else integrator,
    )


def _full(p: Parameters) -> State:
    return charged(p["x_n"] + p["offset"], p)


def _rested(y: Float[Array, " k"], w: Float[Array, "2"], p: Parameters) -> State:
    """The state whose open-circuit voltage, minus the drop over R_o, is the first sample.

    Computed from the expansion alone: with a learned part that flattens the curve, the charge would depend on the last
    millivolt.
    """
    drop = w[0] * at_temperature(p, w[1])["R_o"]
    x_n = increasing_root(
        lambda x_n: Relations().open_circuit(x_n, w[1], p) - (y[0] + drop), y[0], MIN_FRACTION, 1 - MIN_FRACTION
    )
    return charged(x_n + p["offset"], p, drop)


def _full_heated(y: Float[Array, " k"], w: Float[Array, "2"], p: Parameters) -> State:
    return jnp.append(_full(p), first_temperature(y, w))


def _rested_heated(y: Float[Array, " k"], w: Float[Array, "2"], p: Parameters) -> State:
    celsius = first_temperature(y, w)
    return jnp.append(_rested(y, jnp.stack([w[0], celsius]), p), celsius)


STARTS: dict[tuple[str, bool], Callable] = {
    ("full", False): _full,
    ("full", True): _full_heated,
    ("rest", False): _rested,
    ("rest", True): _rested_heated,
}


def _heated_kinetics(x: State, z: Float[Array, "2"], w: Float[Array, "2"], p: Parameters) -> Float[Array, "2"]:
    return butler_volmer(x[:-1], z, inner_inputs(x, w), p)


def _heated_guess(x: State, w: Float[Array, "2"], p: Parameters) -> Float[Array, "2"]:
    return symmetric_overpotentials(x[:-1], inner_inputs(x, w), p)
