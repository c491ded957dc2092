"""What is in a model file, in lines to read; nothing of it is imported or executed."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinfold.model import ModelInfo
from twinfold.report import number
from twinfold.workspace._baselines import CONSTANT, FITTED, PURE, TWIN

SPLITS = ("test", "valid", "train")
TITLES = {"rmse": "RMSE", "mae": "MAE", "valid_time": "valid time", "relative_violation_max": "largest violation"}


def lines_of(path: Path, info: ModelInfo) -> list[tuple[str, str]]:
    """What a file says of its twin, label and value."""
    seeds = info.config.get("fit", {})
    return [
        ("file", f"{path} ({path.stat().st_size} bytes)"),
        ("states", _ranges(info.states, info.x_low, info.x_high, info.units)),
        ("inputs", _ranges(info.inputs, info.w_low, info.w_high, info.units)),
        ("outputs", ", ".join(_with_unit(name, info.units) for name in info.outputs)),
        ("step", "not known" if info.dt is None else f"{info.dt:g}"),
        ("starts at", ", ".join(f"{value:.4g}" for value in info.x0_example)),
        ("fitted with", ", ".join(f"{name} {value}" for name, value in seeds.items()) or "not known"),
        (
            "versions",
            ", ".join(f"{name} {info.versions[name]}" for name in ("twinfold", "jax") if name in info.versions),
        ),
        ("system.py", _fingerprint(info.system_source_sha256)),
        ("training data", _fingerprint(info.data_fingerprint)),
    ]


def show_info(path: Path, info: ModelInfo, console: Console) -> None:
    """Print what a model file holds."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in lines_of(path, info):
        table.add_row(Text(label, "bold"), Text(value))
    console.print(table)
    if info.metrics:
        show_metrics(info.metrics, console)


def show_metrics(metrics: dict[str, Any], console: Console) -> None:
    """A table for each part of the data: models one under the other, metrics side by side."""
    models = [name for name in (TWIN, FITTED, PURE, CONSTANT) if name in metrics]
    for part in SPLITS:
        rows = {model: metrics[model].get(part) for model in models}
        rows = {model: numbers for model, numbers in rows.items() if isinstance(numbers, dict)}
        if not rows:
            continue
        # A name is shown where any model has a number for it; of failures, where there are any.
        names = [
            name
            for name in dict.fromkeys(name for numbers in rows.values() for name in numbers)
            if any(numbers.get(name) not in ((None, 0.0) if name == "failed" else (None,)) for numbers in rows.values())
        ]
        table = Table(title=part, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
        table.add_column("")
        for name in names:
            table.add_column(TITLES.get(name, name), justify="right")
        for model, numbers in rows.items():
            cells = ["-" if (value := numbers.get(name)) is None else number(value) for name in names]
            table.add_row(model, *cells)
        console.print(table)


def _fingerprint(sha256: str) -> str:
    return f"sha256 {sha256[:16]}..." if sha256 else "not known"


def _ranges(names: tuple[str, ...], low: tuple[float, ...], high: tuple[float, ...], units: dict[str, str]) -> str:
    if len(low) != len(names) or len(high) != len(names):
        return ", ".join(_with_unit(name, units) for name in names) or "none"
    each = zip(names, low, high, strict=True)
    return ", ".join(f"{_with_unit(name, units)} from {a:.4g} to {b:.4g}" for name, a, b in each) or "none"


def _with_unit(name: str, units: dict[str, str]) -> str:
    return f"{name} [{units[name]}]" if name in units else name
