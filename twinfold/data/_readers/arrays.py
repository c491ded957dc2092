"""Arrays to runs: one array per run, or one array for all runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twinfold.data._run import Run, as_floats


def runs_from_arrays(
    ts: Any, ys: Any, inputs: Any, x0: Any, names: Sequence[str] | None, groups: Sequence[str] | None
) -> tuple[Run, ...]:
    """The runs of `Dataset.from_arrays`."""
    ys = _per_run(ys, "ys", 3, "an [R, T, k] array or a list of [T_r, k] arrays; for one run, [y]")
    if not ys:
        raise ValueError("ys: the data set is empty; give at least one run.")
    ts = _as_list(ts, "ts", "a [T] vector or a list of [T_r] vectors")
    if ts and np.ndim(ts[0]) == 0:
        ts = [np.asarray(ts)] * len(ys)
    inputs = _per_run(inputs, "inputs", 3, "an [R, T, d] array or a list of [T_r, d] arrays")
    x0 = _per_run(x0, "x0", 2, "an [R, n] array or a list of [n] vectors")
    names = [str(index) for index in range(len(ys))] if names is None else list(map(str, names))
    for argument, values in (("ts", ts), ("inputs", inputs), ("x0", x0), ("names", names), ("groups", groups)):
        if values is not None and len(values) != len(ys):
            raise ValueError(f"{argument} has {len(values)} runs and ys {len(ys)}; give one for each run.")
    absent = [None] * len(ys)
    return tuple(map(_run, names, ts, ys, inputs or absent, x0 or absent, groups or [""] * len(ys)))


def _run(name: str, ts: Any, y: Any, w: Any, x0: Any, group: str) -> Run:
    def floats(values: Any, argument: str) -> Any:
        return None if values is None else as_floats(values, f"{argument} of run '{name}'")

    return Run(name, floats(ts, "ts"), floats(y, "ys"), floats(w, "inputs"), floats(x0, "x0"), str(group))


def _per_run(values: Any, argument: str, dimensions: int, expected: str) -> Any:
    """A list with one item per run, or None."""
    if values is None:
        return None
    shape = getattr(values, "shape", None)
    if shape is not None and len(shape) != dimensions:
        raise ValueError(f"{argument} has shape {shape}; it must be {expected}.")
    values = _as_list(values, argument, expected)
    if any(np.ndim(value) == 0 for value in values[:1] if value is not None):
        raise ValueError(f"{argument} is a list of numbers; it must be {expected}.")
    return values


def _as_list(values: Any, argument: str, expected: str) -> list:
    try:
        # A JAX array would be split on its device, one element at a time.
        return list(np.asarray(values) if hasattr(values, "shape") else values)
    except TypeError:
        raise ValueError(f"{argument} is a {type(values).__name__}; it must be {expected}.") from None
