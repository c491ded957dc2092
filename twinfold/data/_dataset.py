"""The data set: recorded runs of any length and sampling, their batches, windows and statistics."""

import dataclasses
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data._batch import Batch, assemble, cut_windows, run_windows
from twinfold.data._blocks import check_blocks, cut_blocks
from twinfold.data._readers.arrays import runs_from_arrays
from twinfold.data._readers.layout import Layout
from twinfold.data._readers.recordings import read_runs
from twinfold.data._run import Run, portable_bytes
from twinfold.data._statistics import summarise
from twinfold.data._taps import Interpolation, Taps, check_taps, tap_names, tapped
from twinfold.io import unknown_name
from twinfold.io._names import check_name
from twinfold.model import Statistics


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """Runs with the same outputs and inputs; built by `Dataset.from_arrays`, `Dataset.from_csv` or `load_dataset`.

    **Arguments:** `runs`; `output_names` and `input_names`, one for each column of y and w.

    **Raises:** `ValueError` if runs differ in their columns or share a name.

    **Example:**

    ```python
    ts = np.arange(0.0, 5.0, 0.1)
    data = tw.Dataset.from_arrays(ts, [np.cos(w * ts) for w in (1.0, 1.5, 2.0)], names=["a", "b", "c"])
    train, valid = data.split(valid=["c"])
    print(data.describe())
    train.windows(10).size  # 12
    ```
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
            for argument, kind in (("ys", "outputs"), ("inputs", "inputs"), ("x0", "states")):
                here, there = getattr(run, kind), getattr(first, kind)
                if here != there:
                    raise ValueError(
                        f"{argument} of run '{run.name}' has {here or 'no'} {kind} and that of run "
                        f"'{first.name}' {there or 'none'}; give every run the same {kind}."
                    )
        for argument, names, columns in (
            ("output_names", self.output_names, first.outputs),
            ("input_names", self.input_names, first.inputs),
        ):
            if len(names) != columns:
                raise ValueError(f"{argument} has {len(names)} names for {columns} columns; give one for each.")
            _check_distinct([check_name(name, argument) for name in names], argument, "column")

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

        - `ts`: a [T] vector for all runs, or a list of [T_r] vectors.
        - `ys`: an [R, T, k] array or a list of [T_r, k] arrays, NaN for a missing value; in the list a [T_r] vector
          means k = 1.
        - `inputs`: likewise, without missing values (`load_dataset` can fill gaps).
        - `x0`: an [R, n] array or a list of [n] vectors: the state at the first sample of each run.
        - `names` of the runs (default: "0", "1", ...); `groups`, see `Run`.
        - `output_names`, `input_names` (default: "y0", "y1", ... and "w0", "w1", ...).

        **Raises:** `ValueError` that names the argument and the run.
        """
        runs = runs_from_arrays(ts, ys, inputs, x0, names, groups)
        if output_names is None:
            output_names = [f"y{index}" for index in range(runs[0].outputs)]
        if input_names is None:
            input_names = [f"w{index}" for index in range(runs[0].inputs)]
        return Dataset(runs, tuple(output_names), tuple(input_names))

    @staticmethod
    def from_csv(path: str | os.PathLike[str], *, outputs: Sequence[str], **options: Any) -> "Dataset":
        """A data set from a comma-separated file with a header.

        **Arguments:** `path`; `outputs`, the columns of outputs; `options`, those of `load_dataset` that describe the
        columns and rows: `time`, `inputs`, `run`, `group`, `x0`, `fill`, `sort`, ...

        **Raises:** `ValueError` that names the column and the line of the file.
        """
        if not outputs:
            raise ValueError("outputs is empty; name at least one column.")
        layout = Layout(outputs=outputs, **options)
        runs = read_runs(path, layout, format="csv", folder=Path())
        return Dataset(runs, layout.output_names, layout.input_names)

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.runs)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each run."""
        return tuple(run.name for run in self.runs)

    @property
    def groups(self) -> tuple[str, ...]:
        """The group of each run."""
        return tuple(run.group for run in self.runs)

    def select(self, names: Sequence[str]) -> "Dataset":
        """The runs with these names, in this order."""
        self._check_names(names, "names")
        by_name = {run.name: run for run in self.runs}
        return dataclasses.replace(self, runs=tuple(by_name[name] for name in names))

    def matching(self, names: Sequence[str], *, argument: str = "names") -> tuple[str, ...]:
        """The names of the runs that are meant by names of runs, names of groups, or patterns of either, in order.

        **Arguments:** `names`; in a pattern `*` stands for any text and `?` for any character, but a run or a group
        with exactly this name comes first; `argument`, what they are called in messages.

        **Raises:** `ValueError` for a name that no run and no group has.

        **Example:**

        ```python
        data = tw.Dataset.from_arrays([0.0, 1.0], np.zeros((3, 2, 1)), names=["A/0", "A/1", "B/0"])
        data.matching(["A/*"])  # ("A/0", "A/1")
        ```
        """
        if isinstance(names, str):
            raise ValueError(f"{argument}={names!r}: give a list of run names.")
        chosen: set[str] = set()
        for name in names:
            found = {name} & set(self.names) or {run.name for run in self.runs if run.group == name}
            if not found and set("*?") & set(name):
                pattern = re.compile(re.escape(name).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
                found = {run.name for run in self.runs if pattern.fullmatch(run.name) or pattern.fullmatch(run.group)}
            if not found:
                known = dict.fromkeys([*self.names, *self.groups])
                raise ValueError(f"{argument}: there is no run or group {unknown_name(name, known)}")
            chosen |= found
        return tuple(name for name in self.names if name in chosen)

    def split(self, valid: float | int | Sequence[str] = 0.2, *, seed: int = 0) -> tuple["Dataset", "Dataset"]:
        """Two data sets without a common run, for training and for validation.

        **Arguments:** `valid`, the fraction of the runs used for validation (at least one run, never all), or what
        names these runs, see `matching`; `seed` of the random choice if it is a fraction.
        """
        names = self.names
        if len(self) < 2:
            raise ValueError(
                f"split: the data set has only the run '{names[0]}', and neither part may be empty; "
                "give at least two runs, or train without validation data."
            )
        if isinstance(valid, int | float):
            if not 0 < valid < 1:
                raise ValueError(f"valid={valid}: give a fraction between 0 and 1, or a list of run names.")
            count = min(max(round(valid * len(self)), 1), len(self) - 1)
            chosen = {names[index] for index in np.random.default_rng(seed).permutation(len(self))[:count]}
        else:
            chosen = set(self.matching(valid, argument="valid"))
            if len(chosen) in (0, len(self)):
                part = "validation" if not chosen else "training"
                raise ValueError(f"valid={list(valid)}: no run remains for {part}; name some runs, not all.")
        return (
            self.select([name for name in names if name not in chosen]),
            self.select([name for name in names if name in chosen]),
        )

    def blocks(self, count: int, *, gap: int | None = None) -> "Dataset":
        """Every run cut in time into contiguous blocks, so that parts of one long run can be held out.

        **Arguments:** `count` of blocks in each run; `gap`, the samples between two blocks, which belong to neither
        (default: a twentieth of a block), so that a held-out block does not continue where a training block ends.

        **Returns:** a data set of the blocks `run[0]`, `run[1]`, ..., each with an initial state of its own. The blocks
        of a run are in its group, so that they share its `Unknown(per_group=True)`. A block begins with its first
        complete sample. A run that is too short stays whole, and a block without a measured value is left out, both
        with a warning.

        **Raises:** `ValueError`, also if the runs have x0, which says nothing about the later blocks.
        """
        check_blocks(count, gap, ("count", "gap"))
        if self.runs[0].x0 is not None:
            raise ValueError(
                "blocks: x0 is the state at the start of a run, and blocks start later. Leave x0 out, or let "
                "load_dataset(..., x0=[columns], blocks=...) read the state at the start of each block."
            )
        return dataclasses.replace(
            self, runs=tuple(block for run in self.runs for block in cut_blocks(run, count, gap))
        )

    def with_taps(self, taps: Taps, *, interpolation: Interpolation = "hold") -> "Dataset":
        """The data set with delayed copies of inputs, as further inputs behind the others.

        **Arguments:** `taps`, for the name of an input its delays, in the unit of the times; `interpolation`, as that
        of the twin: an input is held between samples, or `"linear"`. If it is held, a tap is the mean of the delayed
        input over a step, which matters only if the delay is no multiple of the step. Before the start of a run an
        input is as at its first sample.

        **Returns:** a data set whose inputs are `u`, ..., `u(t-0.5)`, ...; cut it into `blocks` afterwards, so that a
        block knows what came before it.

        **Raises:** `ValueError` for what is no input, or no positive time.

        **Example:**

        ```python
        data = tw.Dataset.from_arrays([0.0, 0.5, 1.0], np.zeros((1, 3, 1)), inputs=[[1.0, 2.0, 3.0]], input_names=["u"])
        data.with_taps({"u": [0.5]}).runs[0].w  # [[1., 1.], [2., 1.], [3., 2.]]
        ```
        """
        check_taps(taps, self.input_names, self.output_names)
        runs = tuple(tapped(run, self.input_names, taps, interpolation) for run in self.runs)
        return dataclasses.replace(self, runs=runs, input_names=(*self.input_names, *tap_names(taps)))

    def batch(self, dtype: Any = None) -> Batch:
        """Whole runs, padded to the longest; `dtype` defaults to JAX's float."""
        return assemble(self.runs, run_windows(self.runs), dtype)

    def windows(self, length: int, *, stride: int | None = None, dtype: Any = None) -> Batch:
        """Windows of the runs.

        **Arguments:** `length` in samples; `stride`, the samples between the starts of consecutive windows (default:
        length - 1, so that the last sample of a window is the first of the next); `dtype` (default: JAX's float).

        The remainder of a run, and a run shorter than `length`, is a padded window. A window without any measured
        output is omitted unless it starts its run or a later window continues it.
        """
        return assemble(self.runs, cut_windows(self.runs, length, stride), dtype)

    def statistics(self, observed_states: bool, dtype: Any = None) -> Statistics:
        """Means and spreads of the measured values.

        **Arguments:** `observed_states`, whether the outputs are the states (if not, those of x are None); `dtype`
        (default: JAX's float).

        **Returns:** means and standard deviations, and the root mean square of the rates between consecutive measured
        samples of an output. A spread of zero is returned as 1, so that it can be divided by.
        """
        return summarise(self.runs, observed_states, dtype)

    def fingerprint(self) -> str:
        """The SHA-256 of the contents, the same on every machine; a checkpoint stores it to recognise its data."""
        digest = hashlib.sha256()
        header: list[Any] = [self.output_names, self.input_names]
        for run in self.runs:
            arrays = [run.ts, run.y, run.w, run.x0]
            header.append((run.name, run.group, [None if array is None else array.shape for array in arrays]))
            for array in arrays:
                if array is not None:
                    digest.update(portable_bytes(array))
        digest.update(json.dumps(header).encode())
        return digest.hexdigest()

    def describe(self) -> str:
        """A short plain-text table: runs, samples, times, sampling, and the missing fraction of each output."""
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
        for name in sorted(set(names) - set(self.names)):
            raise ValueError(f"{argument}: there is no run {unknown_name(name, self.names)}")


def join(parts: Iterable[Dataset]) -> Dataset:
    """All runs, in the order of the parts: what is computed of them together is compiled once."""
    parts = tuple(parts)
    return dataclasses.replace(parts[0], runs=tuple(run for part in parts for run in part.runs))


def split_rows(parts: Mapping[str, Dataset]) -> dict[str, slice]:
    """The runs of each part among those of the joined parts."""
    ends = np.cumsum([len(part) for part in parts.values()]).tolist()
    return {name: slice(end - len(part), end) for (name, part), end in zip(parts.items(), ends, strict=True)}


def _check_distinct(names: Sequence[str], argument: str, kind: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"{argument}: '{name}' names two {kind}s; give each {kind} a different name.")
