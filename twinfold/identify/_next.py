"""Update, then predict: parameters re-estimated on the last run of a unit, and its next run predicted.

Four predictions of the next run, from what the unit did before:

    last      y of the last run at the same position (persistence)
    carried   the updated twin, and what it left over in the last run at the same position
    + drift   either of them, with the change that the twin expects if its parameters drift on as they did

    combined = sum_i weight_i prediction_i,      weight_i ~ error_i^-3

Under another load than in the last run (more than a tenth, where the position is the integral of an input) nothing of
this holds but the physics: `carried` alone is what is combined then.

`error_i` is the running geometric mean of the errors of a prediction in the earlier runs of the unit, so that one bad
run does not count for long. The position along a run is
time, or the integral of an input (a current: the charge). The drift is a weighted median of the changes from run to run
so far: recent ones count more, and those after a rest of similar length, so that capacity which is regained in a long
rest is expected after the next long rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold._core import quick_jit
from twinfold.data import Batch, Dataset, Run
from twinfold.data._rows import rows_of, simulate_row
from twinfold.identify._reestimate import MAX_STEPS, ParameterEstimates, reestimate, with_change
from twinfold.model import Twin

# Chosen on eleven of NASA's cells, see results/battery/README.md.
MEMORY = 20.0  # runs after which a change counts 1/e
ALIKE = 0.5  # difference of the logarithms of two rests at which a change counts exp(-1/2)
MIN_CHANGES = 3  # before which no drift is expected
RATE = 0.15  # weight of the newest error in the running mean
POWER = 3
NEW_LOAD = 0.1  # relative change of the load
SMALLEST = 1e-6  # of the largest error of a run: smaller ones count as this
BLENDED = ("last", "last+drift", "carried", "carried+drift")
VARIANTS = ("updated", *BLENDED, "combined")


@dataclass(frozen=True, eq=False)
class NextPredictions:
    """Predictions of R runs, each from the runs of its unit before it; returned by `predict_next`.

    `runs`, their names (the first run of a unit is not among them); `y` [R, T, k], measured, NaN where not;
    `predicted`, arrays [R, T, k] by the names of `VARIANTS`: `updated`, the twin with the parameters of the last run;
    `last`, persistence; `carried`, the updated twin and what it left over; both with `+drift`; `combined`. `weights`
    [R, 4, k] of the four that are combined; `values` [R, P], the parameters expected, drift included; `estimates` of
    all runs of the data. Where a run has none (see its `failures`), that of the run before it counts.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-(0.5 + 0.02 * k) * ts) for k in range(8)], groups=["pump"] * 8)
    found = tw.identify.predict_next(tw.Twin(lambda x, p: -p["k"] * x, params={"k": 0.6}), data, ["k"])
    found.errors["combined"][-1] < 0.1 * found.errors["last"][-1]  # [True]: the drift is the whole change
    found.values[-1]  # [0.64]
    ```
    """

    runs: tuple[str, ...]
    y: np.ndarray
    predicted: dict[str, np.ndarray]
    weights: np.ndarray
    values: np.ndarray
    estimates: ParameterEstimates

    @property
    def errors(self) -> dict[str, np.ndarray]:
        """The mean absolute error of each variant, [R, k]; NaN where nothing was measured."""
        return {name: _mean_error(values, self.y) for name, values in self.predicted.items()}


def predict_next(
    twin: Twin,
    data: Dataset,
    names: Sequence[str],
    *,
    along: str = "",
    rest: Sequence[float] | np.ndarray | None = None,
    scale: Sequence[float] | None = None,
    max_steps: int = MAX_STEPS,
) -> NextPredictions:
    """Predict every run of a unit from those before it: parameters are re-estimated on the last one.

    The runs of a unit are those of a group, in the order of the data. Nothing of a run is used for its prediction but
    its times, inputs and initial state; leave out its outputs to predict one that was not measured yet.

    **Arguments:** `twin`, fitted, with parameters for every group; `data`; `names` of positive parameters to
    re-estimate; `along`, the input whose integral is the position along a run (default: the time since its start);
    `rest` [R], how long the unit rested before each run, in any unit; `scale` of each output and `max_steps`, see
    `reestimate`.

    **Returns:** `NextPredictions`.

    **Raises:** `ValueError` if there is no such input, no unit with two runs, or a rest that is negative or missing.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-(0.5 + 0.02 * k) * ts) for k in range(8)], groups=["pump"] * 8)
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": 0.6})
    tw.identify.predict_next(twin, data, ["k"]).predicted["combined"].shape  # (7, 21, 1)
    ```
    """
    if along and along not in data.input_names:
        raise ValueError(f"along={along!r}: the inputs are {', '.join(data.input_names) or 'none'}.")
    rests = None if rest is None else np.asarray(rest, np.float64)
    if rests is not None and (rests.shape != (len(data),) or not (rests >= 0).all()):
        raise ValueError(f"rest: give how long the unit rested before each of the {len(data)} runs, none negative.")
    before = _runs_before(data.groups)
    later = np.flatnonzero(before >= 0)
    if not len(later):
        raise ValueError(
            "predict_next: no group has two runs; the runs of a unit need the name of their group in common."
        )
    estimates = reestimate(twin, data, names, scale=scale, max_steps=max_steps)
    changes, drifts = _changes_and_drifts(estimates.change, before, rests)
    rows = rows_of(twin, data)
    last_changes = np.where(before[:, None] >= 0, changes[before], 0.0)
    (own, _), (updated, _), (drifted, values) = (
        [np.asarray(each) for each in _outputs(rows.adapt(twin), rows.batch, tuple(names), jnp.asarray(change))]
        for change in (changes, last_changes, last_changes + drifts)
    )
    positions = [_position(run, data, along) for run in data.runs]
    longest = own.shape[1]
    predicted = {name: np.full((len(later), longest, own.shape[2]), np.nan) for name in VARIANTS}
    measured = np.full_like(predicted["last"], np.nan)
    for row, index in enumerate(later):
        run, last = data.runs[index], data.runs[before[index]]
        length = len(run.ts)
        measured[row, :length] = run.y
        here, there = positions[index], positions[before[index]]
        kept, left = (_at(here, there, each) for each in (last.y, last.y - own[before[index], : len(last.ts)]))
        expected = drifted[index, :length] - updated[index, :length]
        found = {"updated": updated[index, :length], "last": kept, "carried": updated[index, :length] + left}
        found |= {f"{name}+drift": found[name] + expected for name in ("last", "carried")}
        for name, each in found.items():
            predicted[name][row, :length] = each
    weights = _weights({name: _mean_error(predicted[name], measured) for name in BLENDED}, later, before)
    if along:
        loads = np.array([_load(run, data.input_names.index(along)) for run in data.runs])
        changed = np.abs(loads[later] - loads[before[later]]) > NEW_LOAD * loads[before[later]]
        weights[changed] = np.array([name == "carried" for name in BLENDED], float)[:, None]
    blended = np.stack([predicted[name] for name in BLENDED], axis=1)
    predicted["combined"] = (weights[:, :, None] * blended).sum(axis=1)
    return NextPredictions(
        tuple(data.names[index] for index in later), measured, predicted, weights, values[later], estimates
    )


def _runs_before(groups: Sequence[str]) -> np.ndarray:
    """The index of the last run of the same group before each run; -1 for the first."""
    latest: dict[str, int] = {}
    before = np.full(len(groups), -1)
    for index, group in enumerate(groups):
        before[index] = latest.get(group, -1)
        latest[group] = index
    return before


def _changes_and_drifts(
    change: np.ndarray, before: np.ndarray, rests: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The change [R, P] of each run, that of the run before it if it has none, and the drift expected up to it."""
    filled, drifts = np.zeros_like(change), np.zeros_like(change)
    steps: dict[int, list[int]] = {-1: []}  # for each run, the runs up to it that have a change from the one before
    for index, last in enumerate(before):
        found = np.isfinite(change[index]).all()
        filled[index] = change[index] if found else filled[last] if last >= 0 else 0.0
        known = steps[last] if last >= 0 else []
        if len(known) >= MIN_CHANGES:
            moves = change[known] - change[before[known]]
            drifts[index] = _weighted_median(moves, _similarity(known, index, rests))
        complete = found and last >= 0 and np.isfinite(change[last]).all()
        steps[index] = [*known, index] if complete else known
    return filled, drifts


def _similarity(known: Sequence[int], index: int, rests: np.ndarray | None) -> np.ndarray:
    """How much the changes of earlier runs count for the next one."""
    weight = np.exp(-np.arange(len(known))[::-1] / MEMORY)
    if rests is None:
        return weight
    smallest = 0.02 * np.median(rests[known]) + np.finfo(float).tiny
    distance = np.log(rests[known] + smallest) - np.log(rests[index] + smallest)
    # The floor: after a rest that is unlike any before, all changes count.
    return weight * (np.exp(-0.5 * (distance / ALIKE) ** 2) + 1e-9)


def _weighted_median(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weighted median of each column."""
    order = np.argsort(values, axis=0)
    shares = np.cumsum(weight[order], axis=0)
    row = (shares < shares[-1] / 2).sum(axis=0)
    return np.take_along_axis(np.take_along_axis(values, order, axis=0), row[None], axis=0)[0]


def _position(run: Run, data: Dataset, along: str) -> np.ndarray:
    """Where each sample of a run is: its time since the start, or the integral of an input that is held."""
    if not along:
        return run.ts - run.ts[0]
    assert run.w is not None, "a run with inputs"
    steps = np.diff(run.ts)
    rate = np.abs(run.w[:-1, data.input_names.index(along)])
    # Strictly increasing, as interpolation requires, also while the input is zero.
    return np.concatenate([[0.0], np.cumsum(steps * np.maximum(rate, 1e-9 * max(rate.max(initial=0.0), 1e-9)))])


def _load(run: Run, column: int) -> float:
    """The size of an input while it acts: its mean over the charge, so that pauses do not count."""
    assert run.w is not None, "a run with inputs"
    steps, size = np.diff(run.ts), np.abs(run.w[:-1, column])
    charge = float(steps @ size)
    return float(steps @ size**2) / charge if charge > 0 else 0.0


def _at(here: np.ndarray, there: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values [T, k] of another run at the positions of this one, held beyond its end; NaN if there are none."""
    columns = []
    for column in values.T:
        known = np.isfinite(column)
        columns.append(np.interp(here, there[known], column[known]) if known.any() else np.full(len(here), np.nan))
    return np.stack(columns, axis=1)


def _mean_error(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """The mean absolute error of each run and output, [R, k]; NaN where nothing was measured."""
    error, known = np.abs(predicted - measured), np.isfinite(measured)
    count = known.sum(axis=1)
    return np.where(count > 0, np.where(known, error, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)


def _weights(errors: dict[str, np.ndarray], later: np.ndarray, before: np.ndarray) -> np.ndarray:
    """The weights [R, 4, k] of each run, from the errors of its unit in the runs before it."""
    stacked = np.stack([errors[name] for name in BLENDED], axis=1)
    smallest = SMALLEST * stacked.max(axis=1, keepdims=True) + np.finfo(float).tiny
    logs = np.log(np.maximum(stacked, smallest))
    running: dict[int, np.ndarray] = {}
    weights = np.empty_like(stacked)
    earlier = before.tolist()
    for row, index in enumerate(later.tolist()):
        mean, new = running.get(earlier[index]), logs[row]
        known = np.zeros_like(new) if mean is None else mean
        weight = np.exp(-POWER * (known - known.min(axis=0)))
        weights[row] = weight / weight.sum(axis=0)
        if mean is not None:  # where nothing was measured nothing was learned
            running[index] = np.where(np.isfinite(new), mean + RATE * (new - mean), mean)
        elif np.isfinite(new).all():
            running[index] = new
    return weights


@quick_jit
def _outputs(
    twin: Twin, batch: Batch, names: tuple[str, ...], change: Float[Array, "R P"]
) -> tuple[Float[Array, "R T k"], Float[Array, "R P"]]:
    """The outputs of each run with parameters changed by these logarithms, and the values of these parameters."""

    def run(row: Batch, change: Float[Array, " P"]) -> tuple[Array, Array]:
        p = with_change(twin.parameters(row.run), names, change)
        return simulate_row(twin, row, p).valid_ys, jnp.stack([p[name] for name in names])

    return jax.vmap(run)(batch, change)
