"""Where a measurement was made: versions of what was measured, and the machine."""

import importlib.metadata
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
    return {"cpu": model, "cores": os.cpu_count(), "platform": platform.platform()}
