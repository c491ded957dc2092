"""A simulated trajectory of a twin, with its outputs."""

from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from twinfold._core import RESULTS
from twinfold.numerics import EventLog, Trajectory, rollout
from twinfold.numerics._event import EventState, in_mode
from twinfold.typing import ConstraintVector, Parameters, Scalar, State, Times

if TYPE_CHECKING:
    from twinfold.model._twin import Twin


class Simulation(eqx.Module):
    """A trajectory with its outputs y and algebraic variables z.

    **Example:**

    ```python
    simulation = tw.Twin(lambda x: -x).simulate([1.0], jnp.linspace(0, 1, 11))
    simulation.ts, simulation.xs, simulation.ys
    ```
    """

    trajectory: Trajectory
    ys: Float[Array, "*batch T k"]
    zs: Any

    @property
    def ts(self) -> Float[Array, "*batch T"]:
        return self.trajectory.ts

    @property
    def valid_ys(self) -> Float[Array, "*batch T k"]:
        """The outputs, NaN from the first divergence on (a rollout holds its last finite state for the gradients)."""
        diverged = jnp.cumsum(self.trajectory.result == RESULTS.nonfinite, axis=-1) > 0
        return jnp.where(diverged[..., None], jnp.nan, self.ys)

    @property
    def events(self) -> EventLog | None:
        """What happened, and when; None for a twin without events."""
        return self.trajectory.events

    @property
    def xs(self) -> Float[Array, "*batch T n"]:
        return self.trajectory.xs


class SimulationError(RuntimeError):
    """A simulation failed; what was computed up to there is in `simulation`.

    **Example:**

    ```python
    try:
        tw.Twin(lambda x: x**3).simulate([10.0], jnp.linspace(0, 1, 11))
    except tw.SimulationError as error:
        error.simulation.xs  # finite up to the failure
    ```
    """

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
    events: EventState | None = None,
) -> Simulation:
    """`Twin.simulate` without its checks, for use under `jax.vmap`, in losses and derivatives: failures stay data.

    **Arguments:** as for `Twin.simulate`, all arrays; `p`, every parameter (`twin.parameters(run)`); `events`, those of
    an earlier run that this one continues.

    **Example:**

    ```python
    twin, ts = tw.Twin(lambda x, p: -p["k"] * x, params={"k": 1.0}), jnp.linspace(0, 1, 11)
    slope = jax.grad(lambda k: tw.model.simulate_unchecked(twin, jnp.ones(1), ts, None, {"k": k}).ys[-1, 0])
    slope(1.0)  # about -exp(-1)
    ```
    """
    cell = twin.observed_cell
    trajectory = rollout(cell, x0, ts, w, p=p, level=level, inconsistent_x0=inconsistent_x0, throw=False, events=events)

    def observed(t: Scalar, x: State, w: Any, z: Any, mode: Any) -> tuple[Float[Array, " k"], Any]:
        return twin.observed(t, x, w, in_mode(p, mode), z)

    ys, zs = jax.vmap(observed)(ts, trajectory.xs, w, trajectory.zs, trajectory.modes)
    return Simulation(trajectory, ys, zs)
