"""The folder of a run: plain files with fixed names, claimed by one configuration."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.io import OtherConfiguration, versions, write_lines, write_text
from twinfold.train import Fit
from twinfold.workspace._config import Config, parse_config

CONFIG, VERSIONS = "config.toml", "versions.json"
CHECKPOINT, PHYSICS_CHECKPOINT = "fit.npz", "physics.npz"
MODEL, PHYSICS = "model.twin", "physics.twin"
HISTORY, METRICS = "history.jsonl", "metrics.json"
OURS = (CHECKPOINT, PHYSICS_CHECKPOINT, MODEL, PHYSICS, HISTORY, METRICS)
DECIDES = ("system", "data", "fit", "loss")  # sections on which the numbers of a fit depend


def claim(folder: Path, config: Config, facts: dict[str, str], *, force: bool) -> bool:
    """Make the folder of a run, or go on in it.

    **Arguments:** `folder`; `config`; `facts`, fingerprints that decide the numbers too; `force`: start over where the
    folder belongs to another configuration.

    **Returns:** whether an earlier run of this configuration is continued. **Raises:** `OtherConfiguration`.
    """
    if folder.exists() and not folder.is_dir():
        raise OtherConfiguration(f"{folder} is a file; name another folder with --out or run.folder.")
    continued = False
    if folder.exists() and any(folder.iterdir()):
        different = differences(folder, config, facts)
        if different and not force:
            lines = "\n".join(f"  {name}: {old} there, {new} now" for name, old, new in different)
            raise OtherConfiguration(
                f"{folder} belongs to a run of another configuration:\n{lines}\n"
                "Give another folder with --out, or --force to replace that run."
            )
        continued = not force
        if force:
            for name in OURS:
                (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CONFIG, config.toml())
    write_text(folder / VERSIONS, json.dumps(versions() | facts, indent=2) + "\n")
    return continued


def differences(folder: Path, config: Config, facts: dict[str, str]) -> list[tuple[str, Any, Any]]:
    """What a run was started with and is asked for now, where they differ: name, then, now."""
    try:
        stored = parse_config((folder / CONFIG).read_text(encoding="utf-8")).tables()
        known = json.loads((folder / VERSIONS).read_text(encoding="utf-8"))
        before = {name: str(known.get(name)) for name in facts}
    except (OSError, ValueError, AttributeError):
        # Without its configuration it may be anybody's folder: not even --force writes there.
        raise OtherConfiguration(
            f"{folder} is not empty and holds no readable {CONFIG}, so it is not the folder of a run. "
            "Give another folder with --out."
        ) from None
    old = {f"{section}.{name}": value for section in DECIDES for name, value in stored[section].items()}
    new = {f"{section}.{name}": value for section in DECIDES for name, value in config.tables()[section].items()}
    settings = [(name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]
    return settings + [(name, before[name], facts[name]) for name in facts if before[name] != facts[name]]


def write_history(folder: Path, fit: Fit) -> None:
    """One line for each epoch and seed."""
    names = ("stage", "loss", "score", "rate", "failed_runs")
    rows = (
        {"epoch": epoch + 1, "seed": seed} | {name: fit.history[name][epoch, place].item() for name in names}
        for epoch in range(len(fit.history["loss"]))
        for place, seed in enumerate(fit.seeds)
    )
    write_lines(folder / HISTORY, rows)


def read_history(folder: Path) -> dict[str, np.ndarray] | None:
    """The history of a fit as `Fit.history` has it; None where there is none."""
    try:
        rows = [json.loads(line) for line in (folder / HISTORY).read_text(encoding="utf-8").splitlines()]
        seeds = len({row["seed"] for row in rows})
        number: Callable[[Any], float] = lambda value: np.nan if value is None else float(value)  # noqa: E731
        return {
            name: np.array([number(row[name]) for row in rows]).reshape(-1, seeds)
            for name in ("stage", "loss", "score", "rate", "failed_runs")
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_metrics(path: Path, metrics: dict[str, Any]) -> None:
    """Model -> part -> metric -> number; one that is not finite is null."""
    write_text(path, json.dumps(plain(metrics), indent=2, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Numbers as JSON has them: neither infinite nor NaN."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value
