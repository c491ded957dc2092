"""The battery as a semi-explicit DAE of index 1: seven differential states, algebraic variables z(x, w).

    x = (q_b,p  q_s,p  q_b,n  q_s,n  V_o'  V_eta,p'  V_eta,n'),    w = (current in A, > 0 on discharge; degrees Celsius)

Given x and w, the algebraic equations have exactly one solution, computed in every stage of the integrator. They
determine z and do not restrict x, so there is nothing to project. Source: Daigle & Kulkarni (2013), in the paper's
notation. The overpotential of an asymmetric reaction (`butler_volmer`) has no closed form and is solved numerically.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import Frozen
from twinfold.systems._battery.parameters import FARADAY, GAS, KELVIN
from twinfold.systems._battery.temperature import arrhenius, generated_heat, inner_inputs, temperature_rate
from twinfold.typing import Parameters, State

MIN_FRACTION = (
    1e-6  # mole fractions are clipped to [MIN_FRACTION, 1 - MIN_FRACTION], inside the domain of the logarithm
)

Fraction = Float[Array, ""]


def expansion(x: Fraction, coefficients: Float[Array, " N"]) -> Fraction:
    """V_INT, the Redlich-Kister expansion 1/F sum_k A_k [(2x-1)^(k+1) - 2xk(1-x)(2x-1)^(k-1)], in volt."""
    y = 2 * x - 1
    total = coefficients[0] * y
    power = jnp.ones_like(x)  # y^(k-1)
    for k in range(1, coefficients.shape[0]):
        total = total + coefficients[k] * power * (y**2 - 2 * x * k * (1 - x))
        power = power * y
    return total / FARADAY


def printed_expansion(x: Fraction, coefficients: Float[Array, " N"]) -> Fraction:
    """V_INT as printed in the paper, with the second term (k(2x-1)-(x-1))/(2x-1)^(1-k): diverges at x = 0.5."""
    y, total = 2 * x - 1, jnp.zeros_like(x)
    for k in range(coefficients.shape[0]):
        total = total + coefficients[k] * (y ** (k + 1) - (k * y - (x - 1)) * y ** (k - 1))
    return total / FARADAY


class Interaction(eqx.Module):
    """V_INT of one electrode: the Redlich-Kister expansion, a network in its place, or their sum.

    **Arguments:**

    - `network`: maps its `inputs` to one number; None for the expansion alone.
    - `replaces`: whether the network replaces the expansion (default: it is added).
    - `inputs`: which of "x" (the mole fraction), "i" (the current) and "T" (degrees Celsius) the network receives.
    - `output_scale`: the output of the network is in units of this many volt.
    - `raw`: give the network the plain values (default: centred and scaled to about one).
    - `printed`: use the expansion as printed in the paper, which diverges at x = 0.5.
    - `region` of its inputs, outside of which the network fades to zero; `fade_outside` sets it.

    **Example:**

    ```python
    learned = tw.systems.Interaction(tw.Network(1, 1, width=4, depth=1, zero_last=True), output_scale=0.1)
    twin = tw.systems.battery(positive=learned).initialise(jax.random.key(0), states=7, inputs=2)
    tw.model.count_parameters(twin)  # 13
    ```
    """

    network: Callable | None = None
    replaces: bool = eqx.field(static=True, default=False)
    inputs: tuple[str, ...] = eqx.field(static=True, default=("x",))
    output_scale: float = eqx.field(static=True, default=1.0)
    raw: bool = eqx.field(static=True, default=False)
    printed: bool = eqx.field(static=True, default=False)
    region: Frozen | None = None

    def __call__(self, x: Fraction, i: Fraction, celsius: Fraction, coefficients: Array) -> Fraction:
        known = (printed_expansion if self.printed else expansion)(x, coefficients)
        if self.network is None:
            return known
        values = {"x": x, "i": i, "T": celsius}
        if not self.raw:
            values = {"x": 4 * (x - 0.5), "i": i - 2, "T": (celsius - 25) / 20}
        learned = self.output_scale * self.network(jnp.stack([values[name] for name in self.inputs]))[0]
        if self.region is not None:
            raw = {"x": x, "i": i, "T": celsius}
            learned = learned * self.region.value.weight(jnp.stack([raw[name] for name in self.inputs]))
        return learned if self.replaces else known + learned


class Relations(eqx.Module):
    """The algebraic variables of the battery as functions of x and w, by name; contains the learned parts.

    **Arguments:**

    - `positive`, `negative`: V_INT of the electrodes.
    - `fraction`: the mole fraction of the equilibrium potentials, `"surface"` as in the source, or `"total"` as printed
      in the paper.

    **Example:**

    ```python
    p = tw.systems.battery().parameters()
    relations = tw.systems.Relations()
    relations.open_circuit(jnp.array(0.6), jnp.array(25.0), p)  # the voltage of a full cell at rest, 4.19 V
    ```
    """

    positive: Interaction = Interaction()
    negative: Interaction = Interaction()
    fraction: Literal["surface", "total"] = eqx.field(static=True, default="surface")

    def __call__(
        self, x: State, w: Float[Array, "2"], p: Parameters, z: Float[Array, "2"] | None = None
    ) -> dict[str, Array]:
        """`z`: the overpotentials of both electrodes; None if the reactions are symmetric."""
        i, celsius = w[0], w[1]
        overpotentials = symmetric_overpotentials(x, w, p) if z is None else z
        p = at_temperature(p, celsius)
        out: dict[str, Array] = {"V_o": i * p["R_o"]}
        for index, (side, bulk, surface) in enumerate((("p", x[0], x[1]), ("n", x[2], x[3]))):
            total, at_surface = (bulk + surface) / p["q_max"], _surface_fraction(surface, p)
            used = at_surface if self.fraction == "surface" else total
            out |= {
                f"x_{side}": total,
                f"x_s{side}": at_surface,
                f"flux_{side}": (bulk / p["v_b"] - surface / p["v_s"]) / p["D"],
                f"V_eta_{side}": overpotentials[index],
                f"V_U{side}": self.equilibrium(side, _clipped(used), i, celsius, p),
            }
        return out

    def equilibrium(self, side: str, x: Fraction, i: Fraction, celsius: Fraction, p: Parameters) -> Fraction:
        """V_U of one electrode (`"p"` or `"n"`) at a mole fraction."""
        interaction = self.positive if side == "p" else self.negative
        mixing = GAS * (celsius + KELVIN) / FARADAY * jnp.log((1 - x) / x)
        return p[f"U0_{side}"] + mixing + interaction(x, i, celsius, p[f"A_{side}"])

    def open_circuit(self, x_n: Fraction, celsius: Fraction, p: Parameters) -> Fraction:
        """The voltage at rest for a mole fraction `x_n` of the negative electrode; that of the positive is 1 - x_n."""
        inside, no_current = _clipped(x_n), jnp.zeros_like(x_n)
        positive = self.equilibrium("p", 1 - inside, no_current, celsius, p)
        return positive - self.equilibrium("n", inside, no_current, celsius, p)


class HeatedRelations(eqx.Module):
    """The algebraic variables of a cell whose temperature is its last state, and the heat that it generates, in watt.

    U is that of the mean charge, so that the loss U - V includes diffusion. What a network adds to V_INT is a property
    of the equilibrium: it is evaluated at the present current, and generates no heat.
    """

    relations: Relations

    def __call__(
        self, x: State, w: Float[Array, "2"], p: Parameters, z: Float[Array, "2"] | None = None
    ) -> dict[str, Array]:
        i, celsius = w[0], x[-1]
        out = self.relations(x[:-1], inner_inputs(x, w), p, z)
        x_p, x_n = _clipped(out["x_p"]), _clipped(out["x_n"])
        equilibrium = self.relations.equilibrium
        rest = equilibrium("p", x_p, i, celsius, p) - equilibrium("n", x_n, i, celsius, p)
        slope = GAS / FARADAY * (jnp.log((1 - x_p) / x_p) - jnp.log((1 - x_n) / x_n)) + p["dU_dT"]
        return out | {"U": rest, "heat": generated_heat(i, rest - voltage(x, out), slope, celsius)}


def at_temperature(p: Parameters, celsius: Fraction) -> Parameters:
    """The parameters at a temperature, if they have activation energies: resistances fall and rates rise with it."""
    if "E_R" not in p:
        return p
    scaled = {"R_o": p["R_o"] * arrhenius(p["E_R"], celsius), "D": p["D"] * arrhenius(p["E_D"], celsius)}
    slower = arrhenius(p["E_k"], celsius)
    return dict(p) | scaled | {"k_p": p["k_p"] / slower, "k_n": p["k_n"] / slower}


def symmetric_overpotentials(x: State, w: Float[Array, "2"], p: Parameters) -> Float[Array, "2"]:
    """V_eta of both electrodes for a symmetric reaction, alpha = 1/2: J = 2 J_0 sinh(F V / (2 R T)).

    The solution for both parameter sets, and the initial guess for `butler_volmer`.
    """
    p = at_temperature(p, w[1])
    # A square root is much cheaper than a power.
    ratios = [
        w[0] / p[f"S_{side}"] / (2 * (p[f"k_{side}"] * jnp.sqrt((1 - inside) * inside)))
        for side, inside in _surface_fractions(x, p)
    ]
    return 2 * GAS * (w[1] + KELVIN) / FARADAY * jnp.arcsinh(jnp.stack(ratios))


def butler_volmer(x: State, z: Float[Array, "2"], w: Float[Array, "2"], p: Parameters) -> Float[Array, "2"]:
    """0 = J / J_0 - exp((1 - alpha) F V / (R T)) + exp(-alpha F V / (R T)) with J_0 = k (1 - x)^alpha x^(1 - alpha).

    For both overpotentials V; `alpha_p` and `alpha_n` are the transfer coefficients.
    """
    thermal_voltage = GAS * (w[1] + KELVIN) / FARADAY
    p = at_temperature(p, w[1])
    residuals = []
    for index, (side, inside) in enumerate(_surface_fractions(x, p)):
        alpha, v = p[f"alpha_{side}"], z[index] / thermal_voltage
        exchange = p[f"k_{side}"] * (1 - inside) ** alpha * inside ** (1 - alpha)
        residuals.append(w[0] / p[f"S_{side}"] / exchange - jnp.exp((1 - alpha) * v) + jnp.exp(-alpha * v))
    return jnp.stack(residuals)


def rates(x: State, z: dict[str, Array], w: Float[Array, "2"], p: Parameters) -> State:
    """dx/dt: charge transfer between bulk and surface, and voltage drops that follow with a time constant."""
    i = w[0]
    return jnp.stack(
        [
            -z["flux_p"],
            i + z["flux_p"],
            -z["flux_n"],
            -i + z["flux_n"],
            (z["V_o"] - x[4]) / p["tau_o"],
            (z["V_eta_p"] - x[5]) / p["tau_p"],
            (z["V_eta_n"] - x[6]) / p["tau_n"],
        ]
    )


def heated_rates(x: State, z: dict[str, Array], w: Float[Array, "2"], p: Parameters) -> State:
    """dx/dt of a cell whose temperature is its last state; the second input is the ambient temperature."""
    return jnp.append(rates(x[:-1], z, w, p), temperature_rate(z["heat"], x[-1], w[1], p))


def voltage(x: State, z: dict[str, Array]) -> Float[Array, ""]:
    """V = V_U,p - V_U,n - V_o' - V_eta,p' - V_eta,n'."""
    return z["V_Up"] - z["V_Un"] - x[4] - x[5] - x[6]


def voltage_and_temperature(x: State, z: dict[str, Array]) -> Float[Array, "2"]:
    return jnp.stack([voltage(x, z), x[-1]])


def charged(x_n: Fraction, p: Parameters, drop: Fraction | float = 0.0) -> State:
    """The equilibrium state of the battery at a given charge.

    **Arguments:** `x_n`, the mole fraction of the negative electrode (0.6 when full, 0 when empty); `p`, the
    parameters; `drop`, the voltage over R_o.

    **Returns:** the state (q_b,p  q_s,p  q_b,n  q_s,n  V_o'  V_eta,p'  V_eta,n').

    **Example:**

    ```python
    p = tw.systems.battery().parameters()
    half = tw.systems.charged(jnp.array(0.3), p)
    half[2:4].sum() / p["q_max"]  # 0.3
    ```
    """
    bulk = p["v_b"] / (p["v_s"] + p["v_b"])
    q_n, q_p = x_n * p["q_max"], (1 - x_n) * p["q_max"]
    zero = jnp.zeros_like(q_n)
    return jnp.stack([bulk * q_p, (1 - bulk) * q_p, bulk * q_n, (1 - bulk) * q_n, zero + drop, zero, zero])


def _surface_fraction(q: Fraction, p: Parameters) -> Fraction:
    return q / (p["q_max"] * p["v_s"] / (p["v_s"] + p["v_b"]))


def _surface_fractions(x: State, p: Parameters) -> list[tuple[str, Fraction]]:
    """Both electrodes with the clipped mole fraction at their surface."""
    return [(side, _clipped(_surface_fraction(q, p))) for side, q in (("p", x[1]), ("n", x[3]))]


def _clipped(x: Fraction) -> Fraction:
    return jnp.clip(x, MIN_FRACTION, 1 - MIN_FRACTION)
