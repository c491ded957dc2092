"""The models of the battery comparison: twins to be trained, and baselines that need no training."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.data import Run
from twinfold.model import Network, Twin, Unknown, node
from twinfold.numerics import RK4, Heun
from twinfold.systems import Interaction, battery
from twinfold.train import AbstractMethod, Adam, LevenbergMarquardt, Loss
from twinfold.typing import Parameters, Scalar, State
from twinfold_studies.battery.cells import taken_out

SMALL, LARGE, BLACK, COURSE = 4, 69, 92, 95  # widths that give 68, 10,078, 10,127 and 10,174 parameters
HIDDEN = 7  # states of the black box, the voltage among them
HOUR = 1000.0  # s, in which the voltage of a discharge changes by about its spread

# First guess and how far a cell may be from it (about relative; the offset in units of the filling).
SCALARS: dict[str, tuple[float, float]] = {
    "q_max": (1.2e4, 0.3),
    "R_o": (0.12, 1.0),
    "offset": (0.0, 0.02),
    "D": (7e6, 1.0),
    "k_p": (2e4, 1.0),
    "k_n": (2e4, 1.0),
}


@dataclasses.dataclass(frozen=True)
class Model:
    """A model: how it is built for cells with parameters of their own or without, and how it is trained."""

    build: Callable[[bool], Twin]
    method: tuple[AbstractMethod, ...]
    loss: Loss
    random: bool = True  # whether seeds differ


def scalars(names: tuple[str, ...], own: bool) -> dict[str, Unknown]:
    """Unknown parameters, of each cell where `own`, else shared by all."""
    return {
        name: Unknown(start, positive=start > 0, per_group=own, spread=spread)
        for name, (start, spread) in SCALARS.items()
        if name in names
    }


def residual(own: bool, *, sees: tuple[str, ...] = ("x", "i", "T"), width: int = 6, start: Any = "rest") -> Twin:
    """The physics, with a small network added to V_INT of the positive electrode (that of the negative one is kept)."""
    names = tuple(SCALARS) if start == "rest" else ("q_max", "R_o")
    learned = Interaction(Network(len(sees), 1, width, 2, zero_last=True), sees=sees, size=0.1)
    return battery(unknown=scalars(names, own), positive=learned, start=start, integrator=RK4(3))


def replaced(own: bool, width: int, *, raw: bool = False, start: Any = "rest") -> Twin:
    """The paper's HRPINN: two networks of the mole fraction in place of the expansions, q_max and R_o fitted."""

    def network() -> Interaction:
        return Interaction(Network(1, 1, width, 2), replaces=True, raw=raw)

    unknown = scalars(("q_max", "R_o"), own)
    return battery(unknown=unknown, positive=network(), negative=network(), start=start, integrator=RK4(3))


def fitted_physics(own: bool, *, start: Any = "rest") -> Twin:
    return battery(unknown=scalars(("q_max", "R_o"), own), start=start, integrator=RK4(3))


def plain_physics(*, start: Any = "full") -> Twin:
    """The published model as it is."""
    return battery(start=start, integrator=RK4(3))


class BlackField(eqx.Module):
    """dx/dt of a black box: a network of hidden states and inputs, raw or in units of about one."""

    network: Network
    raw: bool = eqx.field(static=True)

    def __call__(self, x: State, w: Float[Array, "2"]) -> State:
        if self.raw:
            return self.network(jnp.concatenate([x, w]))
        seen = jnp.concatenate([(x[:1] - 3.5) / 0.4, x[1:], jnp.stack([w[0] - 2, (w[1] - 25) / 20])])
        return self.network(seen) / HOUR


def _first(y: Float[Array, "1"]) -> State:
    return jnp.concatenate([y, jnp.zeros(HIDDEN - 1, y.dtype)])


def _voltage(x: State) -> Float[Array, "1"]:
    return x[:1]


def black_box(width: int = BLACK, *, raw: bool = False) -> Twin:
    """A neural ODE of seven states, the first of them the voltage: nothing is known, no cell has its own parameters."""
    field = BlackField(Network(HIDDEN + 2, HIDDEN, width, 2), raw)
    return node(field, observe=_voltage, initial=_first, integrator=Heun())


class VoltageCourse(eqx.Module):
    """The trajectory network of a PINN: all seven states from time, current and temperature, raw as the paper has it.

    Charges in units of q_max, so that an untrained network is not empty by construction.
    """

    network: Network

    def __call__(self, t: Scalar, w: Float[Array, "2"], p: Parameters) -> State:
        out = self.network(jnp.concatenate([jnp.asarray(t, w.dtype)[None], w]))
        return jnp.concatenate([p["q_max"] * jax.nn.sigmoid(out[:4]), out[4:]])


def informed(width: int = COURSE) -> Twin:
    """The paper's PINN: states as a network of time; the differential equations as a penalty, the algebraic exact."""
    plain = battery(unknown=scalars(("q_max", "R_o"), own=False))
    return Twin(
        plain.field,
        algebraic=plain.algebraic,
        observe=plain.observe,
        params=dict(plain.params),
        initial=plain.initial,
        trajectory=VoltageCourse(Network(3, HIDDEN, width, 2)),
    )


STAGES = (Adam(200, learning_rate=1e-2), LevenbergMarquardt(30))
PRIOR = Loss(huber=0.1, l2=1e-5, prior=5e-5)
PLAIN = Loss(huber=0.1)
MODELS: dict[str, Model] = {
    "physics_fitted": Model(fitted_physics, (LevenbergMarquardt(40),), PLAIN, random=False),
    "hrpinn": Model(residual, (LevenbergMarquardt(100),), PRIOR),
    "hrpinn_small": Model(lambda own: replaced(own, SMALL), STAGES, PLAIN),
    "hrpinn_large": Model(lambda own: replaced(own, LARGE), (Adam(400, learning_rate=3e-3),), PLAIN),
    "node": Model(lambda own: black_box(), (Adam(400, learning_rate=3e-3),), PLAIN),
}


def constant(seen: Sequence[Run]) -> Callable[[Run], np.ndarray]:
    """The mean voltage of the discharges that were seen."""
    mean = float(np.nanmean(np.concatenate([run.y[:, 0] for run in seen])))
    return lambda run: np.full(len(run.ts), mean)


def persistence(last: Run) -> Callable[[Run], np.ndarray]:
    """The voltage of the last discharge as a function of the charge taken out; its last value beyond."""
    known = ~np.isnan(last.y[:, 0])
    charge, voltage = _charge(last)[known], last.y[known, 0]
    return lambda run: np.interp(_charge(run), charge, voltage)


def _charge(run: Run) -> np.ndarray:
    """Charge taken out, C, growing at least a little from sample to sample, as interpolation needs it."""
    assert run.w is not None
    least = 1e-6 / np.append(np.diff(run.ts), 1.0)
    return taken_out(run.ts, np.maximum(run.w[:, 0], least))
