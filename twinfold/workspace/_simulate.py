"""Predict with a fitted twin: new inputs in, a table and a picture out."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from twinfold.data import Dataset, Run
from twinfold.data._load import columns_of
from twinfold.data._readers.table import pandas_module
from twinfold.io import atomic_write, write_csv
from twinfold.model import Simulation, SimulationError, Unknown
from twinfold.workspace._fit import Fitted
from twinfold.workspace._workspace import Workspace, read_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Simulated:
    """One run as the twin predicts it; `measured` where its outputs were given; `notes` say what went wrong."""

    run: Run
    simulation: Simulation
    measured: bool
    notes: tuple[str, ...]
    samples: int  # that were predicted; the rest failed

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
    folder: Path | None = None,
) -> list[Simulated]:
    """Predict every run in some files of inputs.

    **Arguments:** `workspace`, whose configuration says what the columns are; `fitted`; `files`, relative to `folder`
    (the current one when left out); `x0`, the state that every run starts from: when left out, the columns that the
    configuration names, or those called like the states, or what the twin makes of the first row's outputs; `run`, a
    run of the training data whose own parameters to use.

    **Raises:** `ValueError` where there is nothing to start from, or an input is missing.
    """
    data, measured = _read(workspace, fitted, files, x0, folder or Path())
    p = fitted.twin.parameters(run)
    return [_simulated(fitted, each, _start(fitted, each, p, x0, measured), run, measured) for each in data.runs]


def _read(workspace: Workspace, fitted: Fitted, files: Sequence[str], x0: Any, folder: Path) -> tuple[Dataset, bool]:
    config, names = workspace.config.data, fitted.info
    columns = config.columns
    there = columns_of(list(files), time=columns.get(config.time, config.time), format=config.format, folder=folder)

    def present(wanted: Sequence[str]) -> bool:
        return bool(wanted) and all(columns.get(name, name) in there for name in wanted)

    measured = present(config.outputs)
    start = () if x0 is not None else next((each for each in (config.x0, names.states) if present(each)), ())
    used = {config.time, config.run, *config.inputs, *start, *(config.outputs if measured else ())}
    changes: dict[str, Any] = {
        "source": list(files),
        "outputs": config.outputs if measured else (),
        "x0": start,
        "run": config.run if present([config.run]) else "",
        "group": "",
        "gap": None,
        "pieces": None,
        "columns": {name: column for name, column in columns.items() if name in used},
        "scale": {name: factor for name, factor in config.scale.items() if name in used},
        "offset": {name: offset for name, offset in config.offset.items() if name in used},
    }
    return read_data(config, folder, **changes), measured


def _start(fitted: Fitted, run: Run, p: Any, x0: Sequence[float] | None, measured: bool) -> Any:
    states = fitted.info.states
    if x0 is not None:
        if len(x0) != len(states):
            raise ValueError(f"x0 has {len(x0)} values; the twin has {len(states)} states: {', '.join(states)}.")
        return jnp.asarray(x0, float)
    if run.x0 is not None:
        return jnp.asarray(run.x0)
    if not measured and not isinstance(fitted.twin.initial, Unknown):
        raise ValueError(
            f"run '{run.name}': nothing says where it starts. Give --x0 with {', '.join(states)}, columns of these "
            f"names, or the outputs ({', '.join(fitted.info.outputs)}) in the first row."
        )
    w = None if run.w is None else jnp.asarray(run.w[0])
    return fitted.twin.initial_state(jnp.asarray(run.ts[0]), jnp.asarray(run.y[0]), w, p)


def _simulated(fitted: Fitted, each: Run, x0: Any, run: str | None, measured: bool) -> Simulated:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            simulation, lost = fitted.twin.simulate(x0, each.ts, each.w, run=run), []
        except SimulationError as error:
            simulation, lost = error.simulation, [f"run '{each.name}': {error}"]
    samples = len(each.ts)
    if lost:
        bad = ~np.isfinite(np.asarray(simulation.ys)).all(1) | (np.asarray(simulation.trajectory.result._value) != 0)
        samples = int(bad.argmax())
    notes = [f"run '{each.name}': {warning.message}" for warning in caught]
    return Simulated(each, simulation, measured, tuple(notes + lost), samples)


def rows_of(simulated: Sequence[Simulated], workspace: Workspace, fitted: Fitted) -> list[dict[str, Any]]:
    """One row for each run and time: inputs, predicted outputs, states, the measured outputs where there are some."""
    names = fitted.info
    found = []
    for each in simulated:
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
            found.append(row)
    return found


def write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """A CSV file, or Parquet where the name ends so."""
    if path.suffix not in (".parquet", ".pq"):
        write_csv(path, rows)
        return
    frame = pandas_module().DataFrame(rows)
    with atomic_write(path) as file:
        frame.to_parquet(file, index=False)


def picture(each: Simulated, fitted: Fitted) -> "Figure":
    """Inputs and outputs of one run over time, with what was measured."""
    from twinfold import plot

    names, units = fitted.info, fitted.info.units
    inputs = [] if each.run.w is None else list(zip(names.inputs, each.run.w.T, strict=True))
    with plot.matplotlib_of().rc_context(plot.STYLE):
        count = len(inputs) + len(names.outputs)
        figure, axes = plot.grid_of(count, 1, width=9.5, height=1.75, sharex=True)
        for axis, (name, values) in zip(axes, inputs, strict=False):
            axis.plot(each.run.ts, values, color=plot.GREY, drawstyle="steps-post")
            axis.set_ylabel(_label(name, units))
        ys = np.asarray(each.simulation.ys)
        for index, name in enumerate(names.outputs):
            axis = axes[len(inputs) + index]
            if each.measured:
                axis.plot(each.run.ts, each.run.y[:, index], ".", color=plot.INK, alpha=0.35, label="measured")
            predicted = slice(each.samples)
            axis.plot(each.run.ts[predicted], ys[predicted, index], color=plot.COLOURS[1], label="twin")
            axis.set_ylabel(_label(name, units))
        axes[-1].set_xlabel(_label("time", units))
        axes[-1].legend(loc="best")
    return figure


def _label(name: str, units: dict[str, str]) -> str:
    return f"{name} [{units[name]}]" if name in units else name
