"""Discharges from NASA's MATLAB files.

Set #5: a variable with the name of the cell and an array `cycle` of operations (type, ambient_temperature, time, data).
Set #11: a variable `data` with an array `step` (comment, relativeTime, time, voltage, current, temperature, date); its
1 A reference discharges and random walks are read, its charges, pulses and discharges at 0.04 A are not.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from twinfold_studies.nasa.cells import ambient
from twinfold_studies.nasa.collection import DUPLICATE, Builder
from twinfold_studies.nasa.discharge import Kind
from twinfold_studies.nasa.log import Log

SET5 = ("Time", "Voltage_measured", "Current_measured", "Temperature_measured")
SET11 = ("relativeTime", "voltage", "current", "temperature")
KINDS11: tuple[Kind, ...] = ("reference", "walk")
REFERENCE = "reference discharge"
WALK = ("discharge (random walk)", "rest (random walk)")


def read_mat(path: Path, builder: Builder) -> None:
    """Add the discharges of a .mat file, unless those of its cell were already read."""
    try:
        names = [name for name, _, _ in scipy.io.whosmat(path)]
        cell = path.stem if names == ["data"] else names[0] if len(names) == 1 else ""
        if cell and builder.has(cell, KINDS11 if names == ["data"] else ("cycle",)):
            builder.skip(path.name, cell, None, DUPLICATE)
            return
        contents = scipy.io.loadmat(path, simplify_cells=True)
    except NotImplementedError:
        builder.refuse(path.name, "", None, "a MATLAB 7.3 file (HDF5); save it with -v7")
        return
    except Exception as error:  # SciPy may raise anything for a damaged file
        builder.refuse(path.name, "", None, f"not readable as a MATLAB file, possibly truncated ({error})")
        return
    variables = {name: value for name, value in contents.items() if not name.startswith("__")}
    for name, value in variables.items():
        if isinstance(value, dict) and "cycle" in value:
            _read_set5(path.name, name, _listed(value["cycle"]), builder)
            return
        if isinstance(value, dict) and "step" in value:
            _read_set11(path.name, path.stem, _listed(value["step"]), builder)
            return
    builder.refuse(
        path.name,
        "",
        None,
        f"unknown layout: it contains {', '.join(variables) or 'nothing'}, but neither B00xx.cycle (set #5) nor "
        "data.step (set #11)",
    )


def _read_set5(file: str, cell: str, operations: list[Any], builder: Builder) -> None:
    kinds, index = Counter(), 0
    for cycle, operation in enumerate(operations):
        fields = operation if isinstance(operation, dict) else {}
        kind = str(fields.get("type", "operation without a type")).strip()
        kinds[kind] += 1
        if kind != "discharge":
            continue
        data = fields.get("data")
        if not isinstance(data, dict) or not set(SET5[:3]) <= set(data):
            present = ", ".join(data) if isinstance(data, dict) else "none"
            builder.refuse(file, cell, cycle, f"the fields {', '.join(SET5[:3])} are required; it has: {present}")
        else:
            builder.add(
                Log(
                    cell=cell,
                    index=index,
                    kind="cycle",
                    series={name: data[name] for name in SET5 if name in data and not _is_absent(name, data[name])},
                    sign=-1,
                    ambient=_scalar(fields.get("ambient_temperature")),
                    published=_scalar(data.get("Capacity")),
                    start=_from_vector(fields.get("time")),
                    file=file,
                    cycle=cycle,
                )
            )
        index += 1
    if not index:
        _skip_cell(file, cell, "operations", kinds, builder)


def _read_set11(file: str, cell: str, steps: list[Any], builder: Builder) -> None:
    comments = [str(step.get("comment", "")).strip() if isinstance(step, dict) else "" for step in steps]
    spans = [(cycle, cycle + 1) for cycle, comment in enumerate(comments) if comment == REFERENCE]
    for index, (begin, end) in enumerate(spans):
        _add_steps(file, cell, index, "reference", begin, steps[begin:end], builder)
    walks = list(_walks(comments))
    for index, (begin, end) in enumerate(walks):
        _add_steps(file, cell, index, "walk", begin, steps[begin:end], builder)
    if not spans and not walks:
        _skip_cell(file, cell, "steps", Counter(comments), builder)


def _walks(comments: list[str]) -> Iterator[tuple[int, int]]:
    """Ranges of steps with random loads and the rests between them; a charge ends a range."""
    begin = 0
    for end in range(len(comments) + 1):
        if end < len(comments) and comments[end] in WALK:
            continue
        if WALK[0] in comments[begin:end]:
            yield begin, end
        begin = end + 1


def _add_steps(file: str, cell: str, index: int, kind: Kind, cycle: int, steps: list[Any], builder: Builder) -> None:
    # `relativeTime` starts at zero in each step; `time` runs through the whole experiment.
    names = SET11 if kind == "reference" else ("time", *SET11[1:])
    columns: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for offset, step in enumerate(steps):
        missing = [name for name in names[:3] if name not in step]
        if missing:
            builder.refuse(file, cell, cycle + offset, f"the step has no field {', '.join(missing)}")
            return
        series = {name: np.atleast_1d(step[name]).ravel() for name in names if name in step}
        rows = len(series["voltage"])
        if _is_absent("temperature", series.get("temperature", [])):
            series["temperature"] = np.full(rows, np.nan)
        if any(len(values) != rows for values in series.values()):
            lengths = ", ".join(f"{name} has {len(values)} values" for name, values in series.items())
            builder.refuse(file, cell, cycle + offset, f"truncated: {lengths}")
            return
        for name, values in series.items():
            columns[name].append(values)
    series = {name: np.concatenate(parts) for name, parts in columns.items()}
    if kind == "walk" and series["time"].dtype.kind in "iuf" and len(series["time"]):
        series["time"] = series["time"] - series["time"][0]
    builder.add(
        Log(
            cell=cell,
            index=index,
            kind=kind,
            series=series,
            sign=1,
            ambient=ambient(cell),
            published=float("nan"),
            start=from_date(str(steps[0].get("date", ""))),
            file=file,
            cycle=cycle,
        )
    )


def from_date(text: str) -> datetime | None:
    """The date of a step of set #11, such as 14-Nov-2014 20:13:31; None for other formats."""
    try:
        return datetime.strptime(text.strip(), "%d-%b-%Y %H:%M:%S")
    except ValueError:
        return None


def _from_vector(vector: Any) -> datetime | None:
    """The date of a MATLAB date vector: year, month, day, hour, minute, seconds with a fraction."""
    try:
        year, month, day, hour, minute, seconds = np.asarray(vector, float).ravel().tolist()
        begin = datetime(int(year), int(month), int(day), int(hour), int(minute))
        return begin + timedelta(seconds=round(seconds, 6))
    except (TypeError, ValueError, OverflowError):
        return None


def _skip_cell(file: str, cell: str, what: str, kinds: Counter, builder: Builder) -> None:
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"
    builder.refuse(file, cell, None, f"the cell is never discharged; its {what}: {counted}")


def _listed(value: Any) -> list[Any]:
    """The elements of a struct array; SciPy returns a single one without a list."""
    return list(value) if isinstance(value, list | np.ndarray) and np.ndim(value) else [value]


def _is_absent(name: str, values: Any) -> bool:
    """Whether a temperature was not recorded; any other empty series is an error."""
    return name.lower().startswith("temperature") and np.size(values) == 0


def _scalar(value: Any) -> float:
    try:
        return float(np.asarray(value, float).reshape(()))
    except (TypeError, ValueError):  # missing, or an empty matrix
        return float("nan")
