"""A twin that follows its plant: one sample in; corrected state, prediction and band out, in constant time and memory.

Beside `Twin.stepper`, which predicts and compares, the follower corrects. No sample raises an exception: a clock that
goes back, a missing value, an outlier or a model that diverges is reported (`ok`, `message`), and the follower waits
for the next sample. A sample that comes late is filtered in its place, if it is not older than `lag` samples. The state
is plain JSON, and is restored bit for bit.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from twinfold._core import RESULTS, check_times, outcome_codes
from twinfold.estimate._bands import forecast
from twinfold.estimate._estimator import AbstractEstimator, Belief
from twinfold.estimate._follower_output import FollowerOutput, Forecast
from twinfold.estimate._past_samples import (
    PastSample,
    Sample,
    belief_from_json,
    belief_to_json,
    past_from_json,
    past_to_json,
    place_of,
)
from twinfold.model._stepper import hold_missing
from twinfold.model._unknown import Unknown

FORMAT = 1  # of a saved state


class Follower:
    """The running state of one asset.

    **Arguments:** the `estimator`; the state `x0` at the first sample, or None where the twin's `initial` computes it
    from the first measurement; `std`, its standard deviations or covariance; `parameters` and `level` as for
    `ExtendedKalmanFilter.init`; `lag`, how many of the last samples are kept for one that comes late, or for another
    channel of the same time (none when left out: it is then left out).

    `latest` is the output at the newest sample: after a late one, with what that has changed. None before the first
    sample, and after `restore`.

    **Example:**

    ```python
    twin = tw.Twin(lambda x, w: w - x)
    estimator = tw.estimate.ExtendedKalmanFilter(twin, tw.estimate.Noise([0.1], [0.05]), gate=1e-4)
    follower = tw.estimate.Follower(estimator, [0.0], [1.0])
    for t, y in ((0.0, 0.3), (0.1, 0.4), (0.2, float("nan"))):
        output = follower.step(t, w=[1.0], y=[y])
    output.x, output.y, output.band(0.9)
    follower.ahead([0.3, 0.4], [[1.0], [1.0]]).y
    saved = follower.state()  # plain JSON
    ```
    """

    def __init__(
        self,
        estimator: AbstractEstimator,
        x0: ArrayLike | Sequence | None,
        std: ArrayLike | Sequence,
        *,
        parameters: Mapping[str, ArrayLike] | None = None,
        level: ArrayLike | Sequence | None = None,
        lag: int = 0,
    ):
        if lag < 0:
            raise ValueError(f"lag={lag}: give the number of samples to keep, zero or more.")
        self.estimator = estimator
        self.lag = int(lag)
        self.latest: FollowerOutput | None = None
        twin = estimator.space.twin
        if x0 is None and twin.initial is None and twin.observe is not None:
            raise ValueError("x0: the state is not what is observed; give it, or give the twin an `initial`.")
        if x0 is None and isinstance(twin.initial, Unknown):
            raise ValueError("x0: the twin estimates its initial states in a fit; give that of this asset.")
        first = None if x0 is None else np.asarray(x0, np.result_type(np.asarray(x0).dtype, np.float32))
        self.dtype = np.dtype(jnp.zeros(()).dtype if first is None else jnp.asarray(first).dtype)
        self._start = {"x0": first, "std": np.asarray(std, float), "parameters": dict(parameters or {}), "level": level}
        self._belief: Belief | None = None
        self._past: list[PastSample] = []
        if first is not None:
            self._init(0.0, first, None)  # mistakes are raised here, not in a plant

    def step(
        self, t: float, w: ArrayLike | Sequence | None = None, y: ArrayLike | Sequence | None = None
    ) -> FollowerOutput:
        """The estimate at the next sample, or at one that comes late.

        **Arguments:** its time `t`, at any distance from the last; its inputs `w`, NaN where one is missing (its last
        value is then held); the measurement `y`, NaN where a value is missing, or None: without measurements it
        is `Twin.stepper` with a band.

        **Returns:** the estimate at time t, from the samples up to there: for one that comes late the same as if it had
        come in time. `latest` has the present one.

        **Raises:** `ValueError` only where w or y has the wrong number of values: a mistake in the wiring.
        """
        t = float(t)
        measured = np.full(self.estimator.noise.outputs, np.nan) if y is None else np.atleast_1d(np.asarray(y, float))
        if measured.shape != (self.estimator.noise.outputs,):
            raise ValueError(f"y has {measured.size} values; the twin observes {self.estimator.noise.outputs}.")
        if not np.isfinite(t):
            return self._nothing(t, f"The time {t} is not a number: the sample was left out.")
        sample = Sample(t, None if w is None else np.atleast_1d(np.asarray(w, self.dtype)), measured)
        if self._belief is not None and t <= float(self._belief.t):
            return self._step_late(sample)
        return self._step_in_order(sample)

    def _step_in_order(self, sample: Sample) -> FollowerOutput:
        last, t = self._belief, sample.t
        inputs, note = hold_missing(sample.w, None if last is None else last.w, self.dtype)
        if inputs is not None and not np.isfinite(inputs).all():
            return self._nothing(t, "An input of the first sample is missing: the follower has not started.")
        if last is None:
            last = self._first(t, inputs, sample.y)
            if isinstance(last, str):
                return self._nothing(t, last)
        self._check_inputs(last, inputs)
        if self.lag:
            self._past = [*self._past, PastSample(jax.device_get(last), sample)][-self.lag :]
        arrays = (jnp.asarray(t, self.dtype), None if inputs is None else jnp.asarray(inputs), jnp.asarray(sample.y))
        self._belief, report = jax.device_get(_follow(self.estimator, jax.tree.map(jnp.asarray, last), *arrays))
        self.latest = self._output(t, note, *report)
        return self.latest

    def _step_late(self, sample: Sample) -> FollowerOutput:
        """The sample in its place among the last ones, and these once more."""
        t, newest = sample.t, self._belief
        place = place_of(self._past, t)
        if newest is None or place is None:
            reason = f"is not after {float(getattr(newest, 't', np.nan)):.6g}"
            return self._nothing(t, f"The time {t:.6g} {reason if not self.lag else 'is too long ago'}: left out.")
        self._check_inputs(newest, sample.w)
        known, later = self._past[place], [each.sample for each in self._past[place:]]
        if known.sample.t == t:
            sample, later = known.sample.filled(sample), later[1:]
        # Where the first sample of all is filled, it is the belief before it that it starts from.
        self._past, self._belief = self._past[:place], known.before
        output = self._step_in_order(sample)
        for each in later:
            self._step_in_order(each)
        note = f"The sample came late: {len(later)} later ones were filtered again."
        return dataclasses.replace(output, message=f"{output.message} {note}" if output.message else note)

    def _check_inputs(self, last: Belief, w: np.ndarray | None) -> None:
        before, now = (None if each is None else each.shape for each in (last.w, w))
        if before != now:
            raise ValueError(f"w has shape {now}; the samples before it had {before}.")

    def ahead(self, ts: ArrayLike | Sequence, w: ArrayLike | Sequence | None = None) -> Forecast:
        """The prediction at later times, with its uncertainty; the follower stays where it is.

        **Arguments:** `ts`, after the last sample; the inputs `w` at these times. Compiles once for each number of
        times.
        """
        last = self._belief
        if last is None or not last.alive:
            raise ValueError("ahead: there is no state to continue from; give a sample to `step` first.")
        times = np.atleast_1d(np.asarray(ts, self.dtype))
        check_times(np.concatenate([[last.t], times]), "ts (with the time of the last sample before it)")
        wanted = None if last.w is None else (len(times), *last.w.shape)
        inputs = None if wanted is None else np.asarray(w, self.dtype)
        if inputs is not None and (inputs.shape != wanted or not np.isfinite(inputs).all()):
            raise ValueError(f"w: give finite inputs for each of the {len(times)} times.")
        alone = eqx.tree_at(lambda b: b.window, last, None, is_leaf=lambda node: node is None)
        return forecast(self.estimator, alone, times, inputs)

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON; `restore` continues from it exactly."""
        belief = None if self._belief is None else belief_to_json(self._belief)
        past = [past_to_json(each) for each in self._past]
        return {"format": FORMAT, "dtype": self.dtype.name, "belief": belief} | ({"past": past} if past else {})

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state` of a follower of the same estimator."""
        if state.get("format") != FORMAT or state.get("dtype") != self.dtype.name:
            raise ValueError(
                f"A follower's state has format {FORMAT} and dtype {self.dtype.name}; this one has "
                f"{state.get('format')!r} and {state.get('dtype')!r}."
            )
        saved = state["belief"]
        self._past, self.latest = [], None
        if saved is None:
            self._belief = None
            return
        size = np.size(saved["mean"])
        if size != self.estimator.space.size:
            raise ValueError(f"This state has {size} estimated values; the estimator has {self.estimator.space.size}.")
        self._belief = belief_from_json(saved, self.dtype)
        self._past = [past_from_json(each, self.dtype) for each in state.get("past", ())]

    def _first(self, t: float, w: np.ndarray | None, y: np.ndarray) -> Belief | str:
        """The belief at the first sample, or why there is none."""
        x0 = self._start["x0"]
        if x0 is None:
            twin = self.estimator.space.twin
            inputs = None if w is None else jnp.asarray(w)
            p = self.estimator.space.first_parameters(self.dtype)
            x0 = np.asarray(twin.initial_state(jnp.asarray(t), jnp.asarray(y, self.dtype), inputs, p))
            if not np.isfinite(x0).all():
                return "The first sample has missing measurements: the follower has not started."
        return self._init(t, x0, w)

    def _init(self, t: float, x0: np.ndarray, w: np.ndarray | None) -> Belief:
        start = {"parameters": self._start["parameters"], "level": self._start["level"]}
        return self.estimator.init(t, jnp.asarray(x0, self.dtype), self._start["std"], w=w, **start)

    def _output(self, t: float, note: str, result: RESULTS, innovation: Any, estimate: Any) -> FollowerOutput:
        """What is reported of an `Innovation` and an `Estimate`, both on the host."""
        alive = bool(self._belief is not None and self._belief.alive)
        notes = [RESULTS[each] for each in (result, innovation.result) if int(outcome_codes(each)) != 0]
        ok = not notes
        if not alive:
            return self._nothing(t, f"{notes[0]} Make a new follower to continue.")
        refused = np.isfinite(innovation.residual) & ~innovation.accepted
        if refused.any():
            channels = ", ".join(map(str, np.flatnonzero(refused)))
            notes.append(f"Output {channels} was refused as an outlier." if ok else "The measurement was not used.")
        return FollowerOutput(
            t=t,
            x=estimate.x,
            x_std=estimate.x_std,
            y=innovation.y,
            y_std=innovation.std,
            residual=innovation.residual,
            accepted=innovation.accepted,
            nis=float(innovation.nis),
            level=estimate.level,
            parameters=estimate.parameters,
            parameters_std=estimate.parameters_std,
            ok=ok,
            message=" ".join([*notes, note] if note else notes),
        )

    def _nothing(self, t: float, message: str) -> FollowerOutput:
        k, space = self.estimator.noise.outputs, self.estimator.space
        m = 0 if self._belief is None else self._belief.level.shape[0]
        x, y, no = np.full(space.states, np.nan), np.full(k, np.nan), np.zeros(k, bool)
        unknown = {name: np.full(each.raw.shape, np.nan) for name, each in space.followed.items()}
        return FollowerOutput(
            t, x, x, y, y, y, no, np.nan, np.full(m, np.nan), unknown, unknown, ok=False, message=message
        )


@eqx.filter_jit
def _follow(estimator: AbstractEstimator, belief: Belief, t: Any, w: Any, y: Any) -> tuple[Belief, tuple]:
    predicted, result = estimator.predict(belief, t, w)
    corrected, innovation = estimator.update(predicted, y)
    return corrected, (result, innovation, estimator.estimate(corrected))
