"""Gaussian filters: predict and update for any linearisation, in square-root form, on the manifold.

A filter says how a Gaussian passes through a function, `linearise`: by the derivative at its mean (extended), or by
points around it (unscented). Everything else is the same. Särkkä and Svensson, *Bayesian Filtering and Smoothing*,
2nd edition (2023), chapters 7 and 8.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float
from scipy.stats import chi2

from twinfold._core import RESULTS, first_failure, tree_where
from twinfold.estimate._estimator import AbstractEstimator, Belief, Innovation
from twinfold.estimate._noise import Noise, as_root, root_matrix
from twinfold.estimate._square_root import condition, triangularise
from twinfold.estimate._state_space import Estimate, StateSpace, StepEnd, Vector, all_finite
from twinfold.model._checks import float_dtype

Columns: TypeAlias = Float[Array, "N c"]


class Linearised(eqx.Module):
    """A Gaussian that has passed through a function: its mean, and the columns `into` and `out` with covariance

    out out'  of the value,    into out'  of argument and value.
    """

    mean: Float[Array, " k"]
    into: Float[Array, "N c"]
    out: Float[Array, "k c"]
    end: Any  # what the function returns beside its value, with a leading axis; of the mean first


class Propagated(eqx.Module):
    """A prediction in columns: covariance out out' + noise noise', covariance with the state before it into out'."""

    mean: Vector
    into: Columns
    out: Columns
    noise: Float[Array, "N q"]
    z: Float[Array, " k"] | None
    result: RESULTS


class AbstractGaussianFilter(AbstractEstimator):
    """Predicts and corrects a Gaussian; `linearise` says how it passes through the twin.

    **Example:**

    ```python
    issubclass(tw.estimate.ExtendedKalmanFilter, tw.estimate.AbstractGaussianFilter)  # True
    ```
    """

    space: eqx.AbstractVar[StateSpace]
    noise: eqx.AbstractVar[Noise]
    gate: eqx.AbstractVar[float | None]

    @property
    def forecaster(self) -> AbstractEstimator:
        """The filter itself."""
        return self

    @abc.abstractmethod
    def linearise(self, fn: Callable, admit: Callable, mean: Vector, root: Columns) -> Linearised:
        """N(mean, root root') through fn, which returns a value and something else; `admit` moves a point to where
        fn may be evaluated, on the manifold and inside the bounds. The mean is there."""

    def init(
        self,
        t: ArrayLike,
        x0: ArrayLike | Any,
        std: ArrayLike | Any,
        *,
        w: ArrayLike | Any | None = None,
        parameters: Mapping[str, ArrayLike] | None = None,
        level: ArrayLike | Any | None = None,
    ) -> Belief:
        """The belief before the first measurement, in the dtype of x0.

        **Arguments:** the time `t`; the state `x0` [n] there, and its standard deviations `std` [n] or covariance;
        the inputs `w` there; `parameters`: the standard deviation of each that is followed, in units of `raw` (their
        `spread` when left out); `level` of the constraint, where it is known: that of x0, as uncertain as x0, when left
        out.
        """
        space, n = self.space, self.space.states
        x = jnp.asarray(x0)
        x = x.astype(float_dtype(x))
        if x.shape != (n,):
            raise ValueError(f"x0 has shape {x.shape}; the noise is that of {n} states.")
        spread = as_root(std, "std")
        if spread.shape[0] != n:
            raise ValueError(f"std is that of {spread.shape[0]} states; x0 has {n}.")
        spreads = [jnp.full(each.raw.size, value, x.dtype) for each, value in self._prior(parameters or {})]
        raw = [jnp.ravel(each.raw).astype(x.dtype) for each in space.followed.values()]
        time, inputs = jnp.asarray(t, x.dtype), None if w is None else jnp.asarray(w, x.dtype)
        rows = np.array(space.conserved, int)

        def first(s: Vector) -> Vector:
            """s with the levels that x has."""
            known = space.parameters(s)
            own = space.twin.constraint.level(time, s[:n], known) if level is None else jnp.asarray(level, x.dtype)
            return jnp.concatenate([s[:n], own[rows], s[n + len(rows) :]])

        mean, push = jax.linearize(first, jnp.concatenate([x, jnp.zeros(len(rows), x.dtype), *raw]))
        root = jax.vmap(push, in_axes=1, out_axes=1)(self._root(root_matrix(spread, x.dtype), 0.0, spreads))
        p = space.parameters(mean)
        whole = space.twin.constraint.level(time, x, p) if level is None else jnp.asarray(level, x.dtype)
        z = space.twin.cell.initial_guess(time, x, inputs, p)
        return Belief(time, mean, triangularise(root), whole, z, inputs, jnp.array(True))

    def _prior(self, given: Mapping[str, ArrayLike]) -> list[tuple[Any, Any]]:
        """Each parameter that is followed with the standard deviation of its raw value."""
        followed = self.space.followed
        for name in given:
            if name not in followed:
                raise ValueError(
                    f"parameters: {name!r} is not followed; name it in Noise(drift=...), which has "
                    f"{', '.join(followed) or 'none'}."
                )
        prior = []
        for name, unknown in followed.items():
            value = given.get(name, unknown.spread)
            if value is None:
                raise ValueError(
                    f"parameters: how uncertain is {name!r} at first? Give parameters={{{name!r}: 0.1}} (about 10 %), "
                    "or the Unknown a `spread`."
                )
            prior.append((unknown, value))
        return prior

    def propagate(self, belief: Belief, t: Float[Array, ""], w: Any) -> Propagated:
        """The prediction at t in columns, on the manifold there."""
        space, before = self.space, belief

        def step(s: Vector) -> tuple[Vector, StepEnd]:
            return space.step(s, before.t, t - before.t, before.w, w, before.z, before.level)

        def admit(s: Vector) -> Vector:
            return space.project(s, before.t, before.level, before.mean)[0]

        moved = self.linearise(step, admit, before.mean, before.root)
        mean, projected = space.project(moved.mean, t, before.level, before.mean)
        tangent = space.tangent(mean, t, before.level)
        stepped = first_failure(moved.end.result)
        result = RESULTS.where(stepped == RESULTS.successful, projected, stepped)
        z = jax.tree.map(lambda leaf: leaf[0], moved.end.z)
        noise = tangent(jnp.sqrt(t - before.t) * self.process_root(mean.dtype))
        return Propagated(mean, moved.into, tangent(moved.out), noise, z, result)

    def predict(self, belief: Belief, t: ArrayLike, w: ArrayLike | Any | None = None) -> tuple[Belief, RESULTS]:
        """The belief at time t, not before that of `belief`, with the inputs `w` there; and how the step ended."""
        time = jnp.asarray(t, belief.mean.dtype)
        inputs = None if w is None else jnp.asarray(w, belief.mean.dtype)
        moved = self.propagate(belief, time, inputs)
        root = triangularise(jnp.concatenate([moved.out, moved.noise], axis=1))
        finite = all_finite(moved.mean, root, *jax.tree.leaves(moved.z)) & (moved.result != RESULTS.nonfinite)
        alive = belief.alive & finite
        old = (belief.mean, belief.root, belief.z)
        mean, root, z = tree_where(alive, (moved.mean, root, moved.z), old)
        result = RESULTS.where(alive, moved.result, RESULTS.nonfinite)
        return Belief(time, mean, root, self.space.level(mean, belief.level), z, inputs, alive), result

    def update(self, belief: Belief, y: ArrayLike | Any) -> tuple[Belief, Innovation]:
        """The belief after the measurement y, NaN where a value is missing; and what is to be known of it."""
        space, mean = self.space, belief.mean
        y = jnp.asarray(y, mean.dtype)

        def observe(s: Vector) -> tuple[Float[Array, " k"], None]:
            return space.outputs(s, belief.t, belief.w, belief.z), None

        def admit(s: Vector) -> Vector:
            return space.project(s, belief.t, belief.level, mean)[0]

        seen = self.linearise(observe, admit, mean, belief.root)
        if y.shape != seen.mean.shape or y.shape[0] != self.noise.outputs:
            raise ValueError(
                f"y has shape {y.shape}; the twin observes {seen.mean.shape[0]} values, and the noise is that of "
                f"{self.noise.outputs}."
            )
        noise = root_matrix(self.noise.measurement, mean.dtype)
        variance = jnp.sum(seen.out**2, axis=1) + jnp.sum(noise**2, axis=1)
        residual = jnp.where(jnp.isfinite(y), y - seen.mean, jnp.nan)
        limit = jnp.inf if self.gate is None else float(chi2.isf(self.gate, 1))
        accepted = residual**2 <= limit * variance  # a missing value is not
        found = condition(seen.into, seen.out, noise, residual, accepted)
        corrected, result = space.project(mean + found.correction, belief.t, belief.level, mean)
        root = space.tangent(corrected, belief.t, belief.level)(found.root)
        # Without a prediction nothing can be accepted; a correction that is not finite is none.
        finite = all_finite(seen.mean, corrected, root)
        result = RESULTS.where(finite, result, RESULTS.nonfinite)
        made = belief.alive & (result == RESULTS.successful)
        corrected, root = tree_where(made, (corrected, root), (mean, belief.root))
        innovation = Innovation(
            seen.mean, residual, jnp.sqrt(variance), accepted & made, found.nis, found.log_likelihood, result
        )
        return eqx.tree_at(
            lambda belief: (belief.mean, belief.root, belief.level),
            belief,
            (corrected, root, space.level(corrected, belief.level)),
        ), innovation

    def estimate(self, belief: Belief) -> Estimate:
        """The belief in physical units, with standard deviations."""
        return self.space.estimate(belief.mean, belief.root, belief.level)

    def process_root(self, dtype: Any) -> Columns:
        """The root of the noise that a unit of time adds to s."""
        space = self.space
        drift = [jnp.full(each.raw.size, self.noise.drift[name], dtype) for name, each in space.followed.items()]
        return self._root(root_matrix(self.noise.process, dtype), self.noise.level_drift, drift)

    def _root(self, states: Float[Array, "n n"], level: Any, parameters: list[Array]) -> Float[Array, "N N"]:
        """The root for s of independent states, levels and parameters, from that of the states and from deviations."""
        levels = jnp.broadcast_to(jnp.asarray(level, states.dtype), (len(self.space.conserved),))
        return jax.scipy.linalg.block_diag(states, jnp.diag(jnp.concatenate([levels, *parameters])))


def check_gate(gate: float | None) -> None:
    """A `ValueError` unless it is a probability."""
    if gate is not None and not 0 < gate < 1:
        raise ValueError(f"gate={gate}: give the probability that a good value is refused, such as 1e-4, or None.")
