"""Predict with a fitted twin under new inputs: rows of a table, and a figure."""

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from twinfold import plot
from twinfold._core import outcome_codes
from twinfold.data import Dataset, Run
from twinfold.data._readers.table import pandas_module
from twinfold.data._rows import check_initial_states, rows_of
from twinfold.data._warmup import DEFAULT_WARMUP
from twinfold.io import ModelInfo, atomic_write, write_csv
from twinfold.model import Simulation, SimulationError, Twin, Unknown
from twinfold.plot._style import plain_label
from twinfold.workspace._data import options_for_files, read_data
from twinfold.workspace._display import with_unit
from twinfold.workspace._fit import Fitted
from twinfold.workspace._workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARQUET = (".parquet", ".pq")
MARGIN = 0.01  # of the range of the training data, beyond which a value is outside of it


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """A simulated run; `measured`: its outputs were given; `notes`: warnings and failures; `samples` that succeeded."""

    run: Run
    simulation: Simulation
    measured: bool
    notes: tuple[str, ...]
    samples: int
    band: tuple[np.ndarray, np.ndarray] | None = None  # lower and upper ends [T, k]

    @property
    def failed(self) -> bool:
        return self.samples < len(self.run.ts)


def simulate_workspace(
    workspace: Workspace,
    fitted: Fitted,
    files: Sequence[str],
    *,
    x0: Sequence[float] | None = None,
    run: str | None = None,
) -> list[SimulatedRun]:
    """Simulate every run in some files of inputs.

    **Arguments:** `workspace`, whose configuration describes the columns; `fitted`; `files`, relative to the current
    folder; `x0`, the initial state of every run (default: the columns that the configuration names, or those named
    like the states, or the state that the twin derives from the outputs in the first row); `run`, a run of the
    training data whose own parameters are used.

    **Raises:** `ValueError` if there is no initial state, or an input is missing.
    """
    data, measured = _read_inputs(workspace, fitted, files, with_states=x0 is None)
    twin, ps, own = fitted.twin, [fitted.twin.parameters(run)] * len(data), [None] * len(data)
    if measured and x0 is None and run is None:
        twin, own = _with_own_values(twin, data)
        ps = [twin.parameters(index) for index in own]
    states = [
        run_start(fitted, twin, index, each, p, x0, measured) for index, each, p in zip(own, data.runs, ps, strict=True)
    ]
    if x0 is None:
        check_initial_states(twin, data.runs, np.stack(states), data.output_names, "files")
    return [_simulate(fitted, each, state, p, measured) for each, state, p in zip(data.runs, states, ps, strict=True)]


def _with_own_values(twin: Twin, data: Dataset) -> tuple[Twin, list[Any]]:
    """The twin with what belongs to these runs, from the fit or from their first samples, and the index of each."""
    samples = twin.warmup or DEFAULT_WARMUP
    rows = rows_of(twin, dataclasses.replace(data, runs=tuple(run.until(samples) for run in data.runs)))
    return rows.adapt(twin), list(jnp.asarray(rows.batch.run))


def _read_inputs(
    workspace: Workspace, fitted: Fitted, files: Sequence[str], *, with_states: bool
) -> tuple[Dataset, bool]:
    """The runs in some files, and whether they include the outputs."""
    config = workspace.config.data
    options = options_for_files(config, files, states=(config.x0, fitted.info.states) if with_states else ())
    data = read_data(config, Path(), **options | {"max_step": None, "group": ""})
    return data, bool(options["outputs"])


def run_start(
    fitted: Fitted, twin: Twin, own: Any, run: Run, p: Any, x0: Sequence[float] | None, measured: bool
) -> Any:
    """The initial state of a run: given, or as the twin has it for the run whose `own` index this is."""
    states = fitted.info.states
    if x0 is not None:
        if len(x0) != len(states):
            raise ValueError(f"x0 has {len(x0)} values; the twin has {len(states)} states: {', '.join(states)}.")
        return jnp.asarray(x0, float)
    if run.x0 is not None:
        return jnp.asarray(run.x0)
    if not measured and not isinstance(twin.initial, Unknown):
        raise ValueError(
            f"run '{run.name}' has no initial state. Give --x0 with {', '.join(states)}, columns of these names, or "
            f"the outputs ({', '.join(fitted.info.outputs)}) in the first row."
        )
    w = None if run.w is None else jnp.asarray(run.w[0])
    return twin.initial_state(jnp.asarray(run.ts[0]), jnp.asarray(run.y[0]), w, p, run=own)


def _simulate(fitted: Fitted, each: Run, x0: Any, p: Any, measured: bool) -> SimulatedRun:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            simulation, failures = fitted.twin.simulate(x0, each.ts, each.w, p=p), []
        except SimulationError as error:
            simulation, failures = error.simulation, [f"run '{each.name}': {error}"]
    samples = len(each.ts)
    if failures:
        bad = ~np.isfinite(np.asarray(simulation.ys)).all(1) | (outcome_codes(simulation.trajectory.result) != 0)
        samples = int(bad.argmax())
    notes = [str(warning.message) for warning in caught]
    notes += extrapolation_notes(fitted.info, each.w, np.asarray(simulation.xs)[:samples])
    return SimulatedRun(
        each, simulation, measured, tuple([f"run '{each.name}': {note}" for note in notes] + failures), samples
    )


def extrapolation_notes(info: ModelInfo, w: np.ndarray | None, xs: np.ndarray) -> list[str]:
    """What leaves the range of the training data: first the load, which is given, then the predicted states."""
    notes = []
    inputs = (info.inputs, info.w_low, info.w_high, np.zeros((0, 0)) if w is None else w)
    for kind, (names, low, high, values) in (
        ("input", inputs),
        ("predicted state", (info.states, info.x_low, info.x_high, xs)),
    ):
        if not values.size or len(low) != values.shape[1]:
            continue
        margin = MARGIN * (np.array(high) - np.array(low))
        outside = (values < np.array(low) - margin) | (values > np.array(high) + margin)
        for index in np.flatnonzero(outside.any(axis=0)):
            column = values[:, index]
            notes.append(
                f"the {kind} {names[index]} is outside of the training data ({low[index]:.3g} to {high[index]:.3g}) in "
                f"{outside[:, index].mean():.0%} of the samples ({column.min():.3g} to {column.max():.3g}). What was "
                "learned has not been seen there."
            )
    return notes


def simulation_rows(runs: Sequence[SimulatedRun], workspace: Workspace, fitted: Fitted) -> Iterator[dict[str, Any]]:
    """One row per run and time: inputs, predicted outputs, states, and the measured outputs if they were given."""
    names = fitted.info
    for each in runs:
        ys, xs = np.asarray(each.simulation.ys), np.asarray(each.simulation.xs)
        violation = np.asarray(each.simulation.trajectory.relative_violation)
        for i in range(each.samples):
            row: dict[str, Any] = {"run": each.run.name, workspace.config.data.time: float(each.run.ts[i])}
            row |= {} if each.run.w is None else dict(zip(names.inputs, each.run.w[i].tolist(), strict=True))
            row |= dict(zip(names.states, xs[i].tolist(), strict=True))
            row |= dict(zip(names.outputs, ys[i].tolist(), strict=True))
            if each.band is not None:
                ends = zip(("low", "high"), each.band, strict=True)
                row |= {
                    f"{name}_{end}": float(v) for end, y in ends for name, v in zip(names.outputs, y[i], strict=True)
                }
            if each.measured:
                values = (None if np.isnan(y) else float(y) for y in each.run.y[i])
                row |= {f"{name} measured": y for name, y in zip(names.outputs, values, strict=True)}
            if violation.shape[1]:
                row["relative violation"] = float(violation[i].max())
            yield row


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows as CSV, or as Parquet if the name says so."""
    if path.suffix not in PARQUET:
        write_csv(path, rows)
        return
    frame = pandas_module().DataFrame(list(rows))
    with atomic_write(path) as file:
        frame.to_parquet(file, index=False)


def plot_simulation(each: SimulatedRun, fitted: Fitted) -> "Figure":
    """Inputs and outputs of one run over time, with the measured outputs."""
    names, units = fitted.info, fitted.info.units
    inputs = [] if each.run.w is None else list(zip(names.inputs, each.run.w.T, strict=True))
    count = len(inputs) + len(names.outputs)
    with plot.subplots(count, 1, width=9.5, height=1.75, sharex=True) as (figure, axes):
        for axis, (name, values) in zip(axes, inputs, strict=False):
            axis.plot(each.run.ts, values, color=plot.GREY, drawstyle="steps-post")
            axis.set_ylabel(plain_label(with_unit(name, units)))
        ys = np.asarray(each.simulation.ys)
        for index, name in enumerate(names.outputs):
            axis = axes[len(inputs) + index]
            if each.measured:
                axis.plot(each.run.ts, each.run.y[:, index], ".", color=plot.INK, alpha=0.35, label="measured")
            predicted = slice(each.samples)
            if each.band is not None:
                low, high = (end[predicted, index] for end in each.band)
                axis.fill_between(each.run.ts[predicted], low, high, color=plot.COLOURS[1], alpha=0.2, label="band")
            axis.plot(each.run.ts[predicted], ys[predicted, index], color=plot.COLOURS[1], label="twin")
            axis.set_ylabel(plain_label(with_unit(name, units)))
        axes[-1].set_xlabel(plain_label(with_unit("time", units)))
        axes[-1].legend(loc="best")
    return figure
