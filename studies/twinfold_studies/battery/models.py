"""The models of the battery comparison: twins, and baselines without training."""

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
from twinfold_studies.battery.cells import discharged

SMALL, LARGE, BLACK_BOX, PINN = 4, 69, 92, 95  # widths of networks with 68, 10,078, 10,127 and 10,174 parameters
STATES = 7  # of the black box and the PINN; the first state of the black box is the voltage
TIME_SCALE = 1000.0  # s, in which the voltage of a discharge changes by about its standard deviation

# Initial guess and spread over cells (approximately relative; that of the offset in mole fractions).
THERMAL: dict[str, tuple[float, float]] = {"C_th": (45.0, 0.5), "R_th": (12.0, 1.0)}
MAX_ENTROPY = 1e-3  # V/K, of dU/dT beside that of the equations
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
    """A model: `build(per_cell)` returns its twin, with parameters per cell or shared ones; method and loss."""

    build: Callable[[bool], Twin]
    method: tuple[AbstractMethod, ...]
    loss: Loss
    random: bool = True  # whether the result depends on the seed
    heated: bool = False  # whether the temperature is predicted, from that of the surroundings

    @property
    def temperature(self) -> str:
        """How the temperature of the cell is known, for tables."""
        return "predicted" if self.heated else "measured"


def scalars(names: tuple[str, ...], per_cell: bool) -> dict[str, Unknown]:
    """Unknown parameters, with a value per cell or a shared one."""
    return {
        name: Unknown(guess, positive=guess > 0, per_group=per_cell, spread=spread)
        for name, (guess, spread) in (SCALARS | THERMAL).items()
        if name in names
    }


def residual(per_cell: bool, *, sees: tuple[str, ...] = ("x", "i", "T"), width: int = 6, start: Any = "rest") -> Twin:
    """The physics with a small network added to V_INT of the positive electrode."""
    names = tuple(SCALARS) if start == "rest" else ("q_max", "R_o")
    learned = Interaction(Network(len(sees), 1, width, 2, zero_last=True), inputs=sees, output_scale=0.1)
    return battery(unknown=scalars(names, per_cell), positive=learned, initial=start, integrator=RK4(3))


def heated_residual(per_cell: bool, *, width: int = 6) -> Twin:
    """The same with the temperature as a state, and with Arrhenius factors: it enters through the physics first."""
    learned = Interaction(Network(3, 1, width, 2, zero_last=True), inputs=("x", "i", "T"), output_scale=0.1)
    return battery(
        unknown=scalars((*SCALARS, *THERMAL), per_cell) | entropy(),
        positive=learned,
        initial="rest",
        temperature="output",
        arrhenius=True,
        integrator=RK4(3),
    )


def heated_physics(per_cell: bool) -> Twin:
    """The fitted physics, with the temperature as a state."""
    unknown = scalars(("q_max", "R_o", *THERMAL), per_cell) | entropy()
    return battery(unknown=unknown, initial="rest", temperature="output", integrator=RK4(3))


def entropy() -> dict[str, Unknown]:
    """dU/dT beside that of the equations, shared by all cells."""
    return {"dU_dT": Unknown(0.0, bounds=(-MAX_ENTROPY, MAX_ENTROPY))}


def replacement(per_cell: bool, width: int, *, raw: bool = False, start: Any = "rest") -> Twin:
    """The HRPINN of the paper: two networks of the mole fraction replace the expansions; q_max and R_o are fitted."""

    def network() -> Interaction:
        return Interaction(Network(1, 1, width, 2), replaces=True, raw=raw)

    unknown = scalars(("q_max", "R_o"), per_cell)
    return battery(unknown=unknown, positive=network(), negative=network(), initial=start, integrator=RK4(3))


def fitted_physics(per_cell: bool, *, start: Any = "rest") -> Twin:
    return battery(unknown=scalars(("q_max", "R_o"), per_cell), initial=start, integrator=RK4(3))


def plain_physics(*, start: Any = "full") -> Twin:
    """The published model."""
    return battery(initial=start, integrator=RK4(3))


class BlackField(eqx.Module):
    """dx/dt of a black box: a network of states and inputs, raw or scaled."""

    network: Network
    raw: bool = eqx.field(static=True)

    def __call__(self, x: State, w: Float[Array, "2"]) -> State:
        if self.raw:
            return self.network(jnp.concatenate([x, w]))
        scaled = jnp.concatenate([(x[:1] - 3.5) / 0.4, x[1:], jnp.stack([w[0] - 2, (w[1] - 25) / 20])])
        return self.network(scaled) / TIME_SCALE


def _first(y: Float[Array, "1"]) -> State:
    return jnp.concatenate([y, jnp.zeros(STATES - 1, y.dtype)])


def _voltage(x: State) -> Float[Array, "1"]:
    return x[:1]


def black_box(width: int = BLACK_BOX, *, raw: bool = False) -> Twin:
    """A neural ODE with seven states, without known physics and without parameters per cell."""
    field = BlackField(Network(STATES + 2, STATES, width, 2), raw)
    return node(field, observe=_voltage, initial=_first, integrator=Heun())


class StateNetwork(eqx.Module):
    """The trajectory network of a PINN: all seven states from unscaled time, current and temperature, as in the paper.

    Charges are in units of q_max: otherwise the cell of an untrained network would be empty.
    """

    network: Network

    def __call__(self, t: Scalar, w: Float[Array, "2"], p: Parameters) -> State:
        out = self.network(jnp.concatenate([jnp.asarray(t, w.dtype)[None], w]))
        return jnp.concatenate([p["q_max"] * jax.nn.sigmoid(out[:4]), out[4:]])


def pinn(width: int = PINN) -> Twin:
    """The PINN of the paper: the states are a network of time, the differential equations a penalty."""
    plain = battery(unknown=scalars(("q_max", "R_o"), per_cell=False))
    return Twin(
        plain.field,
        algebraic=plain.algebraic,
        observe=plain.observe,
        params=dict(plain.params),
        initial=plain.initial,
        trajectory=StateNetwork(Network(3, STATES, width, 2)),
    )


STAGES = (Adam(200, learning_rate=1e-2), LevenbergMarquardt(30))
PRIOR = Loss(huber=0.1, l2=1e-5, prior=5e-5)
PLAIN = Loss(huber=0.1)
MODELS: dict[str, Model] = {
    "physics_fitted": Model(fitted_physics, (LevenbergMarquardt(40),), PLAIN, random=False),
    "hrpinn": Model(residual, (LevenbergMarquardt(100),), PRIOR),
    "hrpinn_small": Model(lambda per_cell: replacement(per_cell, SMALL), STAGES, PLAIN),
    "hrpinn_large": Model(lambda per_cell: replacement(per_cell, LARGE), (Adam(400, learning_rate=3e-3),), PLAIN),
    "node": Model(lambda per_cell: black_box(), (Adam(400, learning_rate=3e-3),), PLAIN),
}


# Models whose temperature is predicted; the names are those of the same models with the measured one.
HEATED: dict[str, Model] = {
    "physics_fitted": Model(heated_physics, (LevenbergMarquardt(40),), PLAIN, random=False, heated=True),
    "hrpinn": Model(heated_residual, (LevenbergMarquardt(100),), PRIOR, heated=True),
}


def constant(known: Sequence[Run]) -> Callable[[Run], np.ndarray]:
    """Predicts the mean voltage of the known discharges."""
    mean = float(np.nanmean(np.concatenate([run.y[:, 0] for run in known])))
    return lambda run: np.full(len(run.ts), mean)


def persistence(last: Run) -> Callable[[Run], np.ndarray]:
    """Predicts the voltage of the last discharge at the same discharged charge, and its last value beyond."""
    known = ~np.isnan(last.y[:, 0])
    charge, voltage = _charge(last)[known], last.y[known, 0]
    return lambda run: np.interp(_charge(run), charge, voltage)


def _charge(run: Run) -> np.ndarray:
    """The discharged charge in C, strictly increasing, as interpolation requires."""
    assert run.w is not None
    smallest = 1e-6 / np.append(np.diff(run.ts), 1.0)
    return discharged(run.ts, np.maximum(run.w[:, 0], smallest))
