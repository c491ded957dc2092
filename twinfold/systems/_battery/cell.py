"""The twin of a battery cell: hidden states, measured voltage, learned parts in the equilibrium potentials."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Implicit, Twin
from twinfold.numerics import AbstractIntegrator, Heun
from twinfold.systems._battery.equations import (
    MIN_FRACTION,
    Interaction,
    Relations,
    butler_volmer,
    charged,
    rates,
    symmetric_overpotentials,
    voltage,
)
from twinfold.systems._battery.parameters import published
from twinfold.typing import Parameters, State

BISECTION_STEPS = 40


def battery(
    parameters: str = "paper",
    *,
    unknown: Mapping[str, Any] | None = None,
    positive: Interaction | None = None,
    negative: Interaction | None = None,
    initial: Literal["full", "rest"] = "full",
    fraction: Literal["surface", "total"] = "surface",
    kinetics: Literal["symmetric", "butler-volmer"] = "symmetric",
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
    - `integrator`: default `Heun(4)`. The fastest state decays within 10 s (6 s in `"progpy"`): choose substeps of at
      most 5 s.

    **Returns:** a `Twin` with seven states; `charged` builds one.

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
    algebraic: Relations | Implicit = Relations(positive or Interaction(), negative or Interaction(), fraction)
    if kinetics == "butler-volmer":
        values |= {"alpha_p": 0.5, "alpha_n": 0.5}
        names = ("V_eta_p", "V_eta_n")
        algebraic = Implicit(butler_volmer, symmetric_overpotentials, names, gives=algebraic, size=0.1)
    for name in unknown or {}:
        if name not in values:
            raise ValueError(f"unknown: a battery has no parameter '{name}'; it has {', '.join(values)}.")
    return Twin(
        rates,
        algebraic=algebraic,
        observe=voltage,
        params=values | dict(unknown or {}),
        initial=_full if initial == "full" else _rested,
        integrator=Heun(4) if integrator is None else integrator,
    )


def _full(p: Parameters) -> State:
    return charged(p["x_n"] + p["offset"], p)


def _rested(y: Float[Array, "1"], w: Float[Array, "2"], p: Parameters) -> State:
    """The state whose open-circuit voltage, minus the drop over R_o, is the first sample.

    Computed from the expansion alone: with a learned part that flattens the curve, the charge would depend on the last
    millivolt.
    """
    drop = w[0] * p["R_o"]
    x_n = _increasing_root(lambda x_n: Relations().open_circuit(x_n, w[1], p) - (y[0] + drop), y[0])
    return charged(x_n + p["offset"], p, drop)


def _increasing_root(function: Callable[[Array], Array], like: Array) -> Array:
    """The root of an increasing function on (0, 1), by bisection, with the derivative of the implicit function theorem.

    A voltage outside the range of the function must not fail: bisection then converges to an end of the interval.
    """

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        above = function(middle) > 0
        return jnp.where(above, ends[0], middle), jnp.where(above, middle, ends[1])

    ends = (jnp.full_like(like, MIN_FRACTION), jnp.full_like(like, 1 - MIN_FRACTION))
    lower, upper = jax.lax.fori_loop(0, BISECTION_STEPS, halve, ends)
    root = jax.lax.stop_gradient((lower + upper) / 2)
    slope = jax.lax.stop_gradient(jax.grad(function)(root))
    # One Newton step: the value is already converged, and the derivative of the result is -function' / slope.
    return root - function(root) / slope
