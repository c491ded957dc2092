"""The EMPS drive: a mass on a screw, pushed by a motor, with friction that is learned.

    M v' = g u - (o + d (t - 12 s)) - F(q, v),    F = F_C s + F_v v (1 + r s) + N(v, q),    s = tanh(v / v_s)

The force of the motor g u is known; mass, offset o, its slow drift d, Coulomb and viscous friction, and by how much the
latter differs with the direction (|r| < 1), are unknown. N is a network that resists the motion, whatever its weights
are. The velocity is not measured.
"""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import twinfold as tw
from twinfold_studies.real.table import Record

FORCE = 35.15065188248547  # N/V, given with the data
SMOOTH = 3e-3  # m/s, the width of the step of Coulomb friction
MIDDLE = 12.0  # s
FIRST = 20  # samples of a record at 1 kHz from which its start may be estimated
SPEED, PLACE, HALF = 0.1, 0.12, 0.12  # units of the network: m/s, and the middle and half of the stroke [m]
STRENGTH = 10.0  # N, of its output


class Drive(eqx.Module):
    """The field of the drive; the network sees the velocity, or velocity and position, or there is none."""

    network: tw.Network | None = None

    def friction(self, q: Float[Array, ""], v: Float[Array, ""], p) -> Float[Array, ""]:
        """F(q, v) [N]."""
        sign = jnp.tanh(v / SMOOTH)
        force = p["coulomb"] * sign + p["viscous"] * v * (1 + p["asymmetry"] * sign)
        if self.network is None:
            return force
        seen = jnp.stack([v / SPEED, (q - PLACE) / HALF])[: self.network.in_size]
        return force + STRENGTH * self.network(seen)[0]

    def __call__(self, t, x, w, p):
        push = FORCE * w[0] - p["offset"] - p["drift"] * (t - MIDDLE)
        return jnp.stack([x[1], (push - self.friction(x[0], x[1], p)) / p["mass"]])


class Design(NamedTuple):
    """What the network sees (0, 1 or 2 features), whether the offset drifts and viscous friction differs with the
    direction, and the weight of the penalty.
    """

    sees: int
    drift: bool
    asymmetric: bool
    l2: float = 1e-5


GUESS = {"mass": 95.0, "viscous": 150.0, "coulomb": 20.0, "offset": -3.0, "drift": 0.0, "asymmetry": 0.0}


def build(design: Design, *, warmup: int, guess: Mapping[str, float] | None = None) -> tw.Twin:
    """The twin of a design; its parameters start from `guess`, those of the fitted physics, say."""
    first = GUESS if guess is None else guess
    network = None
    if design.sees:
        network = tw.Network(design.sees, 1, 8, 1, structure="dissipative", zero_last=True)
    return tw.Twin(
        Drive(network),
        params={
            "mass": tw.Unknown(first["mass"], positive=True),
            "viscous": tw.Unknown(first["viscous"], positive=True),
            "coulomb": tw.Unknown(first["coulomb"], positive=True),
            "offset": tw.Unknown(first["offset"]),
            "drift": tw.Unknown(first["drift"]) if design.drift else 0.0,
            "asymmetry": tw.Unknown(first["asymmetry"], bounds=(-1.0, 1.0)) if design.asymmetric else 0.0,
        },
        observe=lambda x: x[:1],
        initial=lambda y: jnp.append(y, 0.0),
        warmup=warmup,
    )


def published() -> tw.Twin:
    """The parameters of Janot, Gautier and Brunot (2019), by least squares on the inverse dynamics."""
    values = {
        "mass": 95.1089,
        "viscous": 203.5034,
        "coulomb": 20.3935,
        "offset": -3.1648,
        "drift": 0.0,
        "asymmetry": 0.0,
    }
    return tw.Twin(Drive(), params=values, observe=lambda x: x[:1], initial=lambda y: jnp.append(y, 0.0), warmup=FIRST)


def thinned(record: Record, every: int, rows: slice = slice(None)) -> Record:
    """One sample in `every`; the voltage is its mean up to the next one, which has the same momentum."""
    count = len(record["t"][rows]) // every * every
    kept = {name: record[name][rows][:count] for name in ("t", "voltage", "position")}
    mean = kept["voltage"].reshape(-1, every).mean(1)
    return {"t": kept["t"][::every], "voltage": mean, "position": kept["position"][::every]}


def dataset(record: Record, *, seen: int | None = None) -> tw.Dataset:
    """The record as one run; only its first `seen` positions, if given."""
    position = record["position"]
    if seen is not None:
        position = np.where(np.arange(len(position)) < seen, position, np.nan)
    return tw.Dataset.from_arrays(
        record["t"],
        position[None, :, None],
        inputs=record["voltage"][None, :, None],
        output_names=["position"],
        input_names=["voltage"],
    )


def free_run(twin: tw.Twin, record: Record) -> Float[np.ndarray, " T"]:
    """The positions under the voltage of a record at 1 kHz, from a start that its first 20 samples give."""
    twin = eqx.tree_at(lambda each: each.warmup, twin, FIRST) if twin.warmup is not None else twin
    return np.asarray(tw.predict(twin, dataset(record, seen=FIRST)).predicted).reshape(-1)


def error(predicted: Float[np.ndarray, " T"], record: Record) -> float:
    """The root mean square error after the samples for the start [mm]."""
    value = 1000 * float(np.sqrt(np.mean((predicted - record["position"])[FIRST:] ** 2)))
    return value if np.isfinite(value) else float("inf")
