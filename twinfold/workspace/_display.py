"""Model files and metrics as tables on the console. Nothing in a model file is imported or executed."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinfold.io import ModelInfo
from twinfold.report import format_number

PARTS = ("test", "valid", "train")
TITLES = {"rmse": "RMSE", "mae": "MAE", "valid_time": "valid time", "relative_violation_max": "largest violation"}


def print_info(path: Path, info: ModelInfo, console: Console) -> None:
    """Print the metadata of a model file."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in _lines(path, info):
        table.add_row(Text(label, "bold"), Text(value))
    console.print(table)
    if info.metrics:
        print_metrics(info.metrics, console)


def print_metrics(metrics: dict[str, Any], console: Console) -> None:
    """Print one table for each part of the data: a row per model, a column per metric."""
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
        if not names:
            continue
        table = Table(title=part, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        table.add_column("")
        for name in names:
            table.add_column(Text(TITLES.get(name, name)), justify="right")
        for model, numbers in rows.items():
            cells = ["-" if (value := numbers.get(name)) is None else format_number(value) for name in names]
            table.add_row(model, *cells)
        console.print(table)


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
    ]


def _hash(sha256: str) -> str:
    return f"sha256 {sha256[:16]}..." if sha256 else "unknown"


def _ranges(names: tuple[str, ...], low: tuple[float, ...], high: tuple[float, ...], units: dict[str, str]) -> str:
    if len(low) != len(names) or len(high) != len(names):
        return ", ".join(with_unit(name, units) for name in names) or "none"
    ranges = zip(names, low, high, strict=True)
    return ", ".join(f"{with_unit(name, units)} from {a:.4g} to {b:.4g}" for name, a, b in ranges) or "none"


def with_unit(name: str, units: dict[str, str]) -> str:
    """`name [unit]`, or the name alone if its unit is unknown."""
    return f"{name} [{units[name]}]" if name in units else name
