"""A twin as a state-space model on its manifold.

The estimated vector s = (x, level, raw) joins to the state x those levels of the constraint that a run keeps from its
initial state (`Conserved`), and the raw values of the parameters that are followed. All s of the twin lie on

    c(s) = g(t, x, p(raw)) - level = 0,        C = dc/ds = [G, -I, g_raw]

and so their covariance lives in the tangent space, C P = 0: m dimensions fewer than s has numbers. A fixed manifold
takes them from the state. A conserved quantity whose start is uncertain is a state with its own variance: x keeps all
of its dimensions, and the level, to which process noise adds nothing, becomes known better with every measurement.

**Onto the manifold.** A mean is moved by the twin's own projection, at its level and parameters, bounds included. A
deviation is moved by the derivative of that projection,

    T v = v - (W^-1 G' (G W^-1 G')^-1 C v, 0, 0)

which is I - G'(GG')^-1 G for a fixed manifold and the identity as metric W. T changes x alone: noise on the state does
not move a level. The metric is that of the twin's projection. A Kalman correction is a combination of the columns of
the square root, and these are tangent: it leaves the manifold by second-order terms only, and so does the choice of W
matter to second order only (Simon 2010, *Kalman filtering with state constraints*, IET Control Theory and
Applications 4; the metric P^-1 recommended there for corrections that are not tangent to begin with is not needed).

Inequalities restrict the mean of every estimate (predicted, corrected, smoothed, and all of a moving horizon), not the
covariance: a state held at a bound can still be pulled away from it by a later measurement. The covariance stays valid,
as a bound: where the admissible states form a convex set, the nearest admissible point is not farther from the truth
than the mean before it, ||x - Project(m)||_W <= ||x - m||_W, so that the mean square error in the metric W is at most
the trace that the covariance states. Near a bound the estimate is therefore better than it says, never worse.
Constraints with `Slack` do not restrict the covariance either.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import RESULTS
from twinfold.estimate._noise import Noise
from twinfold.model import Twin, Unknown
from twinfold.numerics import NoProjection
from twinfold.numerics._advance import advance
from twinfold.numerics._cell import Cell
from twinfold.numerics._constraint import inequality_rows, slack_of, value_and_jacobian
from twinfold.numerics._linalg.dense import factorise
from twinfold.numerics._move import CellState
from twinfold.typing import ConstraintVector, Flag, Jacobian, Parameters, Scalar

Vector: TypeAlias = Float[Array, " N"]


class Estimate(eqx.Module):
    """An estimate in physical units, with standard deviations.

    `x` [n] and `x_std`; `level` [m] of the constraint; `parameters` that are followed, by name, and `parameters_std`,
    to first order.

    **Example:**

    ```python
    twin = tw.Twin(lambda x: -x)
    estimator = tw.estimate.ExtendedKalmanFilter(twin, tw.estimate.Noise([0.1], [0.1]))
    estimate = estimator.estimate(estimator.init(0.0, [1.0], [0.5]))
    estimate.x, estimate.x_std  # [1.], [0.5]
    ```
    """

    x: Float[Array, "*batch n"]
    x_std: Float[Array, "*batch n"]
    level: Float[Array, "*batch m"]
    parameters: dict[str, Array]
    parameters_std: dict[str, Array]


class StepEnd(eqx.Module):
    """How a step ended, and the guess for implicit variables after it: what is not estimated."""

    z: Float[Array, "*batch k"] | None
    result: RESULTS


class StateSpace(eqx.Module):
    """The twin as functions of s = (x, level, raw); `p` has the parameters that are not followed."""

    twin: Twin
    p: Parameters
    followed: dict[str, Unknown]
    states: int = eqx.field(static=True)
    conserved: tuple[int, ...] = eqx.field(static=True)  # rows of the constraint whose level is estimated

    @property
    def on_manifold(self) -> bool:
        """Whether the twin has a projection; without one it is a state-space model like any other."""
        return not isinstance(self.twin.projection, NoProjection)

    @property
    def size(self) -> int:
        """The number of values that are estimated."""
        return self.states + len(self.conserved) + sum(each.raw.size for each in self.followed.values())

    def raw(self, s: Vector) -> dict[str, Array]:
        """The raw values of the parameters that are followed."""
        place, values = self.states + len(self.conserved), {}
        for name, unknown in self.followed.items():
            values[name] = s[place : place + unknown.raw.size].reshape(unknown.raw.shape)
            place += unknown.raw.size
        return values

    def parameters(self, s: Vector) -> dict[str, Any]:
        """p, in the dtype of s."""
        values = dict(self.p) | {name: physical(self.followed[name], raw) for name, raw in self.raw(s).items()}
        return jax.tree.map(lambda leaf: leaf.astype(s.dtype) if eqx.is_inexact_array(leaf) else leaf, values)

    def first_parameters(self, dtype: Any) -> dict[str, Any]:
        """p before any measurement."""
        raw = [jnp.ravel(each.raw) for each in self.followed.values()]
        before = jnp.zeros(self.states + len(self.conserved))
        return self.parameters(jnp.concatenate([before, *raw]).astype(dtype))

    def level(self, s: Vector, level: ConstraintVector) -> ConstraintVector:
        """The level of all constraints: those that are estimated from s, the others as given."""
        if not self.conserved:
            return level
        return level.at[np.array(self.conserved)].set(s[self.states : self.states + len(self.conserved)])

    def step(
        self, s: Vector, t: Scalar, dt: Scalar, w0: Any, w1: Any, z: Any, level: ConstraintVector
    ) -> tuple[Vector, StepEnd]:
        """s after a step of the integrator, not projected."""
        cell: Cell = eqx.tree_at(lambda cell: cell.projection, self.twin.cell, NoProjection())
        before = CellState(s[: self.states], z, jnp.array(True))
        p, level = self.parameters(s), self.level(s, level)
        after, report = advance(cell, t, dt, before, w0, w1, p, level)
        return jnp.concatenate([after.x, s[self.states :]]), StepEnd(after.z, report.result)

    def outputs(self, s: Vector, t: Scalar, w: Any, z: Any) -> Float[Array, " k"]:
        """y."""
        return self.twin.outputs(t, s[: self.states], w, self.parameters(s), z)

    def project(self, s: Vector, t: Scalar, level: ConstraintVector, anchor: Vector) -> tuple[Vector, RESULTS]:
        """s moved onto the manifold and inside the bounds; `anchor` was there before."""
        if not self.on_manifold:
            return s, RESULTS.successful
        p, level, n = self.parameters(s), self.level(s, level), self.states
        out = self.twin.projection.project(self.twin.constraint, t, s[:n], p, level, anchor=anchor[:n])
        return jnp.concatenate([out.x, s[n:]]), out.result

    def tangent(
        self, s: Vector, t: Scalar, level: ConstraintVector
    ) -> Callable[[Float[Array, "N c"]], Float[Array, "N c"]]:
        """T at s, on the manifold, as a function of the columns of a matrix."""
        if not self.on_manifold or level.shape[0] == 0:
            return lambda columns: columns
        jacobian = self._equations(s, t, level)
        n, metric = self.states, self.twin.projection.metric
        if metric is None:
            space = factorise(jacobian[:, :n])
            shortest = space.min_norm
        else:
            _, pull = jax.vjp(metric.to_state, s[:n])
            space = factorise(jax.vmap(lambda row: pull(row)[0])(jacobian[:, :n]))
            shortest = lambda b: metric.to_state(space.min_norm(b))  # noqa: E731

        def apply(columns: Float[Array, "N c"]) -> Float[Array, "N c"]:
            moved = jax.vmap(shortest, in_axes=1, out_axes=1)(jacobian @ columns)
            return jnp.concatenate([columns[:n] - moved, columns[n:]])

        return apply

    def normals(self, s: Vector, t: Scalar, level: ConstraintVector) -> Float[Array, "c N"]:
        """Orthonormal rows that span the normal space of the manifold of s; zeros where there is no equation."""
        if not self.on_manifold or level.shape[0] == 0:
            return jnp.zeros((0, s.shape[0]), s.dtype)
        return factorise(self._equations(s, t, level)).q

    def _equations(self, s: Vector, t: Scalar, level: ConstraintVector) -> Jacobian:
        """C at s, with zeros in the rows that do not hold exactly: bounds, and what has slack."""
        constraint, p, n = self.twin.constraint, self.parameters(s), self.states

        def residual(s: Vector) -> ConstraintVector:
            return constraint.residual(t, s[:n], self.parameters(s), self.level(s, level))

        exact = ~jnp.array(inequality_rows(constraint, t, s[:n], p))
        slack = slack_of(constraint, t, s[:n], p)
        exact = exact if slack is None else exact & (slack == 0)
        return jnp.where(exact[:, None], value_and_jacobian(residual, s)[1], 0)

    def estimate(self, mean: Vector, root: Float[Array, "N N"], level: ConstraintVector) -> Estimate:
        """The parts of s in physical units."""
        std = jnp.sqrt(jnp.sum(root**2, axis=1))

        def values(s: Vector) -> dict[str, Array]:
            return {name: physical(self.followed[name], raw) for name, raw in self.raw(s).items()}

        parameters, push = jax.linearize(values, mean)
        spreads = jax.vmap(push, in_axes=1)(root)
        parameters_std = jax.tree.map(lambda leaf: jnp.sqrt(jnp.sum(leaf**2, axis=0)), spreads)
        n = self.states
        return Estimate(mean[:n], std[:n], self.level(mean, level), parameters, parameters_std)


def state_space(twin: Twin, noise: Noise, run: int | str | None) -> StateSpace:
    """The twin as a state-space model in which the parameters that drift are followed, or a `ValueError`."""
    if twin.trajectory is not None:
        raise ValueError("twin: its state is a function of time (`trajectory`); an estimator needs one that steps.")
    if twin.events:
        raise ValueError("twin: an estimator takes no events; a Gaussian does not remain one when it meets a jump.")
    p = twin.parameters(run)
    index = twin.run_indices((run,), (run,)) if isinstance(run, str) else None
    unknowns = {name: entry for name, entry in twin.params.items() if isinstance(entry, Unknown)}
    for name in noise.drift:
        if name not in unknowns:
            raise ValueError(
                f"Noise(drift={{{name!r}: ...}}): there is no unknown parameter of this name; the twin has "
                f"{', '.join(unknowns) or 'none'}."
            )
    own = {name: of_run(unknowns[name], run if index is None else index[0]) for name in noise.drift}
    rows = () if isinstance(twin.projection, NoProjection) else _conserved_rows(twin, noise.states, p)
    if noise.level_drift.shape not in ((), (len(rows),)):
        raise ValueError(
            f"Noise(level_drift=...): {noise.level_drift.shape[0]} values; {len(rows)} levels are estimated."
        )
    return StateSpace(twin, {name: value for name, value in p.items() if name not in own}, own, noise.states, rows)


def physical(unknown: Unknown, raw: Array) -> Array:
    """The value of a parameter in physical units, in the dtype of `raw`."""
    return unknown.with_raw(raw.astype(unknown.raw.dtype), None).value().astype(raw.dtype)


def of_run(unknown: Unknown, run: Any) -> Unknown:
    """The parameter of one run alone; of a run that was not fitted, the first guess."""
    if unknown.owner is None:
        return unknown
    raw = jnp.zeros_like(unknown.guess.value) if run is None else unknown.raw[unknown.owner.value[run]]
    return unknown.with_raw(raw, None)


def _conserved_rows(twin: Twin, states: int, p: Parameters) -> tuple[int, ...]:
    """The rows whose level is that of the initial state: of a state that is not a number, it is none."""
    with jax.ensure_compile_time_eval():
        level = twin.constraint.level(jnp.zeros(()), jnp.full(states, jnp.nan), p)
    return tuple(int(row) for row in np.flatnonzero(np.isnan(np.asarray(level))))


def all_finite(*arrays: Array) -> Flag:
    """Whether every number of these arrays is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(array)) for array in arrays]))
