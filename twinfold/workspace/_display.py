"""Model files and metrics as tables on the console. Nothing in a model file is imported or executed."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinfold.io import ModelInfo
from twinfold.report import format_number
from twinfold.report._metrics import DIGITS, metric_title, metric_units
from twinfold.report._numbers import format_estimate

PARTS = ("test", "valid", "train")
NOT_SHOWN = ("mae",)  # so that a table fits into 80 columns; it is in metrics.json and in the report


def print_info(path: Path, info: ModelInfo, console: Console) -> None:
    """Print the metadata of a model file."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _lines(path, info):
        table.add_row(Text(label, "bold"), Text(value))
    console.print(table)
    units = metric_units(info.outputs, info.units) | info.units
    if info.metrics:
        print_metrics(info.metrics, console, units)
    print_parameters(info.parameters, console, units)


def print_parameters(parameters: Sequence[Mapping[str, Any]], console: Console, units: Mapping[str, str]) -> None:
    """Print the estimated parameters with their standard errors; see `ModelInfo.parameters`."""
    if not parameters:
        return
    table = Table(title="parameters", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in ("", "estimate", "standard error", "first guess", ""):
        table.add_column(name, justify="right" if name else "left")
    for each in parameters:
        error = each.get("standard error")
        value = format_estimate(each["value"], math.nan if error is None else error)
        cells = (value, "-" if error is None else f"{error:.2g}", f"{each['first guess']:.5g}")
        table.add_row(Text(with_unit(each["name"], units)), *cells, Text(each.get("flag", "")))
    console.print(table)


def print_metrics(metrics: dict[str, Any], console: Console, units: Mapping[str, str] | None = None) -> None:
    """Print one table for each part of the data: a row per model, a column per metric with its unit."""
    models = {model: parts for model, parts in metrics.items() if isinstance(parts, dict)}
    given = dict.fromkeys(part for parts in models.values() for part in parts)
    for part in [*(part for part in PARTS if part in given), *(part for part in given if part not in PARTS)]:
        rows = {model: parts[part] for model, parts in models.items() if isinstance(parts.get(part), dict)}
        # A metric is shown if any model has a number for it; failures, if there are any.
        names = [
            name
            for name in dict.fromkeys(name for numbers in rows.values() for name in numbers)
            if any(numbers.get(name) not in ((None, 0.0) if name == "failed" else (None,)) for numbers in rows.values())
        ]
        overall = [name for name in names if " " not in name and name not in NOT_SHOWN]
        by_output = [name for name in names if " " in name]
        for title, chosen in ((part, overall), (f"{part}, by output", by_output)):
            if chosen:
                console.print(_metric_table(title, rows, chosen, units or {}))


def _metric_table(title: str, rows: dict[str, Any], names: list[str], units: Mapping[str, str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(Text(metric_title(name, units)), justify="right")
    for model, numbers in rows.items():
        cells = ["-" if (value := numbers.get(name)) is None else format_number(value, DIGITS) for name in names]
        table.add_row(model, *cells)
    return table


def _lines(path: Path, info: ModelInfo) -> list[tuple[str, str]]:
    fit = info.config.get("fit", {})
    packages = [f"{name} {info.versions[name]}" for name in ("twinfold", "jax") if name in info.versions]
    return [
        ("file", f"{path} ({path.stat().st_size} bytes)"),
        ("states", _ranges(info.states, info.x_low, info.x_high, info.units)),
        ("inputs", _ranges(info.inputs, info.w_low, info.w_high, info.units)),
        ("outputs", ", ".join(with_unit(name, info.units) for name in info.outputs)),
        ("step", "unknown" if info.dt is None else f"{info.dt:g}"),
        ("initial state", ", ".join(f"{value:.4g}" for value in info.x0_example)),
        ("fitted with", ", ".join(f"{name} {value}" for name, value in fit.items()) or "unknown"),
        ("versions", ", ".join(packages)),
        ("system.py", _hash(info.system_source_sha256)),
        ("training data", _hash(info.data_fingerprint)),
        *([("note", info.trained_on)] if info.trained_on else []),
    ]


def _hash(sha256: str) -> str:
    return f"sha256 {sha256[:16]}..." if sha256 else "unknown"


def _ranges(names: tuple[str, ...], low: tuple[float, ...], high: tuple[float, ...], units: dict[str, str]) -> str:
    if len(low) != len(names) or len(high) != len(names):
        return ", ".join(with_unit(name, units) for name in names) or "none"
    ranges = zip(names, low, high, strict=True)
    return ", ".join(f"{with_unit(name, units)} from {a:.4g} to {b:.4g}" for name, a, b in ranges) or "none"


def with_unit(name: str, units: Mapping[str, str]) -> str:
    """`name [unit]`, or the name alone if its unit is unknown."""
    return f"{name} [{units[name]}]" if units.get(name) else name
