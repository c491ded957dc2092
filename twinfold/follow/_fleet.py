"""Many assets of one model in one process: one compiled step over those that have a sample.

The step is compiled once, for `BATCH` assets: more of them take several calls, fewer leave places empty. So time grows
with the number of samples alone, no asset that joins compiles anything, and the numbers of an asset do not depend on
which others had a sample at the same time: they are the same bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Bool, Float

from twinfold._core import outcome_codes, outcome_messages
from twinfold.estimate import AbstractGaussianFilter
from twinfold.follow._names import parameter_names, place_of
from twinfold.follow._store import Store
from twinfold.model import Unknown

BATCH = 64
MAX_BACKWARDS = 10  # samples in a row before the last one, after which the clock was set back for good
MAX_REFUSED = 50  # samples in a row of which nothing was used, after which the filter has lost its plant

BEFORE = "The time is not after that of the last sample: left out."
AGAIN = "The sample of this time has these outputs already: left out."
NO_TIME = "The time is not a number: left out."
NO_INPUT = "An input of the first sample is missing: the asset has not started."
NO_START = "The first sample does not give a state to start from (a missing measurement): the asset has not started."
SET_BACK = "The clock was set back: the asset starts over."
GAP = "More than max_gap since the last sample: the asset starts over."
HELD = "A missing input was held at its last value."
REFUSED = "An outlier was refused."
LOST = "Every value of the last 50 samples was refused: the estimate is lost."
OVER = "The asset starts over with its next sample."


@dataclass(frozen=True, eq=False)
class FleetOutput:
    """The estimates at some samples, one row for each; see `twinfold.estimate.FollowerOutput`.

    `row` is the number of the asset in the fleet. The parameters that are followed, and their standard deviations, are
    columns in the order of `Fleet.parameters`. Where `ok` is False, there is no estimate (NaN), or one with a fault;
    `message` says which, and what else was noticed.

    **Example:**

    ```python
    estimator = tw.estimate.ExtendedKalmanFilter(tw.Twin(lambda x: -x), tw.estimate.Noise([0.1], [0.1]))
    output = tw.follow.Fleet(estimator, std=[0.5]).step(["a", "b"], [0.0, 0.0], None, [[1.1], [0.3]])
    output.x, output.y_std, output.ok
    ```
    """

    row: np.ndarray
    t: Float[np.ndarray, " B"]
    x: Float[np.ndarray, "B n"]
    x_std: Float[np.ndarray, "B n"]
    y: Float[np.ndarray, "B k"]
    y_std: Float[np.ndarray, "B k"]
    residual: Float[np.ndarray, "B k"]
    accepted: Bool[np.ndarray, "B k"]
    nis: Float[np.ndarray, " B"]
    parameters: Float[np.ndarray, "B q"]
    parameters_std: Float[np.ndarray, "B q"]
    ok: Bool[np.ndarray, " B"]
    message: list[str]


class Fleet:
    """The running state of all assets that follow one estimator.

    An asset joins with its first sample. Outputs may be measured at different rates: what is not measured is NaN, and a
    second sample of the same time adds the outputs that were missing in the first.

    No sample raises an exception: a clock that goes back, a missing value, an outlier or a model that diverges is
    reported for that asset, and the others go on. An asset whose model failed, whose clock was set back (more than ten
    samples in a row are earlier than one before them), of which every value was refused for fifty samples, or that was
    silent for more than `max_gap` starts over.

    **Arguments:** the `estimator`; `x0`, the state at the first sample of each asset, or None where the twin computes
    it from the measurement; `std`, its standard deviations or covariance; `parameters` and `level` as for
    `ExtendedKalmanFilter.init`; `max_gap`, a time.

    **Example:**

    ```python
    twin = tw.Twin(lambda x, w: w - x)
    estimator = tw.estimate.ExtendedKalmanFilter(twin, tw.estimate.Noise([0.1], [0.05]), gate=1e-4)
    fleet = tw.follow.Fleet(estimator, std=[1.0])
    for t in (0.0, 0.1, 0.2):
        output = fleet.step(["pump", "fan"], [t, t], [[1.0], [0.5]], [[0.3 + t], [np.nan if t else 0.1]])
    output.x, output.message
    ```
    """

    def __init__(
        self,
        estimator: AbstractGaussianFilter,
        x0: ArrayLike | Sequence | None = None,
        *,
        std: ArrayLike | Sequence,
        parameters: Mapping[str, ArrayLike] | None = None,
        level: ArrayLike | Sequence | None = None,
        max_gap: float = np.inf,
    ):
        twin = estimator.space.twin
        if x0 is None and isinstance(twin.initial, Unknown):
            raise ValueError("x0: the twin estimates its initial states in a fit; give one for the assets.")
        if x0 is None and twin.initial is None and twin.observe is not None:
            raise ValueError("x0: the state is not what is observed; give it, or give the twin an `initial`.")
        if not max_gap > 0:
            raise ValueError(f"max_gap={max_gap}: give a positive time, or leave it out.")
        self.estimator, self.max_gap = estimator, float(max_gap)
        self.dtype = np.dtype(jnp.zeros(()).dtype)
        self.parameters = parameter_names(estimator.space)
        self._start: dict[str, Any] = {"std": np.asarray(std, float), "parameters": parameters, "level": level}
        self._x0 = None if x0 is None else np.asarray(x0, self.dtype)
        self._begin, self._follow = jax.jit(jax.vmap(self._begin_one)), jax.jit(jax.vmap(self._follow_one))
        self._inputs: int | None = None
        self._store: Store | None = None
        if self._x0 is not None:
            estimator.init(0.0, self._x0, **self._start)  # mistakes are raised here, not in a plant
        self.assets: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.assets)

    def last_times(self) -> np.ndarray:
        """The time of the last sample of each asset; NaN for one that has not started."""
        if self._store is None:
            return np.full(len(self), np.nan)
        return np.where(self._store.started, self._store.belief.t, np.nan)[: len(self)]

    def step(
        self,
        assets: Sequence[str],
        t: ArrayLike | Sequence,
        w: ArrayLike | Sequence | None,
        y: ArrayLike | Sequence,
    ) -> FleetOutput:
        """The estimates at the next sample of some assets.

        **Arguments:** the names of the `assets`, each once; the times `t` [B] of the samples; the inputs `w` [B, d], or
        None, and the measurements `y` [B, k], NaN where a value is missing.

        **Raises:** `ValueError` where the arrays do not have these shapes, or an asset is named twice.
        """
        t, y = np.array(t, self.dtype), np.array(y, self.dtype)
        count, k = len(assets), self.estimator.noise.outputs
        inputs = np.zeros((count, 0), self.dtype) if w is None else np.array(w, self.dtype)
        if t.shape != (count,) or y.shape != (count, k) or inputs.shape[:1] != (count,) or inputs.ndim != 2:
            raise ValueError(f"{count} assets, but t, w and y have shapes {t.shape}, {inputs.shape} and {y.shape}.")
        if len(set(assets)) != count:
            raise ValueError("assets: one is named twice; give its samples one after the other.")
        store = self._ready(inputs.shape[1])
        rows = np.array([place_of(self.assets, name) for name in assets], int)
        store.reserve(len(self.assets))
        notes: list[list[str]] = [[] for _ in assets]
        first, usable = self._sort_out(store, rows, t, inputs, y, notes)
        fresh = np.flatnonzero(first & usable)
        for part in np.split(fresh, range(BATCH, len(fresh), BATCH)) if len(fresh) else ():
            began = self._call(self._begin, len(part), t[part], inputs[part], y[part])
            sound = np.isfinite(began.mean).all(axis=1) & np.isfinite(began.root).all(axis=(1, 2))
            store.put(rows[part[sound]], jax.tree.map(lambda leaf, sound=sound: leaf[sound], began))
            for place in part[~sound]:
                notes[place].append(NO_START)
            usable[part[~sound]] = False
        return self._advance(store, rows, t, inputs, y, np.flatnonzero(usable), notes)

    def _ready(self, inputs: int) -> Store:
        """The store of the beliefs, whose shapes the first sample tells."""
        if self._store is None:
            self._inputs = inputs
            k = self.estimator.noise.outputs
            shapes = [jax.ShapeDtypeStruct((BATCH, *shape), self.dtype) for shape in ((), (inputs,), (k,))]
            self._store = Store.empty(jax.eval_shape(self._begin, *shapes), k)
        elif inputs != self._inputs:
            raise ValueError(f"w has {inputs} columns; the samples before it had {self._inputs}.")
        return self._store

    def _sort_out(
        self, store: Store, rows: np.ndarray, t: np.ndarray, w: np.ndarray, y: np.ndarray, notes: list[list[str]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Which samples are the first of an asset, and which can be used.

        In place: missing inputs are held, and a second sample of one time keeps the outputs that the first had not.
        """
        started, last = store.started[rows], store.belief.t[rows]
        timed = np.isfinite(t)
        same = timed & started & (t == last)
        y[same[:, None] & store.measured[rows]] = np.nan
        added = same & np.isfinite(y).any(axis=1)
        early = timed & started & ~(t > last) & ~added
        store.backwards[rows] = np.where(early, store.backwards[rows] + 1, np.where(timed, 0, store.backwards[rows]))
        set_back = early & (store.backwards[rows] > MAX_BACKWARDS)
        silent = timed & started & (t - last > self.max_gap)
        store.backwards[rows[set_back]] = 0
        first = ~started | set_back | silent
        missing = ~np.isfinite(w)
        held = missing.any(axis=1) & ~first
        if w.shape[1]:
            w[:] = np.where(missing & ~first[:, None], store.belief.w[rows], w)
        lacking = ~np.isfinite(w).all(axis=1)
        left_out = early & ~set_back
        for mask, text in (
            (~timed, NO_TIME),
            (left_out & ~same, BEFORE),
            (left_out & same, AGAIN),
            (set_back, SET_BACK),
            (silent, GAP),
            (timed & lacking & ~left_out, NO_INPUT),
            (timed & held & ~left_out, HELD),
        ):
            for place in np.flatnonzero(mask):
                notes[place].append(text)
        usable = timed & ~lacking & ~left_out
        kept = np.where((usable & added)[:, None], store.measured[rows], False)
        store.measured[rows] = np.where(usable[:, None], kept | np.isfinite(y), store.measured[rows])
        return first, usable

    def _advance(
        self,
        store: Store,
        rows: np.ndarray,
        t: np.ndarray,
        w: np.ndarray,
        y: np.ndarray,
        use: np.ndarray,
        notes: list[list[str]],
    ) -> FleetOutput:
        """Predict and correct the samples `use`; the others have no estimate."""
        count, k, n, q = len(rows), y.shape[1], self.estimator.space.states, len(self.parameters)
        widths = {"x": n, "x_std": n, "y": k, "y_std": k, "residual": k, "parameters": q, "parameters_std": q}
        out: dict[str, Any] = {name: np.full((count, width), np.nan) for name, width in widths.items()}
        out |= {"accepted": np.zeros((count, k), bool), "nis": np.full(count, np.nan), "ok": np.zeros(count, bool)}
        for part in np.split(use, range(BATCH, len(use), BATCH)) if len(use) else ():
            belief = store.take(rows[part], BATCH)
            after, found = self._call(self._follow, len(part), belief, t[part], w[part], y[part])
            store.put(rows[part], after)
            codes, values = found.pop("codes"), found
            alive = np.asarray(after.alive)
            measured = np.isfinite(values["residual"])
            lost = alive & store.count_refused(rows[part], measured, values["accepted"], MAX_REFUSED)
            # A model that failed has no estimate, and its asset begins again.
            store.started[rows[part[~alive | lost]]] = False
            for name, value in values.items():
                blank = False if value.dtype == bool else np.nan
                out[name][part] = np.where(alive.reshape(-1, *[1] * (value.ndim - 1)), value, blank)
            out["ok"][part] = alive & (codes == 0).all(axis=1)
            refused = (measured & ~values["accepted"]).any(axis=1)
            for place in np.flatnonzero(refused | ~alive | (codes != 0).any(axis=1)):
                texts = [MESSAGES[code] for code in codes[place] if code] or [LOST if lost[place] else REFUSED]
                notes[part[place]] += [*texts, *([OVER] if lost[place] or not alive[place] else [])]
        return FleetOutput(rows, t, **out, message=[" ".join(each) for each in notes])

    def _call(self, compiled: Any, count: int, *arrays: Any) -> Any:
        """The compiled function of `count` assets, with the first repeated in the places that are empty."""
        padded = jax.tree.map(
            lambda leaf: np.concatenate([leaf, np.repeat(leaf[:1], BATCH - len(leaf), axis=0)]), arrays
        )
        found = jax.device_get(compiled(*padded))
        return jax.tree.map(lambda leaf: leaf[:count], found)

    def _begin_one(self, t: Any, w: Any, y: Any) -> Any:
        twin, inputs = self.estimator.space.twin, w if self._inputs else None
        p = self.estimator.space.first_parameters(self.dtype)
        x0 = twin.initial_state(t, y, inputs, p) if self._x0 is None else jnp.asarray(self._x0)
        return self.estimator.init(t, x0.astype(self.dtype), self._start["std"], w=inputs, **self._prior)

    @property
    def _prior(self) -> dict[str, Any]:
        return {name: self._start[name] for name in ("parameters", "level")}

    def _follow_one(self, belief: Any, t: Any, w: Any, y: Any) -> tuple[Any, dict[str, Any]]:
        predicted, result = self.estimator.predict(belief, t, w if self._inputs else None)
        corrected, innovation = self.estimator.update(predicted, y)
        estimate = self.estimator.estimate(corrected)
        names, empty = self.estimator.space.followed, [jnp.zeros(0, self.dtype)]
        flat = lambda each: jnp.concatenate([jnp.ravel(each[name]) for name in names] or empty)  # noqa: E731
        return corrected, {
            "x": estimate.x,
            "x_std": estimate.x_std,
            "y": innovation.y,
            "y_std": innovation.std,
            "residual": innovation.residual,
            "accepted": innovation.accepted,
            "nis": innovation.nis,
            "parameters": flat(estimate.parameters),
            "parameters_std": flat(estimate.parameters_std),
            "codes": jnp.stack([outcome_codes(result), outcome_codes(innovation.result)]),
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything but the names of the assets, in arrays that later samples do not change."""
        return {} if self._store is None else self._store.arrays(len(self))

    def restore(self, assets: Sequence[str], arrays: Mapping[str, np.ndarray], inputs: int) -> None:
        """Continue from the `arrays` of a fleet with the same estimator, exactly.

        **Raises:** `ValueError` if they are those of another estimator.
        """
        self._store, self.assets = None, {}
        if len(assets):
            store = self._ready(inputs)
            store.reserve(len(assets))
            store.fill(arrays, len(assets))
            self.assets = {name: row for row, name in enumerate(assets)}


MESSAGES = outcome_messages()
