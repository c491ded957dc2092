"""Recorded runs, of any lengths and time stamps, and the batches, windows and statistics taken of them."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from twinfold.data._batch import Batch
from twinfold.data._readers.table import frame_arrays, read_csv
from twinfold.data._run import Run, as_floats
from twinfold.data._statistics import summarise
from twinfold.data._windows import assemble, cut, whole
from twinfold.io import unknown_name
from twinfold.model import Statistics


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Runs with the same outputs and inputs; see `Dataset.from_arrays`, `from_frame` and `from_csv`.

    **Arguments:** `runs`; `output_names` and `input_names`, one for each column of their y and w.
    """

    runs: tuple[Run, ...]
    output_names: tuple[str, ...]
    input_names: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.runs:
            raise ValueError("runs: the data set is empty; give at least one run.")
        _check_distinct(self.names, "names", "run")
        first = self.runs[0]
        for run in self.runs[1:]:
            for argument, here, there, what in (
                ("ys", run.outputs, first.outputs, "outputs"),
                ("inputs", run.inputs, first.inputs, "inputs"),
                ("x0", run.states, first.states, "states"),
            ):
                if here != there:
                    raise ValueError(
                        f"{argument} of run '{run.name}' has {here or 'no'} {what} and that of run "
                        f"'{first.name}' {there or 'none'}; give every run the same {what}."
                    )
        for argument, names, columns in (
            ("output_names", self.output_names, first.outputs),
            ("input_names", self.input_names, first.inputs),
        ):
            if len(names) != columns:
                raise ValueError(f"{argument} has {len(names)} names for {columns} columns; give one for each.")
            _check_distinct(names, argument, "column")

    @staticmethod
    def from_arrays(
        ts: Any,
        ys: Any,
        *,
        inputs: Any = None,
        x0: Any = None,
        names: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        input_names: Sequence[str] | None = None,
    ) -> "Dataset":
        """A data set from arrays, one per run.

        **Arguments:**

        - `ts`: a [T] vector that all runs share, or a list of [T_r] vectors.
        - `ys`: an [R, T, k] array or a list of [T_r, k] arrays, NaN where an output was not measured; in the
          list a [T_r] vector means k = 1.
        - `inputs`: likewise, and never missing (`from_frame` fills gaps).
        - `x0`: an [R, n] array or a list of [n] vectors: the state at each run's first sample.
        - `names` of the runs; "0", "1", ... when left out. `groups`, for each run what it is a run of; runs of a
          group share its parameters (see `Unknown(per_group=True)`).
        - `output_names`, `input_names`; "y0", "y1", ... and "w0", "w1", ... when left out.

        **Raises:** `ValueError` that names the argument and the run.
        """
        ys = _per_run(ys, "ys", 3, "an [R, T, k] array or a list of [T_r, k] arrays; for one run, [y]")
        if not ys:
            raise ValueError("ys: the data set is empty; give at least one run.")
        times = _listed(ts, "ts", "a [T] vector or a list of [T_r] vectors")
        if times and np.ndim(times[0]) == 0:
            times = [np.asarray(times)] * len(ys)
        if inputs is not None:
            inputs = _per_run(inputs, "inputs", 3, "an [R, T, d] array or a list of [T_r, d] arrays")
        if x0 is not None:
            x0 = _per_run(x0, "x0", 2, "an [R, n] array or a list of [n] vectors")
        names = [str(index) for index in range(len(ys))] if names is None else list(map(str, names))
        for argument, values in (
            ("ts", times),
            ("inputs", inputs),
            ("x0", x0),
            ("names", names),
            ("groups", groups),
        ):
            if values is not None and len(values) != len(ys):
                raise ValueError(f"{argument} has {len(values)} runs and ys {len(ys)}; give one for each run.")
        absent = [None] * len(ys)
        groups = [""] * len(ys) if groups is None else list(map(str, groups))
        runs = tuple(map(_run, names, times, ys, inputs or absent, x0 or absent, groups))
        if output_names is None:
            output_names = [f"y{index}" for index in range(runs[0].outputs)]
        if input_names is None:
            input_names = [f"w{index}" for index in range(runs[0].inputs)]
        return Dataset(runs, tuple(output_names), tuple(input_names))

    @staticmethod
    def from_frame(
        frame: Any,
        *,
        time: str,
        outputs: Sequence[str],
        run: str | None = None,
        inputs: Sequence[str] = (),
        x0: Sequence[str] | None = None,
        group: str | None = None,
        fill: Literal["hold", "linear", "refuse"] = "hold",
        sort: bool = False,
    ) -> "Dataset":
        """A data set from a pandas data frame.

        **Arguments:**

        - `time`: the column of times: numbers (seconds), or timestamps, which become seconds since the run's
          first row.
        - `outputs`: the columns of outputs; an empty cell was not measured.
        - `run`: the column that names the run of a row; all rows are one run, "0", when left out.
        - `inputs`: the columns of inputs.
        - `x0`: the columns whose first row in a run is its initial state.
        - `group`: the column that names the group of a run (its machine, its cell); runs of a group share parameters.
        - `fill`: the value of an empty input cell: `"hold"`, the last value (before the first one, the first);
          `"linear"` in time; or none, `"refuse"`.
        - `sort`: sort the rows of each run by time; when False, times that go backwards are an error.

        **Raises:** `ValueError` that names the column, and the row (counted from 0, without the header).
        """
        return Dataset.from_arrays(
            **frame_arrays(
                frame, time=time, outputs=outputs, run=run, inputs=inputs, x0=x0, group=group, fill=fill, sort=sort
            )
        )

    @staticmethod
    def from_csv(
        path: str | os.PathLike[str],
        *,
        time: str,
        outputs: Sequence[str],
        run: str | None = None,
        inputs: Sequence[str] = (),
        x0: Sequence[str] | None = None,
        group: str | None = None,
        fill: Literal["hold", "linear", "refuse"] = "hold",
        sort: bool = False,
    ) -> "Dataset":
        """A data set from a comma-separated file with a header; the arguments are those of `from_frame`.

        Times that are not numbers must be ISO 8601 timestamps. Run names are kept as they are written.
        """
        frame = read_csv(path, [column for column in (run, group) if column is not None])
        try:
            return Dataset.from_frame(
                frame, time=time, outputs=outputs, run=run, inputs=inputs, x0=x0, group=group, fill=fill, sort=sort
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.runs)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the runs, in their order."""
        return tuple(run.name for run in self.runs)

    @property
    def groups(self) -> tuple[str, ...]:
        """The group of each run."""
        return tuple(run.group for run in self.runs)

    def select(self, names: Sequence[str]) -> "Dataset":
        """The runs of these names, in this order."""
        self._check_names(names, "names")
        by_name = {run.name: run for run in self.runs}
        return dataclasses.replace(self, runs=tuple(by_name[name] for name in names))

    def split(self, valid: float | int | Sequence[str] = 0.2, *, seed: int = 0) -> tuple["Dataset", "Dataset"]:
        """Two data sets, for training and validation, that share no run.

        **Arguments:** `valid`, the fraction of the runs to validate on (at least one run, and never all), or
        the names of these runs; `seed` of the draw where it is a fraction.
        """
        if len(self) < 2:
            raise ValueError(
                f"split: the data set has the run '{self.names[0]}' alone, and neither side may be empty; "
                "give two runs or more, or train without validation data."
            )
        if isinstance(valid, int | float):
            if not 0 < valid < 1:
                raise ValueError(f"valid={valid}: give a fraction between 0 and 1, or a list of run names.")
            count = min(max(round(valid * len(self)), 1), len(self) - 1)
            drawn = np.random.default_rng(seed).permutation(len(self))[:count]
            chosen = {self.names[index] for index in drawn}
        else:
            self._check_names(valid, "valid")
            chosen = set(valid)
            if len(chosen) in (0, len(self)):
                side = "validation" if not chosen else "training"
                raise ValueError(f"valid={list(valid)}: no run is left for {side}; name some runs, not all.")
        return (
            self.select([name for name in self.names if name not in chosen]),
            self.select([name for name in self.names if name in chosen]),
        )

    def batch(self, dtype: Any = None) -> Batch:
        """Whole runs side by side, padded to the longest; `dtype` is JAX's own float when left out."""
        return assemble(self.runs, whole(self.runs), max(len(run.ts) for run in self.runs), dtype)

    def windows(self, length: int, *, stride: int | None = None, dtype: Any = None) -> Batch:
        """Windows cut from the runs.

        **Arguments:** `length` in samples; `stride`, the samples from one window's start to the next one's
        (when left out, length - 1: a window's last sample is then the next one's first); `dtype`, JAX's own
        float when left out.

        What a run has left at its end, or a run shorter than `length`, is a padded window. A window without
        any measured output is left out unless it begins its run or a later window continues it.
        """
        return assemble(self.runs, cut(self.runs, length, stride), length, dtype)

    def statistics(self, observed_states: bool, dtype: Any = None) -> Statistics:
        """Typical sizes of the measured values.

        **Arguments:** `observed_states`, whether the outputs are the states (else nothing is known of x);
        `dtype`, JAX's own float when left out.

        **Returns:** means and standard deviations, and of the rates between one measured sample of an
        output and its next the root mean square. A spread of zero is given as 1: one may divide by it.
        """
        return summarise(self.runs, observed_states, dtype)

    def fingerprint(self) -> str:
        """The SHA-256 of the contents, the same on every machine: whether a checkpoint saw these data."""
        digest = hashlib.sha256()
        header: list[Any] = [self.output_names, self.input_names]
        for run in self.runs:
            arrays = [run.ts, run.y, run.w, run.x0]
            header.append((run.name, run.group, [None if array is None else array.shape for array in arrays]))
            for array in arrays:
                if array is not None:
                    # A NaN can have many bit patterns; byte order is the machine's own.
                    values = np.where(np.isnan(array), np.nan, array)
                    digest.update(np.ascontiguousarray(values, "<f8").tobytes())
        digest.update(json.dumps(header).encode())
        return digest.hexdigest()

    def describe(self) -> str:
        """A short table in plain text: runs, samples, times, sampling, and what is missing of each output."""
        samples = [len(run.ts) for run in self.runs]
        steps = np.concatenate([np.diff(run.ts) for run in self.runs])
        first, last = min(run.ts[0] for run in self.runs), max(run.ts[-1] for run in self.runs)
        missing = np.isnan(np.concatenate([run.y for run in self.runs])).mean(axis=0)
        rows = [
            ("runs", f"{len(self)}"),
            ("samples", f"{sum(samples)} ({min(samples)} to {max(samples)} a run)"),
            ("time", f"{first:.6g} to {last:.6g}"),
            ("sampling", f"min {steps.min():.4g}, median {np.median(steps):.4g}, max {steps.max():.4g}"),
            ("inputs", ", ".join(self.input_names) or "none"),
            ("x0", f"{self.runs[0].states} states" if self.runs[0].states else "not given"),
            *((f"output {n}", f"{m:.1%} missing") for n, m in zip(self.output_names, missing, strict=True)),
        ]
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)

    def _check_names(self, names: Sequence[str], argument: str) -> None:
        if isinstance(names, str):
            raise ValueError(f"{argument}={names!r}: give a list of run names.")
        for name in names:
            if name not in self.names:
                raise ValueError(f"{argument}: there is no run {unknown_name(name, self.names)}")


def _run(name: str, ts: Any, y: Any, w: Any, x0: Any, group: str) -> Run:
    def floats(values: Any, argument: str) -> np.ndarray:
        return as_floats(values, f"{argument} of run '{name}'")

    return Run(
        name,
        floats(ts, "ts"),
        floats(y, "ys"),
        None if w is None else floats(w, "inputs"),
        None if x0 is None else floats(x0, "x0"),
        group,
    )


def _per_run(values: Any, argument: str, dimensions: int, wanted: str) -> list:
    shape = getattr(values, "shape", None)
    if shape is not None and len(shape) != dimensions:
        raise ValueError(f"{argument} has shape {shape}; it must be {wanted}.")
    values = _listed(values, argument, wanted)
    if any(np.ndim(value) == 0 for value in values[:1] if value is not None):
        raise ValueError(f"{argument} is a list of numbers; it must be {wanted}.")
    return values


def _listed(values: Any, argument: str, wanted: str) -> list:
    try:
        # A JAX array would be taken apart on its device, one element at a time.
        return list(np.asarray(values) if hasattr(values, "shape") else values)
    except TypeError:
        raise ValueError(f"{argument} is a {type(values).__name__}; it must be {wanted}.") from None


def _check_distinct(names: Sequence[str], argument: str, what: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{argument}: '{name}' names two {what}s; give each a name of its own.")
