"""Equivalent circuits of the cell, fitted at 25 degrees, alone and with a learned residual.

Resistances and time constants are tables over the state of charge. Training data at one temperature do not determine
activation energies: these keep the default of `circuit`. The residual adds what a network makes of the state of charge,
the pairs and the current to the rates of the pairs, and fades to the circuit outside of its training data; it does not
see the temperature, which enters through the physics alone.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.data import Dataset, Run
from twinfold.model import MLP, GreyBox, Twin, Unknown
from twinfold.numerics import RK4
from twinfold.systems import OpenCircuit, circuit
from twinfold.train import Fit, LevenbergMarquardt, Loss, fit
from twinfold.typing import Parameters, State
from twinfold_studies.drive.records import OUTPUTS, thinned, voltage_only, with_ambient

EVERY = 3  # of the rows of a training cycle, one a second
KNOTS = {
    "7 knots": (0.0, 0.05, 0.12, 0.25, 0.5, 0.75, 1.0),
    "10 knots": (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0),
}
GUESSES = {"R_0": 0.025, "R_1": 0.02, "tau_1": 10.0, "R_2": 0.03, "tau_2": 300.0}
BOUNDS = {"tau_1": (1.5, 150.0), "tau_2": (20.0, 6000.0)}  # s; explicit steps of the training data are up to 5 s long
THERMAL = {"C_th": 45.0, "R_th": 10.0}
METHOD, THERMAL_METHOD = LevenbergMarquardt(30), LevenbergMarquardt(15)
PRIOR = 1e-7  # V^2; see `Loss`
SUBSTEPS = 2


@dataclasses.dataclass(frozen=True)
class Design:
    """The settings of a model: RC pairs, knots of its tables, kinetics; width and weight penalty of its residual."""

    pairs: int = 2
    knots: str = "7 knots"
    kinetics: Any = "linear"
    width: int = 0
    l2: float = 0.0


class AtSample(eqx.Module):
    """The outputs with the current at the sample, which is the last input."""

    elements: Callable
    observe: Callable

    def __call__(self, x: State, w: Float[Array, "3"], p: Parameters) -> Float[Array, " k"]:
        return self.observe(x, self.elements(x, jnp.stack([w[2], w[1]]), p))


def build(
    ocv: OpenCircuit, design: Design, values: Mapping[str, Any] | None = None, residual: Any = None, **more: Any
) -> Twin:
    """The circuit with the three inputs of the runs; `values` replace the first guesses of the tables."""
    knots = KNOTS[design.knots]
    first = {"Q": 2.9} | {name: np.full(len(knots), v) for name, v in GUESSES.items() if int(name[-1]) <= design.pairs}
    unknown: dict[str, Any] = {}
    for name, guess in first.items():
        start = guess if values is None else np.asarray(values[name])
        bounds = BOUNDS.get(name)
        unknown[name] = Unknown(start, positive=bounds is None, bounds=bounds, spread=0.05 if name == "Q" else 1.0)
    unknown |= more.pop("unknown", {})
    plain = circuit(
        ocv,
        pairs=design.pairs,
        knots=knots,
        kinetics=design.kinetics,
        residual=residual,
        unknown=unknown,
        integrator=RK4(SUBSTEPS),
        **more,
    )
    assert plain.algebraic is not None
    assert plain.observe is not None
    return Twin(
        plain.field,
        algebraic=plain.algebraic,
        observe=AtSample(plain.algebraic, plain.observe),
        params=dict(plain.params),
        initial=plain.initial,
        integrator=plain.integrator,
    )


def fit_circuit(ocv: OpenCircuit, design: Design, runs: list[Run], seeds: int, steps: int | None = None) -> Fit:
    """The circuit fitted to the voltage of training cycles and, with a width, then again with a residual."""
    data = voltage_only(*(thinned(run, EVERY) for run in runs))
    method = METHOD if steps is None else LevenbergMarquardt(steps)
    loss = Loss(scale="off", prior=PRIOR, l2=design.l2)
    fitted = fit(build(ocv, design), data, method=method, loss=loss, progress=False)
    if not design.width:
        return fitted
    pairs = list(range(1, design.pairs + 1))
    residual = MLP(
        states=[0, *pairs], inputs=[0], adds_to=pairs, width=design.width, depth=1, zero_last=True, outside="fade"
    )
    twin = build(ocv, design, fitted.twin.parameters(), residual)
    return fit(twin, data, seeds=seeds, method=method, loss=loss, progress=False)


def fit_temperature(
    ocv: OpenCircuit, design: Design, fitted: Twin, runs: list[Run], ambient: float, steps: int | None = None
) -> Twin:
    """The same cell with its temperature as a state: heat capacity and cooling are fitted, all else is kept."""
    residual = fitted.field.residual if isinstance(fitted.field, GreyBox) else None
    values: dict[str, Any] = {name: np.asarray(value) for name, value in fitted.parameters().items()}
    thermal = {name: Unknown(guess, positive=True) for name, guess in THERMAL.items()} | {"dU_dT": Unknown(0.0)}
    heated = build(ocv, design, values, residual, unknown=values | thermal, temperature="output")
    data = Dataset(
        tuple(with_ambient(thinned(run, EVERY), ambient) for run in runs),
        OUTPUTS,
        ("mean current", "ambient", "current"),
    )
    method = THERMAL_METHOD if steps is None else LevenbergMarquardt(steps)
    return fit(heated, data, method=method, trainable="parameters", progress=False).twin
