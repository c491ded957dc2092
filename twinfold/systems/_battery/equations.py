"""The battery as a semi-explicit index-1 DAE: seven differential states, algebraic relations in closed form but one.

    x = (q_b,p  q_s,p  q_b,n  q_s,n  V_o'  V_eta,p'  V_eta,n'),    w = (current in A, > 0 on discharge; degrees Celsius)

Given x and w the algebraic relations have one solution, computed in every stage of the integrator: they relate z to x
and restrict no x, so that there is nothing to project. Daigle & Kulkarni (2013), with the paper's notation. The
overpotential of a reaction that is not symmetric (`butler_volmer`) has no closed form and is solved for.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold.systems._battery.parameters import FARADAY, GAS, KELVIN
from twinfold.typing import Parameters, State

EDGE = 1e-6  # mole fractions are kept so far from 0 and 1, where the logarithm ends
STATES = ("q_bp", "q_sp", "q_bn", "q_sn", "V_o", "V_eta_p", "V_eta_n")

Fraction = Float[Array, ""]


def expansion(x: Fraction, coefficients: Float[Array, " N"]) -> Fraction:
    """V_INT, the Redlich-Kister expansion 1/F sum_k A_k [(2x-1)^(k+1) - 2xk(1-x)(2x-1)^(k-1)], in volt."""
    y, total = 2 * x - 1, jnp.zeros_like(x)
    power = jnp.ones_like(x)  # y^(k-1) for k >= 1; the second term is absent for k = 0
    for k in range(coefficients.shape[0]):
        if k == 0:
            total = total + coefficients[0] * y
        else:
            total = total + coefficients[k] * power * (y**2 - 2 * x * k * (1 - x))
            power = power * y
    return total / FARADAY


def printed_expansion(x: Fraction, coefficients: Float[Array, " N"]) -> Fraction:
    """V_INT as the paper prints it, with (k(2x-1)-(x-1))/(2x-1)^(1-k) as second term: diverges at x = 0.5."""
    y, total = 2 * x - 1, jnp.zeros_like(x)
    for k in range(coefficients.shape[0]):
        total = total + coefficients[k] * (y ** (k + 1) - (k * y - (x - 1)) * y ** (k - 1))
    return total / FARADAY


class Interaction(eqx.Module):
    """V_INT of one electrode: the expansion, a network in its place, or the expansion and a network's residual.

    `network(u)` of those that it `sees` of x (the mole fraction), i (the current) and T (degrees Celsius), centred and
    in units of about one unless `raw`; its output is in units of `size` volt. `replaces`: whether the expansion is left
    out.
    """

    network: Callable | None = None
    replaces: bool = eqx.field(static=True, default=False)
    sees: tuple[str, ...] = eqx.field(static=True, default=("x",))
    size: float = eqx.field(static=True, default=1.0)
    raw: bool = eqx.field(static=True, default=False)
    printed: bool = eqx.field(static=True, default=False)

    def __call__(self, x: Fraction, i: Fraction, celsius: Fraction, coefficients: Array) -> Fraction:
        known = (printed_expansion if self.printed else expansion)(x, coefficients)
        if self.network is None:
            return known
        seen = {"x": x, "i": i, "T": celsius}
        if not self.raw:
            seen = {"x": 4 * (x - 0.5), "i": i - 2, "T": (celsius - 25) / 20}
        learned = self.size * self.network(jnp.stack([seen[name] for name in self.sees]))[0]
        return learned if self.replaces else known + learned


class Relations(eqx.Module):
    """All algebraic variables z of x and w, by name; the learned parts are in here.

    `fraction`: whether the equilibrium potentials follow the `"surface"` fraction, as in the source, or the `"total"`
    one, as the paper prints.
    """

    positive: Interaction
    negative: Interaction
    fraction: Literal["surface", "total"] = eqx.field(static=True, default="surface")

    @staticmethod
    def plain() -> "Relations":
        """Without learned parts."""
        return Relations(Interaction(), Interaction())

    def __call__(
        self, x: State, w: Float[Array, "2"], p: Parameters, z: Float[Array, "2"] | None = None
    ) -> dict[str, Array]:
        """`z`: the overpotentials of both electrodes, where they do not follow in closed form."""
        i, celsius = w[0], w[1]
        kelvin = celsius + KELVIN
        surface = p["q_max"] * p["v_s"] / (p["v_s"] + p["v_b"])
        out: dict[str, Array] = {"V_o": i * p["R_o"]}
        for index, (side, bulk_q, surface_q) in enumerate((("p", x[0], x[1]), ("n", x[2], x[3]))):
            total = (bulk_q + surface_q) / p["q_max"]
            at = surface_q / surface
            out |= {
                f"x_{side}": total,
                f"x_s{side}": at,
                f"flux_{side}": (bulk_q / p["v_b"] - surface_q / p["v_s"]) / p["D"],
            }
            inside = jnp.clip(at, EDGE, 1 - EDGE)
            if z is None:
                out[f"V_eta_{side}"] = symmetric_overpotential(side, inside, i, kelvin, p)
            else:
                out[f"V_eta_{side}"] = z[index]
            fraction = inside if self.fraction == "surface" else jnp.clip(total, EDGE, 1 - EDGE)
            out[f"V_U{side}"] = self.equilibrium(side, fraction, i, celsius, p)
        return out

    def equilibrium(self, side: str, x: Fraction, i: Fraction, celsius: Fraction, p: Parameters) -> Fraction:
        """V_U of one electrode (`"p"` or `"n"`) at a mole fraction."""
        interaction = self.positive if side == "p" else self.negative
        mixing = GAS * (celsius + KELVIN) / FARADAY * jnp.log((1 - x) / x)
        return p[f"U0_{side}"] + mixing + interaction(x, i, celsius, p[f"A_{side}"])

    def open_circuit(self, x_n: Fraction, celsius: Fraction, p: Parameters) -> Fraction:
        """The voltage at rest when the negative electrode is filled to `x_n` (1 - x_n then fills the positive one)."""
        inside, idle = jnp.clip(x_n, EDGE, 1 - EDGE), jnp.zeros_like(x_n)
        return self.equilibrium("p", 1 - inside, idle, celsius, p) - self.equilibrium("n", inside, idle, celsius, p)


def symmetric_overpotential(side: str, inside: Fraction, i: Fraction, kelvin: Fraction, p: Parameters) -> Fraction:
    """V_eta of a symmetric reaction, alpha = 1/2, as both sets have it: J = 2 J_0 sinh(F V / (2 R T))."""
    # A root is far cheaper than a power.
    exchange = p[f"k_{side}"] * jnp.sqrt((1 - inside) * inside)
    density = i / p[f"S_{side}"]
    return 2 * GAS * kelvin / FARADAY * jnp.arcsinh(density / (2 * exchange))


def _reacting(x: State, p: Parameters) -> list[tuple[str, Fraction]]:
    """Both electrodes with the mole fraction at their surface."""
    surface = p["q_max"] * p["v_s"] / (p["v_s"] + p["v_b"])
    return [(side, jnp.clip(q / surface, EDGE, 1 - EDGE)) for side, q in (("p", x[1]), ("n", x[3]))]


def butler_volmer(x: State, z: Float[Array, "2"], w: Float[Array, "2"], p: Parameters) -> Float[Array, "2"]:
    """0 = J / J_0 - exp((1 - alpha) F V / (R T)) + exp(-alpha F V / (R T)) with J_0 = k (1 - x)^alpha x^(1 - alpha).

    For both overpotentials V; `alpha_p` and `alpha_n` are the transfer coefficients.
    """
    unit = GAS * (w[1] + KELVIN) / FARADAY
    left = []
    for index, (side, inside) in enumerate(_reacting(x, p)):
        alpha, v = p[f"alpha_{side}"], z[index] / unit
        exchange = p[f"k_{side}"] * (1 - inside) ** alpha * inside ** (1 - alpha)
        left.append(w[0] / p[f"S_{side}"] / exchange - jnp.exp((1 - alpha) * v) + jnp.exp(-alpha * v))
    return jnp.stack(left)


def symmetric_overpotentials(x: State, w: Float[Array, "2"], p: Parameters) -> Float[Array, "2"]:
    """Where the solution of `butler_volmer` starts."""
    kelvin = w[1] + KELVIN
    return jnp.stack([symmetric_overpotential(side, at, w[0], kelvin, p) for side, at in _reacting(x, p)])


def rates(x: State, z: dict[str, Array], w: Float[Array, "2"], p: Parameters) -> State:
    """dx/dt: charge through the surfaces and from the bulk, voltage drops that follow with a delay."""
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


def voltage(x: State, z: dict[str, Array]) -> Float[Array, ""]:
    """V = V_U,p - V_U,n - V_o' - V_eta,p' - V_eta,n'."""
    return z["V_Up"] - z["V_Un"] - x[4] - x[5] - x[6]


def charged(x_n: Fraction, p: Parameters, drop: Fraction | float = 0.0) -> State:
    """The state in equilibrium at a filling `x_n` of the negative electrode, with `drop` volt over R_o."""
    bulk = p["v_b"] / (p["v_s"] + p["v_b"])
    q_n, q_p = x_n * p["q_max"], (1 - x_n) * p["q_max"]
    zero = jnp.zeros_like(q_n)
    return jnp.stack([bulk * q_p, (1 - bulk) * q_p, bulk * q_n, (1 - bulk) * q_n, zero + drop, zero, zero])
