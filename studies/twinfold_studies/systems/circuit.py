"""Electric circuits by modified nodal analysis: a DAE of index 1 whose algebraic equations have no closed form.

    x = voltages of the capacitors,    z = (voltages of the nodes; currents of the sources; currents of the capacitors)
    0 = sum of the currents out of each node,    0 = v_a - v_b - u(t) of each source,    0 = v_a - v_b - x of each C
    C dx/dt = i

In V, mA, kOhm, uF and ms all numbers are of order one. The law of a diode may be learned inside the algebraic
equations, from measured voltages and currents of other parts.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.model import Implicit, Network, Twin
from twinfold.numerics import RK4, AbstractIntegrator
from twinfold.typing import Parameters, Scalar, State

GROUND = "0"
PERIOD = 20.0  # ms: mains
# A signal diode; above `I_k` the current grows with half the exponent (high injection).
RECTIFIER = {"R_s": 0.05, "R": 2.0, "C": 10.0, "I_s": 4e-6, "V_T": 0.0475, "I_k": 20.0}

Voltage: TypeAlias = Float[Array, ""]


class Resistor(eqx.Module):
    """A resistor; `value`: the name of its resistance in p."""

    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    value: str = eqx.field(static=True)


class Capacitor(eqx.Module):
    """A capacitor, whose voltage is a state; `value`: the name of its capacitance in p."""

    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    value: str = eqx.field(static=True)


class Source(eqx.Module):
    """A voltage source; `voltage`: a function of t, w and p."""

    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    voltage: Callable


class Diode(eqx.Module):
    """A diode; `law`: the current from a to b as a function of the voltage between them and p."""

    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    law: Callable


Part: TypeAlias = Resistor | Capacitor | Source | Diode


class Circuit(eqx.Module):
    """Parts between named nodes ("0" is ground); a call evaluates the residual h(t, x, z, w, p)."""

    parts: tuple[Part, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes except ground, in the order of the parts."""
        names = dict.fromkeys(node for part in self.parts for node in (part.a, part.b))
        return tuple(node for node in names if node != GROUND)

    @property
    def branches(self) -> tuple[int, ...]:
        """Indices of the parts whose current is a variable: sources, then capacitors."""
        return tuple(
            index for kind in (Source, Capacitor) for index, part in enumerate(self.parts) if isinstance(part, kind)
        )

    @property
    def capacitances(self) -> tuple[str, ...]:
        """The names of the capacitances, in the order of the states."""
        return tuple(part.value for part in self.parts if isinstance(part, Capacitor))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the algebraic variables: `v(node)`, `i(Source a-b)`, `i(Capacitor a-b)`, numbered if they repeat."""
        names = [f"v({node})" for node in self.nodes]
        for part in (self.parts[index] for index in self.branches):
            name, number = f"i({type(part).__name__} {part.a}-{part.b})", 2
            while name in names:
                name, number = f"i({type(part).__name__} {part.a}-{part.b} #{number})", number + 1
            names.append(name)
        return tuple(names)

    def __call__(self, t: Scalar, x: State, z: Float[Array, " k"], w: Any, p: Parameters) -> Float[Array, " k"]:
        voltage = {GROUND: jnp.zeros_like(z[0])} | {node: z[index] for index, node in enumerate(self.nodes)}
        leaving = {node: jnp.zeros_like(z[0]) for node in voltage}
        branch_currents = {part: z[len(self.nodes) + index] for index, part in enumerate(self.branches)}
        for index, part in enumerate(self.parts):
            across = voltage[part.a] - voltage[part.b]
            match part:
                case Resistor():
                    current = across / p[part.value]
                case Diode():
                    current = part.law(across, p)
                case _:
                    current = branch_currents[index]
            leaving[part.a] += current
            leaving[part.b] -= current
        voltages, states = [], iter(x)
        for part in (self.parts[index] for index in self.branches):
            imposed = part.voltage(t, w, p) if isinstance(part, Source) else next(states)
            voltages.append(voltage[part.a] - voltage[part.b] - imposed)
        return jnp.stack([leaving[node] for node in self.nodes] + voltages)


class Charging(eqx.Module):
    """dx/dt = i / C, with the currents of the capacitors at the end of z.

    It does not hold the parts, so that learned parts are in the twin once.
    """

    capacitances: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, z: Float[Array, " k"], p: Parameters) -> State:
        return z[z.shape[0] - len(self.capacitances) :] / jnp.stack([p[name] for name in self.capacitances])


def circuit_twin(
    parts: Sequence[Part],
    params: Mapping[str, Any],
    observe: Callable | None = None,
    integrator: AbstractIntegrator | None = None,
) -> Twin:
    """The twin of a circuit.

    **Arguments:** `parts`; `params`; `observe`, a function of z as a dictionary (keys `v(node)`, `i(Source a-b)`);
    `integrator`.
    """
    circuit = Circuit(tuple(parts))
    names = circuit.names

    def outputs(z: Float[Array, " k"]) -> Float[Array, " outputs"]:
        assert observe is not None
        return observe(dict(zip(names, z, strict=True)))

    return Twin(
        Charging(circuit.capacitances),
        algebraic=Implicit(circuit, 0.0, names),
        params=params,
        observe=None if observe is None else outputs,
        integrator=RK4() if integrator is None else integrator,
    )


def shockley(v: Voltage, p: Parameters) -> Voltage:
    """i = I_s (exp(v / V_T) - 1), with V_T the thermal voltage times the ideality."""
    return p["I_s"] * jnp.expm1(v / p["V_T"])


def high_injection(v: Voltage, p: Parameters) -> Voltage:
    """Shockley's law i with a knee, i / sqrt(1 + i / I_k): the true diode."""
    i = shockley(v, p)
    return i / jnp.sqrt(1 + jnp.maximum(i, 0) / p["I_k"])


class LearnedLaw(eqx.Module):
    """Shockley's law times exp(network(v)), which has the sign of v for any network."""

    network: Network

    def __call__(self, v: Voltage, p: Parameters) -> Voltage:
        # The diode starts to conduct between 0.3 and 0.9 V. Outside the network is constant: h keeps its one solution.
        scaled = jnp.clip(5 * (v - 0.6), -1.5, 1.5)
        return shockley(v, p) * jnp.exp(self.network(scaled[None])[0])


def rectifier(
    law: Callable = high_injection,
    params: Mapping[str, Any] | None = None,
    integrator: AbstractIntegrator | None = None,
) -> Twin:
    """A half-wave rectifier with smoothing: source, resistor, diode, capacitor and load.

    The input is the amplitude [V] of the source, at 50 Hz; outputs are the load voltage and the source current.
    """
    parts = (
        Source("in", GROUND, lambda t, w, p: w[0] * jnp.sin(2 * jnp.pi / PERIOD * t)),
        Resistor("in", "anode", "R_s"),
        Diode("anode", "out", law),
        Capacitor("out", GROUND, "C"),
        Resistor("out", GROUND, "R"),
    )

    def measured(z: Mapping[str, Array]) -> Float[Array, "2"]:
        return jnp.stack([z["v(out)"], -z["i(Source in-0)"]])

    return circuit_twin(parts, RECTIFIER | dict(params or {}), measured, integrator)
