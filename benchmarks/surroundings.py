"""Where a measurement was made: versions of what was measured, and the machine."""

import datetime
import importlib.metadata
import json
import os
import platform
from pathlib import Path
from typing import Any

from twinfold._version import __version__

PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "optimistix", "torch", "torchdiffeq")


def versions() -> dict[str, str | None]:
    """Of Python, twinfold and every package that takes part (None: not installed)."""
    found: dict[str, str | None] = {"python": platform.python_version(), "twinfold": __version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def machine() -> dict[str, Any]:
    """Processor, cores, system."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return {"cpu": model, "cores": os.cpu_count(), "platform": f"{platform.system()} {platform.machine()}"}


def write_record(path: Path, found: dict[str, Any]) -> None:
    """Write what was found, with versions, machine and date, as JSON."""
    record = {
        **found,
        "versions": versions(),
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
