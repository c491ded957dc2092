"""One sample of a follower as functions of flat arrays, in the form of `_step.py`: the same exporters write both.

    init(t, x0, w, p) -> state, y, status         the first sample
    step(t, w0, w1, p, state) -> state, y, status predict to t + dt, then correct by the sample there
    output(t, w, p, state) -> y                   what the last sample told

A sample is a part of the inputs: behind those of the twin come the measurements, and for each whether it is available.
`state` holds the mean (x first), the rows of the square root of the covariance, the levels of the constraints, the
implicit algebraic variables, the report on the last sample, and the violation. `p` holds the parameters of the twin
that are not followed, and the noise.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import RESULTS, outcome_codes
from twinfold.estimate import AbstractGaussianFilter, Belief, Innovation
from twinfold.export._event_state import PackedEvents
from twinfold.export._spec import ExportSpec
from twinfold.export._step import AbstractStep, Function, Status, Vector, build_step, ravel_parameters

NOISE = "noise"  # the prefix of its parameters
AVAILABLE = 0.5  # above it, a measurement is used
REPORT = ("predicted", "std", "innovation", "accepted")  # of each output


@dataclass(frozen=True, eq=False)
class FollowerStep(AbstractStep):
    """The functions of an exported follower."""

    estimator: AbstractGaussianFilter
    spread: dict[str, float]
    spec: ExportSpec
    dtype: np.dtype
    constraints: int
    algebraic: int
    measured: int
    parameters: tuple[str, ...]
    defaults: np.ndarray
    unravel: Any
    events: PackedEvents | None = None  # none: an estimator refuses a twin with events
    about: tuple[str, ...] = (
        "One call takes one sample and corrects the estimate. The last inputs are the sample:",
        "measured.Y, the values that were measured at the end of the step, and available.Y, 1 or, for one that is",
        "missing, 0. Outputs: for each measurement its prediction, the standard deviation of that, the innovation,",
        "and whether it was used; nis, their normalised square; standard deviations of the states; parameters that",
        "are followed. state: x, the rest of the mean, the square root of the covariance, and what else is carried.",
    )

    @property
    def size(self) -> int:
        """The number of values that are estimated."""
        return self.estimator.space.size

    @property
    def state_size(self) -> int:
        carried = self.size * (self.size + 1) + self.constraints + self.algebraic
        return carried + len(REPORT) * self.measured + 1 + self.constraints

    @property
    def event_places(self) -> dict[str, list[int]]:
        return {}

    @property
    def functions(self) -> dict[str, Function]:
        return self.functions_of(self.init, self.step, self.output)

    def init(self, t: Any, x0: Any, w: Vector, p: Vector) -> tuple[Vector, Vector, Status]:
        """The estimate at the first sample."""
        estimator, std = self._estimator(p)
        first = estimator.init(t, x0, std, w=self._inputs(w), parameters=self.spread)
        return self._follow(estimator, first, t, w)

    def step(self, t: Any, w0: Vector, w1: Vector, p: Vector, state: Vector) -> tuple[Vector, Vector, Status]:
        """The estimate at the sample at `t + dt`."""
        estimator, _ = self._estimator(p)
        return self._follow(estimator, self._belief(t, w0, state), t + float(self.spec.dt), w1)

    def output(self, t: Any, w: Vector, p: Vector, state: Vector) -> Vector:
        """The report on the last sample, and the spread of the estimate."""
        estimator, _ = self._estimator(p)
        belief = self._belief(t, w, state)
        report = state[self._report_at : self._report_at + len(REPORT) * self.measured + 1]
        return self._outputs(estimator, belief, report)

    @property
    def _report_at(self) -> int:
        return self.size * (self.size + 1) + self.constraints + self.algebraic

    @property
    def _twin_inputs(self) -> int:
        return len(self.spec.inputs) - 2 * self.measured

    def _inputs(self, w: Any) -> Any:
        return w[: self._twin_inputs] if self._twin_inputs else None

    def _sample(self, w: Any) -> Any:
        values, available = w[self._twin_inputs :].reshape(2, self.measured)
        return jnp.where(available > AVAILABLE, values, jnp.nan)

    def _estimator(self, p: Vector) -> tuple[AbstractGaussianFilter, Any]:
        values = dict(self.unravel(p))
        noise = values.pop(NOISE)
        changed = eqx.tree_at(
            lambda e: (e.space.p, e.noise.process, e.noise.measurement),
            self.estimator,
            (values, noise["process"], noise["measurement"]),
        )
        return changed, noise["start"]

    def _belief(self, t: Any, w: Any, state: Any) -> Belief:
        n, m, k = self.size, self.constraints, self.algebraic
        root = state[n : n * (n + 1)].reshape(n, n)
        level, z = state[n * (n + 1) : n * (n + 1) + m], state[n * (n + 1) + m : n * (n + 1) + m + k]
        time = jnp.asarray(t, self.dtype)
        return Belief(time, state[:n], root, level, z if k else None, self._inputs(w), jnp.array(True))

    def _follow(self, estimator: AbstractGaussianFilter, belief: Belief, t: Any, w: Any) -> tuple:
        predicted, result = estimator.predict(belief, t, self._inputs(w))
        # The step is repeated from where it was if the model failed: nothing is carried but finite numbers.
        predicted = eqx.tree_at(lambda belief: belief.alive, predicted, jnp.array(True))
        after, innovation = estimator.update(predicted, self._sample(w))
        result = RESULTS.where(result == RESULTS.successful, innovation.result, result)
        report = self._report(innovation)
        z = [] if after.z is None else [after.z]
        packed = [after.mean, after.root.reshape(-1), after.level, *z, report, self._violation(estimator, after)]
        return jnp.concatenate(packed), self._outputs(estimator, after, report), outcome_codes(result)

    def _report(self, innovation: Innovation) -> Any:
        residual = jnp.where(jnp.isfinite(innovation.residual), innovation.residual, 0)
        accepted = innovation.accepted.astype(self.dtype)
        each = jnp.stack([innovation.y, innovation.std, residual, accepted], axis=1)
        return jnp.append(each.reshape(-1), innovation.nis)

    def _outputs(self, estimator: AbstractGaussianFilter, belief: Belief, report: Any) -> Any:
        found = estimator.estimate(belief)
        values = [
            jnp.ravel(each[name])
            for each in (found.parameters, found.parameters_std)
            for name in estimator.space.followed
        ]
        return jnp.concatenate([report, found.x_std, *values])

    def _violation(self, estimator: AbstractGaussianFilter, belief: Belief) -> Any:
        space = estimator.space
        if not self.constraints:
            return jnp.zeros(0, self.dtype)
        x, p = belief.mean[: space.states], space.parameters(belief.mean)
        return jnp.abs(space.twin.constraint.residual(belief.t, x, p, belief.level))


def build_follower_step(
    estimator: AbstractGaussianFilter, spec: ExportSpec, std: np.ndarray, spread: dict[str, float]
) -> FollowerStep:
    """One sample of a follower; call it with JAX in double precision.

    **Raises:** `ValueError` if estimator and spec do not fit together.
    """
    dtype = np.dtype(np.float64)
    estimator = jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, estimator)
    space, noise = estimator.space, estimator.noise
    if NOISE in space.p:
        raise ValueError(f"export: a parameter of the twin is named {NOISE!r}, as those of the follower; rename it.")
    plain = build_step(space.twin, spec)
    if len(spec.states) != space.states or std.shape[:1] != (space.states,):
        raise ValueError(f"export: the follower has {space.states} states; give as many names and deviations `std`.")
    given = (np.asarray(spec.t0, dtype), np.asarray(spec.x0, dtype), spec.initial_inputs, plain.defaults)
    first = np.asarray(jax.jit(plain.init)(*given)[1])
    values = dict(space.p) | {
        NOISE: {"process": noise.process, "measurement": noise.measurement, "start": jnp.asarray(std, dtype)}
    }
    followed = [
        name + (f"[{','.join(map(str, place))}]" if unknown.raw.shape else "")
        for name, unknown in space.followed.items()
        for place in np.ndindex(*unknown.raw.shape)
    ]
    extended = ExportSpec(
        f"{spec.name}_follower",
        list(spec.states),
        [*spec.inputs, *(f"{role}.{name}" for role in ("measured", "available") for name in spec.outputs)],
        [
            *(f"{kind}.{name}" for name in spec.outputs for kind in REPORT),
            "nis",
            *(f"estimate.{name}.std" for name in spec.states),
            *(f"parameter.{name}" for name in followed),
            *(f"parameter.{name}.std" for name in followed),
        ],
        dt=spec.dt,
        x0=spec.x0,
        w0=np.concatenate([spec.initial_inputs, first, np.ones(len(first))]),
        units={name: unit for name, unit in spec.units.items() if name in (*spec.states, *spec.inputs)},
        t0=spec.t0,
    )
    return FollowerStep(
        estimator,
        spread,
        extended,
        dtype,
        plain.constraints,
        plain.algebraic,
        len(spec.outputs),
        *ravel_parameters(values, dtype),
    )
