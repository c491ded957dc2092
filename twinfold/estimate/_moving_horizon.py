"""Moving-horizon estimation: the last samples explained together, by least squares on the manifold.

Everything is written in errors e of unit variance. The state at the first sample of the window deviates from the
arrival N(m, S S') by e_0, each later one from the step before it by the process noise:

    s_0 = Project(m + S e_0),    s_i = Project(step(s_(i-1)) + sqrt(dt) Q e_i)
    min over e   sum |e_i|^2 + sum |R^-1/2 (y_i - observe(s_i))|^2

Every s_i is on the manifold and inside the bounds, whatever e is: there is nothing left to constrain. An error in a
normal direction has no effect, and the first sum keeps it at zero. Damped Gauss-Newton steps find the minimum
(`numerics/_regularised.py`). The covariance of the last state is that of the linearised problem,

    S = ds_end/de (J'J + I)^-1/2,        J = d(R^-1/2 observe(s))/de.

**Arrival.** A sample that leaves the window is not forgotten: an extended Kalman filter takes the arrival through its
measurement and one step, linearised at the estimate that the whole window has given for it. With a linear twin the
result is that of the Kalman filter for any length of the window. Rao, Rawlings and Mayne (2003), *Constrained state
estimation for nonlinear discrete-time systems*, IEEE Transactions on Automatic Control 48.

**Bounds.** At a bound the projection has no derivative across it, and an error that would lead back inside would not
be found. The problem is solved with the derivative on the equations alone first, then with the exact one. The
covariance is that without bounds, as for the filters.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from twinfold._core import RESULTS, first_failure, tree_where
from twinfold.estimate._estimator import AbstractEstimator, Belief, Innovation, Window
from twinfold.estimate._extended import ExtendedKalmanFilter
from twinfold.estimate._gaussian import AbstractGaussianFilter, Columns, Linearised
from twinfold.estimate._noise import Noise, root_matrix
from twinfold.estimate._square_root import triangularise
from twinfold.estimate._state_space import Estimate, StateSpace, Vector, all_finite
from twinfold.model import Twin
from twinfold.numerics._constraint import has_inequalities
from twinfold.numerics._regularised import RegularisedSolution, regularised_least_squares


class MovingHorizon(AbstractEstimator):
    """Explains the last samples together: for strong nonlinearity, where a filter that looks at each once goes wrong.

    **Arguments:** `twin`, `noise`, `run`, `gate` as for `ExtendedKalmanFilter`; `window`, the number of samples, from
    some to some ten: what is older enters through its summary, the arrival; `max_steps` of the solver at each sample;
    `tolerance`, the length of its last step in standard deviations of the estimate.

    **Example:**

    ```python
    twin = tw.Twin(lambda x: jnp.stack([x[1], -4.0 * jnp.sin(x[0])]), observe=lambda x: x[:1])
    estimator = tw.estimate.MovingHorizon(twin, tw.estimate.Noise([0.0, 0.1], [0.05]), window=5)
    follower = tw.estimate.Follower(estimator, [1.0, 0.0], [0.5, 0.5])
    for t, y in ((0.0, 1.1), (0.1, 1.05), (0.2, 0.99)):
        output = follower.step(t, y=[y])
    output.x, output.x_std
    ```
    """

    filter: ExtendedKalmanFilter
    window: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    tolerance: float = eqx.field(static=True)

    def __init__(
        self,
        twin: Twin,
        noise: Noise,
        *,
        window: int = 10,
        run: int | str | None = None,
        gate: float | None = None,
        max_steps: int = 30,
        tolerance: float = 1e-4,
    ):
        if window < 1:
            raise ValueError(f"MovingHorizon(window={window}): give the number of samples, at least one.")
        if max_steps < 1 or not tolerance > 0:
            raise ValueError(f"MovingHorizon(max_steps={max_steps}, tolerance={tolerance}): both must be positive.")
        self.filter = ExtendedKalmanFilter(twin, noise, run=run, gate=gate)
        self.window = int(window)
        self.max_steps = int(max_steps)
        self.tolerance = float(tolerance)

    @property
    def space(self) -> StateSpace:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The twin as a state-space model."""
        return self.filter.space

    @property
    def noise(self) -> Noise:  # pyright: ignore[reportIncompatibleVariableOverride]
        """How much model and sensors are trusted."""
        return self.filter.noise

    @property
    def forecaster(self) -> AbstractEstimator:
        """The extended Kalman filter: without measurements there is nothing to minimise."""
        return self.filter

    def init(self, t: ArrayLike, x0: Any, std: Any, *, w: Any = None, parameters: Any = None, level: Any = None) -> Any:
        """The belief before the first measurement; arguments as for `ExtendedKalmanFilter.init`."""
        belief = self.filter.init(t, x0, std, w=w, parameters=parameters, level=level)
        size, outputs, dtype = self.window, self.noise.outputs, belief.mean.dtype
        inputs = None if belief.w is None else jnp.tile(belief.w[None], (size, 1))
        nothing = jnp.zeros((size, outputs), dtype), jnp.zeros((size, outputs), bool)
        errors = jnp.zeros((size, self.space.size), dtype)
        return _with_window(belief, Window(belief, jnp.full(size, belief.t, dtype), *nothing, inputs, errors))

    def predict(self, belief: Belief, t: ArrayLike, w: Any = None) -> tuple[Belief, RESULTS]:
        """The belief at time t; the oldest sample leaves the window and enters the arrival."""
        old = _window_of(belief)
        after, result = self.filter.predict(_with_window(belief, None), t, w)
        longer = Window(
            old.arrival,
            jnp.append(old.t, after.t),
            jnp.concatenate([old.y, jnp.zeros_like(old.y[:1])]),
            jnp.concatenate([old.used, jnp.zeros_like(old.used[:1])]),
            None if old.w is None or after.w is None else jnp.concatenate([old.w, after.w[None]]),
            jnp.concatenate([old.errors, jnp.zeros_like(old.errors[:1])]),
        )
        window, arrived = self._shifted(longer)
        alive = after.alive & window.arrival.alive
        result = RESULTS.where(result == RESULTS.successful, arrived, result)
        return eqx.tree_at(lambda b: b.alive, _with_window(after, window), alive), result

    def _shifted(self, window: Window) -> tuple[Window, RESULTS]:
        """The window without its first sample."""
        arrival, space = window.arrival, self.space
        parts = (window.t, window.y, window.used, window.w, window.errors)
        t, y, used, w, errors = jax.tree.map(lambda leaf: leaf[:2], parts)
        states, _, _ = self._states(errors, Window(arrival, t, y, used, w, errors), exact=True)
        around = _ExtendedAround(space, self.noise, None, states[0])
        corrected, _ = around.update(arrival, jnp.where(used[0], y[0], jnp.nan))
        moved, result = around.predict(corrected, t[1], None if w is None else w[1])
        # The errors for which the states of the window stay what they are: of the first one nearly, as a guess.
        first = jnp.linalg.lstsq(moved.root, states[1] - moved.mean, rcond=1e-6)[0]
        errors = jnp.concatenate([jnp.where(jnp.isfinite(first), first, 0)[None], window.errors[2:]])
        t, y, used, w = jax.tree.map(lambda leaf: leaf[1:], parts[:-1])
        return Window(moved, t, y, used, w, errors), result

    def update(self, belief: Belief, y: ArrayLike | Any) -> tuple[Belief, Innovation]:
        """The belief after the measurement y, NaN where a value is missing; its innovation is that of the filter."""
        old = _window_of(belief)
        _, innovation = self.filter.update(_with_window(belief, None), y)
        accepted = innovation.accepted
        measured = jnp.where(accepted, jnp.asarray(y, belief.mean.dtype), 0)
        window = eqx.tree_at(
            lambda window: (window.y, window.used),
            old,
            (old.y.at[-1].set(measured), old.used.at[-1].set(accepted)),
        )
        found = self._solve(window)
        root = self._root(found)
        z, stepped = found.rest
        finite = all_finite(found.value, root, *jax.tree.leaves(z))
        result = RESULTS.where(found.converged, RESULTS.successful, RESULTS.not_minimised)
        result = RESULTS.where(stepped == RESULTS.successful, result, stepped)
        result = RESULTS.where(finite, result, RESULTS.nonfinite)
        kept = (result == RESULTS.successful) | (result == RESULTS.not_minimised)
        made = belief.alive & kept & (innovation.result == RESULTS.successful)
        errors = found.v.reshape(window.errors.shape)
        window = eqx.tree_at(lambda window: window.errors, window, errors)
        new = (found.value, root, z, window)
        mean, root, z, window = tree_where(made, new, (belief.mean, belief.root, belief.z, old))
        result = RESULTS.where(innovation.result == RESULTS.successful, result, innovation.result)
        innovation = eqx.tree_at(lambda i: (i.accepted, i.result), innovation, (accepted & made, result))
        level = self.space.level(mean, belief.level)
        return Belief(belief.t, mean, root, level, z, belief.w, belief.alive, window), innovation

    def estimate(self, belief: Belief) -> Estimate:
        """The belief in physical units, with standard deviations."""
        return self.space.estimate(belief.mean, belief.root, belief.level)

    def _states(
        self, errors: Float[Array, "W N"], window: Window, *, exact: bool
    ) -> tuple[Float[Array, "W N"], Any, RESULTS]:
        """s at all samples of the window, the guesses for implicit variables there, and the first failure.

        With `exact`, the derivative is that of the projection; otherwise that on the equations alone, without bounds.
        """
        space, arrival = self.space, window.arrival
        noise = self.filter.process_root(errors.dtype)
        times, before = (window.t[1:], window.t[:-1])
        w0, w1 = (None, None) if window.w is None else (window.w[:-1], window.w[1:])

        def admit(s: Vector, t: Array, anchor: Vector) -> tuple[Vector, RESULTS]:
            if exact:
                return space.project(s, t, arrival.level, anchor)
            fixed = jax.lax.stop_gradient(s)
            there, result = jax.lax.stop_gradient(space.project(fixed, t, arrival.level, jax.lax.stop_gradient(anchor)))
            return there + space.tangent(there, t, arrival.level)((s - fixed)[:, None])[:, 0], result

        def step(carry: tuple, sample: tuple) -> tuple[tuple, tuple]:
            s, z = carry
            t0, t1, w0, w1, error = sample
            moved, end = space.step(s, t0, t1 - t0, w0, w1, z, arrival.level)
            moved, result = admit(moved + jnp.sqrt(t1 - t0) * (noise @ error), t1, s)
            result = RESULTS.where(end.result == RESULTS.successful, result, end.result)
            return (moved, end.z), (moved, end.z, result)

        first, begun = admit(arrival.mean + arrival.root @ errors[0], window.t[0], arrival.mean)
        start = (first, arrival.z)
        _, (*rest, results) = jax.lax.scan(step, start, (before, times, w0, w1, errors[1:]))
        if errors.shape[0] > 1:
            begun = RESULTS.where(begun == RESULTS.successful, first_failure(results), begun)
        states, guesses = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), start, tuple(rest))
        return states, guesses, begun

    def _residuals(self, window: Window, *, exact: bool) -> Callable[[Array], tuple[tuple[Array, Array], Any]]:
        """The residuals as a function of all errors, with the last state; beside them the end of the last step."""
        whiten = jax.vmap(_whitener(self.noise, window.y.dtype))

        def residuals(flat: Float[Array, " E"]) -> tuple[tuple[Float[Array, " r"], Vector], Any]:
            states, guesses, result = self._states(flat.reshape(window.errors.shape), window, exact=exact)
            outputs = jax.vmap(self.space.outputs)(states, window.t, window.w, guesses)
            white = whiten(window.y - outputs, window.used)
            return (jnp.ravel(white), states[-1]), (jax.tree.map(lambda leaf: leaf[-1], guesses), result)

        return residuals

    def _solve(self, window: Window) -> RegularisedSolution:
        """The errors that explain the window best; the slopes are those without bounds."""
        first, limits = jnp.ravel(window.errors), (self.max_steps, self.tolerance)
        exact = self._residuals(window, exact=True)
        if not has_inequalities(self.space.twin.constraint):
            return regularised_least_squares(exact, first, *limits)
        free = self._residuals(window, exact=False)
        near = regularised_least_squares(free, first, *limits)
        found = regularised_least_squares(exact, near.v, *limits)
        jacobian, slopes = jax.jacfwd(lambda v: free(v)[0])(found.v)
        return eqx.tree_at(lambda found: (found.jacobian, found.slopes), found, (jacobian, slopes))

    def _root(self, found: RegularisedSolution) -> Float[Array, "N N"]:
        """The root of the covariance of the last state."""
        identity = jnp.eye(found.v.shape[0], dtype=found.v.dtype)
        factor = jnp.linalg.qr(jnp.concatenate([found.jacobian, identity]), mode="r")
        return triangularise(jax.scipy.linalg.solve_triangular(factor.T, found.slopes.T, lower=True).T)


class _ExtendedAround(AbstractGaussianFilter):
    """The extended filter linearised at a given point in place of its mean."""

    space: StateSpace
    noise: Noise
    gate: float | None = eqx.field(static=True)
    point: Vector

    def linearise(self, fn: Callable, admit: Callable, mean: Vector, root: Columns) -> Linearised:
        value, push, end = jax.linearize(fn, self.point, has_aux=True)
        out = jax.vmap(push, in_axes=1, out_axes=1)(root)
        return Linearised(value + push(mean - self.point), root, out, jax.tree.map(lambda leaf: leaf[None], end))


def _whitener(noise: Noise, dtype: Any) -> Callable[[Float[Array, " k"], Bool[Array, " k"]], Float[Array, " k"]]:
    """A residual in standard deviations, uncorrelated; zero where a value is not used."""
    root = root_matrix(noise.measurement, dtype)

    def whiten(residual: Float[Array, " k"], used: Bool[Array, " k"]) -> Float[Array, " k"]:
        unused = jnp.diag(jnp.where(used, 0, 1).astype(dtype))
        factor = triangularise(jnp.concatenate([unused, jnp.where(used[:, None], root, 0)], axis=1))
        return jax.scipy.linalg.solve_triangular(factor, jnp.where(used, residual, 0), lower=True)

    return whiten


def _with_window(belief: Belief, window: Window | None) -> Belief:
    return Belief(belief.t, belief.mean, belief.root, belief.level, belief.z, belief.w, belief.alive, window)


def _window_of(belief: Belief) -> Window:
    if belief.window is None:
        raise ValueError("belief: it has no window; begin with the `init` of this estimator.")
    return belief.window
