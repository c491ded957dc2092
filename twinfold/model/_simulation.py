"""A simulated trajectory of a twin, with its outputs."""

from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
from jaxtyping import Array, Float

from twinfold.numerics import Trajectory, rollout
from twinfold.typing import ConstraintVector, Parameters, State, Times

if TYPE_CHECKING:
    from twinfold.model._twin import Twin


class Simulation(eqx.Module):
    """A trajectory with its outputs y and algebraic variables z."""

    trajectory: Trajectory
    ys: Float[Array, "*batch T k"]
    zs: Any

    @property
    def ts(self) -> Float[Array, "*batch T"]:
        return self.trajectory.ts

    @property
    def xs(self) -> Float[Array, "*batch T n"]:
        return self.trajectory.xs


class SimulationError(RuntimeError):
    """A simulation failed; what was computed up to there is in `simulation`."""

    def __init__(self, message: str, simulation: Simulation):
        super().__init__(message)
        self.simulation = simulation


@eqx.filter_jit
def simulate_unchecked(
    twin: "Twin",
    x0: State,
    ts: Times,
    w: Float[Array, "T d"] | None,
    p: Parameters,
    level: ConstraintVector | None = None,
    inconsistent_x0: Literal["project", "refuse"] = "project",
) -> Simulation:
    """`Twin.simulate` without its checks, for use under `jax.vmap`, in losses and derivatives: failures stay data.

    **Arguments:** as for `Twin.simulate`, all arrays; `p`, every parameter (`twin.parameters(run)`).
    """
    trajectory = rollout(twin.cell, x0, ts, w, p=p, level=level, inconsistent_x0=inconsistent_x0, throw=False)
    ys, zs = jax.vmap(lambda t, x, w, z: twin.observed(t, x, w, p, z))(ts, trajectory.xs, w, trajectory.zs)
    return Simulation(trajectory, ys, zs)
