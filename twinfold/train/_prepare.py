"""From a twin and its data to the problem that all seeds share, with every static mistake named on the way."""

import warnings
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from twinfold._core import tree_take
from twinfold.data import Batch, Dataset
from twinfold.data._batch import output_spread
from twinfold.data._rows import check_batch, rows_of, with_own_values
from twinfold.data._warmup import DEFAULT_WARMUP
from twinfold.model import Twin, Unknown
from twinfold.model._learned.base import learned_parts
from twinfold.model._learned.base import trainable as trainable_leaves
from twinfold.numerics import NoProjection, Unconstrained
from twinfold.numerics._stability import stability_problem
from twinfold.train._estimate import Estimate, shooting_states
from twinfold.train._gradient import Adam, Gradient
from twinfold.train._levenberg import LevenbergMarquardt
from twinfold.train._loss import Loss
from twinfold.train._method import AbstractMethod
from twinfold.train._problem import TrainingProblem
from twinfold.train._region import without_regions
from twinfold.train._units import statistics_for
from twinfold.typing import State

Trainable = Literal["all", "per_run", "parameters"]
Project = Literal["late", "always"]
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
    project: Project = "late",
    draw: bool = True,
) -> tuple[tuple[AbstractMethod, ...], tuple[TrainingProblem, ...], PyTree]:
    """The stages, the problem that each solves, and the first parameters of all seeds; arguments as for `fit`.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    _, (problem,), params = tw.train.prepare(twin, data, methods=(tw.LevenbergMarquardt(5),))
    first_seed = jax.tree.map(lambda leaf: leaf[0], params)
    problem.training_loss(first_seed)
    ```
    """
    loss = Loss() if loss is None else loss
    batch = data.batch() if window is None else data.windows(window)
    if not draw and not _drawn(twin):
        raise ValueError("draw=False: the learned parts of the twin have no weights to start from; fit it first.")
    twin = _with_runs(twin, data, trainable) if draw else continued(twin, data)
    held = None if valid is None else rows_of(twin, valid)
    states = check_batch(twin, batch, data, drawn=False).shape[0]
    if held is not None and valid is not None and held.newcomers is None:
        check_batch(twin, held.batch, valid, "valid", drawn=False)
    measured = twin.observe is None and twin.trajectory is None and bool(np.all(batch.mask))
    whole = _needs_whole_runs(twin)
    if methods is None:
        methods = default_methods(
            batch.ts.shape[1] if measured and window is None and not whole else None, windows=window is not None
        )
        if not learned_parts(twin):
            # A few parameters have a first guess: nothing random for Adam to begin with, and one program less.
            methods = tuple(method for method in methods if not isinstance(method, Gradient))
            methods = methods if methods[0].window is not None else methods[-1:]
    estimated = not bool(np.all(batch.is_run_start)) and (not measured if shooting is None else shooting)
    if not estimated:
        _check_window_starts(twin, batch)
    if whole and (window is not None or any(method.window is not None for method in methods)):
        raise ValueError(
            f"window: within a run, {whole}, so a window that starts there would start wrongly. Train on whole runs "
            "(`window=None`, and methods without a window)."
        )
    _check_stages(methods, measured, estimated)
    fresh = trainable == "all" or not _drawn(twin)
    statistics = statistics_for(twin, data, states) if fresh else None
    inputs = 0 if batch.w is None else batch.w.shape[-1]
    if twin.warmup is not None and statistics is not None and statistics.x_std is not None:
        # Runs may start anywhere: initial states vary as much as states do.
        twin = twin.with_starts(_starts(twin, len(data)), statistics.x_std)

    def begin(key: Array) -> Estimate:
        drawn = twin
        if fresh and draw:
            drawn = twin.initialise(key, states=states, inputs=inputs, dtype=batch.y.dtype, statistics=statistics)
        return Estimate(drawn, shooting_states(drawn, batch) if estimated else None)

    estimates = [begin(jax.random.key(seed)) for seed in seeds]
    _check_stability(estimates[0].twin, batch, check_batch(estimates[0].twin, batch, data))
    parts = [eqx.partition(estimate, estimate.trainable(trainable)) for estimate in estimates]
    if not jax.tree.leaves(parts[0][0]):
        raise ValueError("twin: there is nothing to train; it has no learned part and no Unknown parameter.")
    params = jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *(part[0] for part in parts))
    sigma = output_scale(batch, loss)
    # Rates of hidden states are not known: they count as they are.
    rate = data.statistics(observed_states=twin.observe is None).rate_std if loss.scale == "std" else None
    units = jax.device_put(np.ones(states, batch.y.dtype)) if rate is None else rate
    batches = (batch if method.window is None else data.windows(method.window) for method in methods)
    first = _first_projected(twin, methods, project)
    problems = tuple(
        TrainingProblem(
            loss.traced(batch.y.dtype),
            sigma,
            units,
            each,
            None if held is None else held.unseen,
            parts[0][1],
            remat,
            projected=stage >= first,
            newcomers=None if held is None else held.newcomers,
            estimated=loss.estimated,
        )
        for stage, each in enumerate(batches)
    )
    return methods, problems, params


def default_methods(samples: int | None, *, windows: bool = False) -> tuple[AbstractMethod, ...]:
    """The default stages, of which the last is Levenberg-Marquardt to convergence.

    Where every state is measured (`samples` in the longest run), the first stages train on short windows: their loss is
    smoother, since a wrong field cannot take a trajectory far from the data. Where states are hidden,
    Levenberg-Marquardt comes first as well: unknown parameters and initial states are far off, and Adam would train the
    network to make up for them. Not so where the runs are cut into `windows` already: states that are estimated every
    few samples keep a random network near the data, and Levenberg-Marquardt would bend them towards it.

    **Example:**

    ```python
    tw.train.default_methods(101)
    ```
    """
    if windows:
        return Adam(200, learning_rate=1e-2), LevenbergMarquardt(60)
    if samples is None or samples < 2 * SHORT:
        descent = LevenbergMarquardt(60)  # twice the same, which is compiled once
        return descent, Adam(200, learning_rate=1e-2), descent
    return Adam(200, learning_rate=1e-2, window=SHORT), LevenbergMarquardt(30, window=SHORT), LevenbergMarquardt(40)


def _first_projected(twin: Twin, methods: tuple[AbstractMethod, ...], project: Project) -> int:
    """The index of the first stage in which the twin's projection takes part.

    A random network takes the state far from the manifold, where a projection costs much and teaches little: what it
    corrects is not seen by the loss. Only the last stage needs it, which adapts the network to it.
    """
    if project not in ("late", "always"):
        raise ValueError(f'project={project!r}: give "late" or "always".')
    return 0 if project == "always" or isinstance(twin.projection, NoProjection) else len(methods) - 1


def continued(fitted: Twin, data: Dataset) -> Twin:
    """A fitted twin for a fit to other runs that begins where it ended.

    The regions of its learned parts are found anew. What belongs to single runs, such as their initial states, is
    estimated from their first samples.
    """
    if any(unknown.per_group for unknown in fitted.unknowns()):
        raise ValueError(
            "draw=False: a parameter of groups of runs (per_group=True) cannot be continued with other runs; leave "
            "`draw` out."
        )
    origins = tuple(run.origin(fitted.warmup or DEFAULT_WARMUP) for run in data.runs)
    twin = eqx.tree_at(
        lambda twin: (twin.runs, twin.groups, twin.origins),
        rows_of(fitted, data).adapt(fitted),
        (data.names, data.groups, origins),
        is_leaf=lambda node: node is None,
    )
    return without_regions(twin)


def _starts(twin: Twin, runs: int) -> Float[Array, "R n"]:
    """The initial states of all runs."""
    assert isinstance(twin.initial, Unknown)
    return jax.vmap(twin.initial.value)(jnp.arange(runs))


def _drawn(twin: Twin) -> bool:
    """Whether its learned parts have weights."""
    return all(jax.tree.leaves(eqx.filter(part, trainable_leaves(part))) for part in learned_parts(twin))


def _with_runs(twin: Twin, data: Dataset, trainable: str) -> Twin:
    """The twin with a value for each run or group where it has parameters of that kind."""
    if twin.runs is None or trainable == "per_run":
        return with_own_values(twin, data)
    if twin.has_own_parameters and (twin.runs, twin.groups) != (data.names, data.groups):
        raise ValueError(
            'data: the twin was fitted on other runs and has parameters of theirs. Pass trainable="per_run" to '
            "estimate those of the new runs, or start from the twin as it was before it was fitted."
        )
    return twin


def _needs_whole_runs(twin: Twin) -> str:
    """Why a window inside a run would not know how it starts; empty where the state is all that there is to know."""
    if any(event.mode is not None for event in twin.events):
        return "events switch the mode"
    if any(event.stop for event in twin.events):
        return "an event may have stopped it"
    conserves = not isinstance(twin.constraint, Unconstrained)
    if conserves and any(event.reset is not None for event in twin.events):
        return "resets change what is conserved"
    return ""


def _check_window_starts(twin: Twin, batch: Batch) -> None:
    """Every window inside a run starts from a measured state, or a `ValueError` says why it cannot."""
    inside = ~np.asarray(batch.is_run_start)
    if twin.trajectory is not None or not inside.any():
        return
    reason = "the outputs are not the states" if twin.observe is not None else ""
    if not reason and not bool(np.all(np.asarray(batch.mask)[:, 0] | ~inside[:, None])):
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


def _check_stability(twin: Twin, batch: Batch, x: State) -> None:
    """Warn of an explicit step that is too long; no error: an untrained network says little about a trained one."""
    row = tree_take(batch, 0)
    p, w = twin.parameters(row.run), None if row.w is None else row.w[0]
    level = twin.constraint.level(row.ts[0], x, p)
    problem = stability_problem(twin.cell, row.ts[0], x, w, p, level, float(np.max(np.diff(batch.ts))))
    if problem is not None:
        warnings.warn(problem, stacklevel=4)


def output_scale(batch: Batch, loss: Loss) -> Float[Array, " k"]:
    """The units of the outputs: the spread of each over its measured values, or one."""
    if loss.scale == "off":
        return jnp.ones(batch.y.shape[-1], batch.y.dtype)
    return output_spread(batch)
