"""What is done to measurements after they are read: constant inputs, the end of a load, and its switches."""

import dataclasses

import numpy as np

from twinfold.data import Dataset, with_switches, without_tail
from twinfold.io import unknown_name
from twinfold.workspace._config import DataConfig


def prepare_loads(data: Dataset, config: DataConfig) -> tuple[Dataset, tuple[str, ...]]:
    """The data as `data.constant`, `data.tail` and `data.switches` say, and a sentence for each run that was changed.

    **Raises:** `ValueError` that names the setting, for an unknown input or a run without load.
    """
    data = _constant(data, config.constant)
    notes: list[str] = []
    for setting, change in (("tail", _without_tail), ("switches", _with_switches)):
        for load, value in getattr(config, setting).items():
            try:
                data, done = change(data, load, value)
            except ValueError as error:
                raise ValueError(f"data.{setting}: {error}") from None
            notes += done
    return data, tuple(notes)


def _without_tail(data: Dataset, load: str, idle: float) -> tuple[Dataset, tuple[str, ...]]:
    return without_tail(data, load, idle=idle)


def _with_switches(data: Dataset, load: str, change: float) -> tuple[Dataset, tuple[str, ...]]:
    return with_switches(data, load, change=change)


def _constant(data: Dataset, names: tuple[str, ...]) -> Dataset:
    known = data.input_names or ()
    for name in names:
        if name not in known:
            raise ValueError(f"data.constant: there is no input {unknown_name(name, dict.fromkeys(known))}")
    columns = [known.index(name) for name in names]
    runs = []
    for run in data.runs:
        if columns:
            assert run.w is not None
            w = np.array(run.w)
            w[:, columns] = w[0, columns]
            run = dataclasses.replace(run, w=w)
        runs.append(run)
    return dataclasses.replace(data, runs=tuple(runs))
