"""Electric circuits by modified nodal analysis: a DAE of index 1 whose algebraic equations have no closed form.

    x = voltages of the capacitors,    z = (voltages of the nodes; currents of the sources; currents of the capacitors)
    0 = sum of the currents out of each node,    0 = v_a - v_b - u(t) of each source,    0 = v_a - v_b - x of each C
    C dx/dt = i

In volt, milliampere, kiloohm, microfarad and millisecond all numbers are of size one. A diode's law may be learned: it
is inside the algebraic equations, and nothing but voltages and currents elsewhere is measured.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import call_by_name
from twinfold.model import Implicit, Network, Twin
from twinfold.numerics import RK4, AbstractIntegrator
from twinfold.typing import Parameters, Scalar, State

GROUND = "0"
PERIOD = 20.0  # ms: mains
# A signal diode; `I_k`: the current from which on it grows with half the exponent only (high injection).
RECTIFIER = {"R_s": 0.05, "R": 2.0, "C": 10.0, "I_s": 4e-6, "V_T": 0.0475, "I_k": 20.0}

Voltage: TypeAlias = Float[Array, ""]


class Resistor(eqx.Module):
    """`value`: the name of its resistance among the parameters."""

    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    value: str = eqx.field(static=True)


class Capacitor(eqx.Module):
    """`value`: the name of its capacitance among the parameters; its voltage is a state."""

    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    value: str = eqx.field(static=True)


class Source(eqx.Module):
    """`voltage`: a function of what it names of t, w, p."""

    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    voltage: Callable


class Diode(eqx.Module):
    """`law`: the current from a to b as a function of the voltage between them and p."""

    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    law: Callable


Part: TypeAlias = Resistor | Capacitor | Source | Diode


class Circuit(eqx.Module):
    """A list of parts between named nodes, of which "0" is ground; called, it is h(t, x, z, w, p)."""

    parts: tuple[Part, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All but ground, in the order in which the parts name them."""
        named = dict.fromkeys(node for part in self.parts for node in (part.a, part.b))
        return tuple(node for node in named if node != GROUND)

    @property
    def branches(self) -> tuple[int, ...]:
        """Places of the parts whose current is a variable: sources, then capacitors."""
        return tuple(
            place for kind in (Source, Capacitor) for place, part in enumerate(self.parts) if isinstance(part, kind)
        )

    @property
    def capacitances(self) -> tuple[str, ...]:
        """The name of each capacitor's value, in the order of the states."""
        return tuple(part.value for part in self.parts if isinstance(part, Capacitor))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the algebraic variables: `v(node)`, `i(Source a-b)`, `i(Capacitor a-b)`, numbered where one repeats."""
        found = [f"v({node})" for node in self.nodes]
        for part in (self.parts[place] for place in self.branches):
            name, number = f"i({type(part).__name__} {part.a}-{part.b})", 2
            while name in found:
                name, number = f"i({type(part).__name__} {part.a}-{part.b} #{number})", number + 1
            found.append(name)
        return tuple(found)

    def __call__(self, t: Scalar, x: State, z: Float[Array, " k"], w: Any, p: Parameters) -> Float[Array, " k"]:
        voltage = {GROUND: jnp.zeros_like(z[0])} | {node: z[index] for index, node in enumerate(self.nodes)}
        leaving = {node: jnp.zeros_like(z[0]) for node in voltage}
        carried = {place: z[len(self.nodes) + index] for index, place in enumerate(self.branches)}
        for place, part in enumerate(self.parts):
            across = voltage[part.a] - voltage[part.b]
            match part:
                case Resistor():
                    current = across / p[part.value]
                case Diode():
                    current = part.law(across, p)
                case _:
                    current = carried[place]
            leaving[part.a] += current
            leaving[part.b] -= current
        forced, states = [], iter(x)
        for part in (self.parts[place] for place in self.branches):
            wanted = call_by_name(part.voltage, "voltage", t=t, w=w, p=p) if isinstance(part, Source) else next(states)
            forced.append(voltage[part.a] - voltage[part.b] - wanted)
        return jnp.stack([leaving[node] for node in self.nodes] + forced)


class Charging(eqx.Module):
    """dx/dt = i / C: the currents of the capacitors are the last of z. It holds no part, each is in the twin once."""

    capacitances: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, z: Float[Array, " k"], p: Parameters) -> State:
        return z[z.shape[0] - len(self.capacitances) :] / jnp.stack([p[name] for name in self.capacitances])


def circuit_twin(
    parts: Sequence[Part],
    params: Mapping[str, Any],
    observe: Callable | None = None,
    integrator: AbstractIntegrator | None = None,
) -> Twin:
    """The twin of a circuit; `observe` sees z as a dictionary by the circuit's names, `v(node)` and `i(Source a-b)`."""
    circuit = Circuit(tuple(parts))
    names = circuit.names

    def seen(t: Scalar, x: State, z: Float[Array, " k"], w: Any, p: Parameters) -> Any:
        by_name = {name: z[index] for index, name in enumerate(names)}
        assert observe is not None
        return call_by_name(observe, "observe", t=t, x=x, z=by_name, w=w, p=p)

    return Twin(
        Charging(circuit.capacitances),
        algebraic=Implicit(circuit, 0.0, names),
        params=params,
        observe=None if observe is None else seen,
        integrator=RK4() if integrator is None else integrator,
    )


def shockley(v: Voltage, p: Parameters) -> Voltage:
    """i = I_s (exp(v / V_T) - 1), with V_T the thermal voltage times the ideality."""
    return p["I_s"] * jnp.expm1(v / p["V_T"])


def high_injection(v: Voltage, p: Parameters) -> Voltage:
    """Shockley's law i and its knee, i / sqrt(1 + i / I_k): the diode that the measurements come from."""
    i = shockley(v, p)
    return i / jnp.sqrt(1 + jnp.maximum(i, 0) / p["I_k"])


class LearnedLaw(eqx.Module):
    """Shockley's law times exp(network(v)): zero at no voltage and of its sign, whatever the network says."""

    network: Network

    def __call__(self, v: Voltage, p: Parameters) -> Voltage:
        # A diode opens between 0.3 and 0.9 V; beyond, the network keeps its value, so that h keeps its one solution.
        seen = jnp.clip(5 * (v - 0.6), -1.5, 1.5)
        return shockley(v, p) * jnp.exp(self.network(seen[None])[0])


def rectifier(
    law: Callable = high_injection,
    params: Mapping[str, Any] | None = None,
    integrator: AbstractIntegrator | None = None,
) -> Twin:
    """A half-wave rectifier with smoothing: source, resistor, diode; capacitor and load behind it.

    The input is the amplitude of the source [V], at 50 Hz; outputs are the voltage of the load and the current that
    the source delivers.
    """
    parts = (
        Source("in", GROUND, lambda t, w: w[0] * jnp.sin(2 * jnp.pi / PERIOD * t)),
        Resistor("in", "anode", "R_s"),
        Diode("anode", "out", law),
        Capacitor("out", GROUND, "C"),
        Resistor("out", GROUND, "R"),
    )

    def measured(z: Mapping[str, Array]) -> Float[Array, "2"]:
        return jnp.stack([z["v(out)"], -z["i(Source in-0)"]])

    return circuit_twin(parts, RECTIFIER | dict(params or {}), measured, integrator)
