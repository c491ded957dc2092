"""The twin of a battery cell: hidden states, voltage observed, learned parts in its equilibrium potentials."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.data import Dataset
from twinfold.model import Implicit, Twin
from twinfold.numerics import AbstractIntegrator, Heun
from twinfold.systems._battery.equations import (
    EDGE,
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

LONGEST = 5.0  # seconds of a substep: the ohmic drop decays in 10 s (6 s in ProgPy's set)
HALVINGS = 40  # of the filling that explains a voltage at rest


def battery(
    parameters: str = "paper",
    *,
    unknown: Mapping[str, Any] | None = None,
    positive: Interaction | None = None,
    negative: Interaction | None = None,
    start: Literal["full", "rest"] = "full",
    fraction: Literal["surface", "total"] = "surface",
    kinetics: Literal["symmetric", "butler-volmer"] = "symmetric",
    integrator: AbstractIntegrator | None = None,
) -> Twin:
    """The electrochemical cell; inputs w = (current, > 0 on discharge; degrees Celsius), output the voltage.

    **Arguments:**

    - `parameters`: `"paper"` or `"progpy"`, the published set; `unknown`: what replaces its values, for instance
      `{"q_max": Unknown(13200.0, positive=True, per_group=True)}`.
    - `positive`, `negative`: V_INT of the electrodes, with or without learned parts. Voltage depends on their
      difference alone and x_p + x_n is constant, so that only one of them can be told from data: leave the other one
      without a network, or be ready to read only their sum.
    - `start`: how a run begins, in equilibrium and `"full"` or at the charge that explains its first sample
      (`"rest"`; a current that already flows there is taken to have met R_o only). `offset` adds to it.
    - `fraction`: see `Relations`; `"total"` is what the paper prints.
    - `kinetics`: `"symmetric"`, the overpotentials in closed form, or `"butler-volmer"` with transfer coefficients
      `alpha_p` and `alpha_n` (1/2 unless `unknown` says otherwise) among the parameters, solved for in every stage.
    - `integrator`: Heun in substeps of 5 s at most when left out, for samples up to 20 s apart.
    """
    values = published(parameters)
    if kinetics not in ("symmetric", "butler-volmer"):
        raise ValueError(f'kinetics={kinetics!r}: give "symmetric" or "butler-volmer".')
    if kinetics == "butler-volmer":
        values |= {"alpha_p": 0.5, "alpha_n": 0.5}
    for name in unknown or {}:
        if name not in values:
            raise ValueError(f"unknown: a battery has no parameter '{name}'; it has {', '.join(values)}.")
    if start not in ("full", "rest"):
        raise ValueError(f'start={start!r}: give "full" or "rest".')
    algebraic: Relations | Implicit = Relations(positive or Interaction(), negative or Interaction(), fraction)
    if kinetics == "butler-volmer":
        names = ("V_eta_p", "V_eta_n")
        algebraic = Implicit(butler_volmer, symmetric_overpotentials, names, gives=algebraic, size=0.1)
    return Twin(
        rates,
        algebraic=algebraic,
        observe=voltage,
        params=values | dict(unknown or {}),
        initial=_full if start == "full" else _rested,
        integrator=Heun(4) if integrator is None else integrator,
    )


def substeps(data: Dataset, longest: float = LONGEST) -> int:
    """How many substeps keep each below `longest` seconds on these data."""
    widest = max(float((run.ts[1:] - run.ts[:-1]).max()) for run in data.runs)
    return max(1, math.ceil(widest / longest - 1e-9))


def _full(p: Parameters) -> State:
    return charged(p["x_n"] + p["offset"], p)


def _rested(y: Float[Array, "1"], w: Float[Array, "2"], p: Parameters) -> State:
    """The state whose open-circuit voltage, less the drop over R_o, is the first sample.

    By the expansion alone: a learned part could flatten the curve, and the charge would hang on the last millivolt.
    """
    relations, drop = Relations.plain(), w[0] * p["R_o"]
    filled = _solve(lambda x_n: relations.open_circuit(x_n, w[1], p) - (y[0] + drop), y[0])
    return charged(filled + p["offset"], p, drop)


def _solve(excess: Callable[[Array], Array], like: Array) -> Array:
    """The root of a function that grows over (0, 1): bisection, and the derivative of the implicit function theorem."""

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) / 2
        above = excess(middle) > 0
        return jnp.where(above, ends[0], middle), jnp.where(above, middle, ends[1])

    ends = (jnp.full_like(like, EDGE), jnp.full_like(like, 1 - EDGE))
    lower, upper = jax.lax.fori_loop(0, HALVINGS, halve, ends)
    root = jax.lax.stop_gradient((lower + upper) / 2)
    slope = jax.lax.stop_gradient(jax.grad(excess)(root))
    # One Newton step: nothing is left to correct in the value, and its derivative is -excess' / slope.
    return root - excess(root) / slope
