"""From a twin and its data to the problem that all seeds share, with every static mistake named on the way."""

import warnings
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from twinfold.data import Batch, Dataset
from twinfold.model import Twin
from twinfold.model._learned.base import learned_parts
from twinfold.model._learned.base import trainable as trainable_leaves
from twinfold.model._twin import check_model
from twinfold.numerics._stiffness import unstable_step
from twinfold.train._estimate import Estimate, has_own_parameters, shooting_states
from twinfold.train._gradient import Adam, Gradient
from twinfold.train._levenberg import LevenbergMarquardt
from twinfold.train._loss import Loss
from twinfold.train._method import AbstractMethod, TrainingProblem
from twinfold.train._objective import Objective

Trainable = Literal["all", "per_run", "parameters"]
SHORT = 11  # samples in the windows of the first stages


def prepare(
    twin: Twin,
    data: Dataset,
    *,
    valid: Dataset | None = None,
    seeds: tuple[int, ...] = (0,),
    loss: Loss | None = None,
    window: int | None = None,
    shooting: bool | None = None,
    trainable: Trainable = "all",
    methods: tuple[AbstractMethod, ...] | None = None,
    remat: bool = False,
) -> tuple[tuple[AbstractMethod, ...], tuple[TrainingProblem, ...], PyTree]:
    """The stages, the problem that each solves, and the first parameters of all seeds; arguments as for `fit`."""
    loss = Loss() if loss is None else loss
    batch = data.batch() if window is None else data.windows(window)
    twin = _with_runs(twin, data, trainable)
    held = None if valid is None else batch_with_run_indices(twin, valid, "valid")
    states = _count_states(twin, batch)
    if held is not None:
        _count_states(twin, held)
    measured = twin.observe is None and twin.trajectory is None and bool(jnp.all(batch.mask))
    if methods is None:
        methods = default_methods(batch.ts.shape[1] if measured and window is None else None)
    estimated = not bool(jnp.all(batch.is_run_start)) and (not measured if shooting is None else shooting)
    if not estimated:
        _check_window_starts(twin, batch)
    _check_stages(methods, measured, estimated)
    statistics = data.statistics(observed_states=twin.observe is None)
    inputs = 0 if batch.w is None else batch.w.shape[-1]

    def draw(key: Array) -> Estimate:
        drawn = twin
        if trainable == "all" or not _drawn(twin):
            drawn = twin.initialise(key, states=states, inputs=inputs, dtype=batch.y.dtype, statistics=statistics)
        return Estimate(drawn, shooting_states(drawn, batch) if estimated else None)

    estimates = [draw(jax.random.key(seed)) for seed in seeds]
    _check_fit(estimates[0].twin, batch)
    parts = [eqx.partition(estimate, estimate.trainable(trainable)) for estimate in estimates]
    if not jax.tree.leaves(parts[0][0]):
        raise ValueError("twin: there is nothing to train; it has no learned part and no Unknown parameter.")
    params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(part[0] for part in parts))
    sigma = output_scale(batch, loss)
    # Rates of hidden states are not known: they count as they are.
    rate = statistics.rate_std if loss.scale == "std" else None
    objective = Objective(loss, sigma, jnp.ones(states, batch.y.dtype) if rate is None else rate, remat)
    frozen = parts[0][1]
    problems = tuple(
        TrainingProblem(objective, batch if method.window is None else data.windows(method.window), held, frozen)
        for method in methods
    )
    return methods, problems, params


def default_methods(samples: int | None) -> tuple[AbstractMethod, ...]:
    """Adam to come near, Levenberg-Marquardt to arrive.

    Where the state is measured throughout (`samples` in the longest run), first on short windows: there the loss is
    smooth and a wrong field cannot throw a trajectory far off.
    """
    if samples is None or samples < 2 * SHORT:
        return Adam(500, learning_rate=1e-2), LevenbergMarquardt(60)
    return Adam(200, learning_rate=1e-2, window=SHORT), LevenbergMarquardt(30, window=SHORT), LevenbergMarquardt(40)


def _drawn(twin: Twin) -> bool:
    """Whether its learned parts have weights."""
    return all(jax.tree.leaves(eqx.filter(part, trainable_leaves(part))) for part in learned_parts(twin))


def _with_runs(twin: Twin, data: Dataset, trainable: str) -> Twin:
    """The twin with a value for each run or group where it has parameters of that kind."""
    if twin.runs is None or trainable == "per_run":
        return twin.for_runs(data.names, data.groups)
    if has_own_parameters(twin) and (twin.runs, twin.groups) != (data.names, data.groups):
        raise ValueError(
            'data: the twin was fitted on other runs and has parameters of theirs. Pass trainable="per_run" to '
            "estimate those of the new runs, or start from the twin as it was before it was fitted."
        )
    return twin


def _check_window_starts(twin: Twin, batch: Batch) -> None:
    """Every window inside a run starts from a measured state, or a `ValueError` says why it cannot."""
    inside = ~batch.is_run_start
    if twin.trajectory is not None or not bool(jnp.any(inside)):
        return
    reason = "the outputs are not the states" if twin.observe is not None else ""
    if not reason and not bool(jnp.all(batch.mask[:, 0] | ~inside[:, None])):
        reason = "some of the states at their first samples were not measured"
    if reason:
        raise ValueError(
            f"shooting=False: windows inside a run have no state to start from, since {reason}. Leave `shooting` out "
            "(the states are then estimated), or train on whole runs (`window=None`)."
        )


def _check_stages(methods: tuple[AbstractMethod, ...], measured: bool, estimated: bool) -> None:
    """A stage's own windows need measured states; joined windows cannot be trained in small batches."""
    for method in methods:
        if method.window is not None and not measured:
            raise ValueError(
                f"{method.name}(window={method.window}): windows of a stage start from measured states, and some are "
                "not measured. Give `window=` to fit instead: it then estimates the states."
            )
        if estimated and isinstance(method, Gradient) and method.batch_size is not None:
            raise ValueError("batch_size: shooting windows are joined to their neighbours; train on all at once.")


def batch_with_run_indices(twin: Twin, data: Dataset, argument: str = "data") -> Batch:
    """Whole runs, each with the place of its own parameters in a fitted twin; a `ValueError` for a strange run."""
    batch = data.batch()
    if twin.runs is None or not has_own_parameters(twin):
        return batch
    places = twin.run_indices(data.names, data.groups)
    if places is None:
        missing = next(run.name for run in data.runs if twin.run_indices((run.name,), (run.group,)) is None)
        raise ValueError(
            f"{argument}: the twin has no parameters of run '{missing}' (Unknown with per_run=True or per_group=True); "
            f"it was fitted on {', '.join(twin.runs or ())}. Leave that run out, or estimate what belongs to it first: "
            'fit(twin, data, trainable="per_run").'
        )
    return eqx.tree_at(lambda batch: batch.run, batch, jnp.array(places))


def _first_state(twin: Twin, batch: Batch) -> tuple[Batch, dict[str, Any], Any]:
    row = jax.tree.map(lambda leaf: leaf[0], batch)
    p = twin.parameters(row.run)
    return row, p, twin.initial_state(row.origin_t, row.origin_y, row.origin_w, p, x0=row.x0, run=row.run)


def _count_states(twin: Twin, batch: Batch) -> int:
    """The number of states, from how a run starts."""
    if twin.initial is None and batch.x0 is None and not bool(jnp.all(batch.mask[:, 0] | ~batch.is_run_start[:, None])):
        raise ValueError(
            "data: the first sample of a run is not measured in full, so it cannot be the initial state. Give x0, or "
            "initial=Unknown(guess, per_run=True)."
        )
    _, _, x = _first_state(twin, batch)
    if x.ndim != 1:
        raise ValueError(f"initial: the state has shape {x.shape}; it must be a vector.")
    return x.shape[0]


def _check_fit(twin: Twin, batch: Batch) -> None:
    """Model and data fit together, or a `ValueError` says where they do not."""
    row, p, x = _first_state(twin, batch)
    w = None if row.w is None else row.w[0]
    check_model(twin, row.ts[0], x, w, p)
    level = twin.constraint.level(row.ts[0], x, p)
    # A warning only: the first state of an untrained network says little about the trained one.
    wrong = unstable_step(twin.cell, row.ts[0], x, w, p, level, float(jnp.max(jnp.diff(batch.ts))))
    if wrong is not None:
        warnings.warn(wrong, stacklevel=4)
    outputs = jax.eval_shape(twin.outputs, row.ts[0], x, w, p)
    if outputs.shape != row.y[0].shape:
        raise ValueError(
            f"data: runs have {row.y.shape[-1]} outputs, the twin observes {outputs.shape[0]}. Change `outputs`, or "
            "the twin's `observe`."
        )


def output_scale(batch: Batch, loss: Loss) -> Float[Array, " k"]:
    """The units of the outputs: the spread of each over its measured values, or one."""
    if loss.scale == "off":
        return jnp.ones(batch.y.shape[-1], batch.y.dtype)
    count = jnp.maximum(jnp.sum(batch.mask, (0, 1)), 1)
    mean = jnp.sum(batch.y, (0, 1)) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(batch.mask, (batch.y - mean) ** 2, 0), (0, 1)) / count)
    return jnp.where(spread > 0, spread, 1)
