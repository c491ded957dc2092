"""Predict with a fitted twin under new inputs: rows of a table, and a figure."""

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
from twinfold.data._load import columns_of
from twinfold.data._readers.table import pandas_module
from twinfold.data._rows import check_initial_states
from twinfold.io import atomic_write, write_csv
from twinfold.model import Simulation, SimulationError, Unknown
from twinfold.plot._style import plain_label
from twinfold.workspace._data import WHOLE_RUNS, read_data
from twinfold.workspace._display import with_unit
from twinfold.workspace._fit import Fitted
from twinfold.workspace._workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """A simulated run; `measured`: its outputs were given; `notes`: warnings and failures; `samples` that succeeded."""

    run: Run
    simulation: Simulation
    measured: bool
    notes: tuple[str, ...]
    samples: int

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
    p = fitted.twin.parameters(run)
    states = [_initial_state(fitted, each, p, x0, measured) for each in data.runs]
    if x0 is None:
        check_initial_states(fitted.twin, data.runs, np.stack(states), data.output_names, "files")
    return [_simulate(fitted, each, state, run, measured) for each, state in zip(data.runs, states, strict=True)]


def _read_inputs(
    workspace: Workspace, fitted: Fitted, files: Sequence[str], *, with_states: bool
) -> tuple[Dataset, bool]:
    """The runs in some files, and whether they include the outputs."""
    config, columns = workspace.config.data, workspace.config.data.columns
    present = columns_of(list(files), time=columns.get(config.time, config.time), format=config.format, folder=Path())

    def has(names: Sequence[str]) -> bool:
        return bool(names) and all(columns.get(name, name) in present for name in names)

    measured = has(config.outputs)
    states = next((names for names in (config.x0, fitted.info.states) if with_states and has(names)), ())
    used = {config.time, config.run, *config.inputs, *states, *(config.outputs if measured else ())}
    changes: dict[str, Any] = {
        "source": list(files),
        "outputs": config.outputs if measured else (),
        "x0": states,
        "run": config.run if has([config.run]) else "",
        "group": "",
        "max_step": None,
        **WHOLE_RUNS,
    }
    for name in ("columns", "scale", "offset"):
        changes[name] = {key: value for key, value in getattr(config, name).items() if key in used}
    return read_data(config, Path(), **changes), measured


def _initial_state(fitted: Fitted, run: Run, p: Any, x0: Sequence[float] | None, measured: bool) -> Any:
    states = fitted.info.states
    if x0 is not None:
        if len(x0) != len(states):
            raise ValueError(f"x0 has {len(x0)} values; the twin has {len(states)} states: {', '.join(states)}.")
        return jnp.asarray(x0, float)
    if run.x0 is not None:
        return jnp.asarray(run.x0)
    if not measured and not isinstance(fitted.twin.initial, Unknown):
        raise ValueError(
            f"run '{run.name}' has no initial state. Give --x0 with {', '.join(states)}, columns of these names, or "
            f"the outputs ({', '.join(fitted.info.outputs)}) in the first row."
        )
    w = None if run.w is None else jnp.asarray(run.w[0])
    return fitted.twin.initial_state(jnp.asarray(run.ts[0]), jnp.asarray(run.y[0]), w, p)


def _simulate(fitted: Fitted, each: Run, x0: Any, run: str | None, measured: bool) -> SimulatedRun:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            simulation, failures = fitted.twin.simulate(x0, each.ts, each.w, run=run), []
        except SimulationError as error:
            simulation, failures = error.simulation, [f"run '{each.name}': {error}"]
    samples = len(each.ts)
    if failures:
        bad = ~np.isfinite(np.asarray(simulation.ys)).all(1) | (outcome_codes(simulation.trajectory.result) != 0)
        samples = int(bad.argmax())
    notes = [f"run '{each.name}': {warning.message}" for warning in caught]
    return SimulatedRun(each, simulation, measured, tuple(notes + failures), samples)


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
            axis.plot(each.run.ts[predicted], ys[predicted, index], color=plot.COLOURS[1], label="twin")
            axis.set_ylabel(plain_label(with_unit(name, units)))
        axes[-1].set_xlabel(plain_label(with_unit("time", units)))
        axes[-1].legend(loc="best")
    return figure
