"""The folder of a run: which configuration it belongs to, and plain files for its numbers."""

import csv
import gzip
import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from twinfold._version import __version__
from twinfold.io._atomic import atomic_write, atomic_write_text

CONFIG = "config.json"
PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy")
# A fit goes on from its checkpoint only under the versions that it began with.
DECISIVE = ("twinfold", "jax")


class OtherConfiguration(Exception):
    """The folder belongs to another run, or to something else altogether; nothing in it was touched."""


def versions() -> dict[str, str]:
    """Versions of this library, of what the numbers depend on, and of the machine."""
    found = {name: metadata.version(name) for name in PACKAGES}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"twinfold": __version__, **found, "python": platform.python_version(), "machine": machine}


def open_folder(path: Path, settings: dict[str, Any], command: str, *, force: bool, resume: bool | None = None) -> bool:
    """Make the folder of a run, or go on in it.

    **Arguments:** `path`; `settings`, all that decides the numbers; `command`, as typed; `force`: start over in a
    folder of another configuration (its files are replaced); `resume`: whether to go on in a folder of this one (None:
    go on, and hold on to JAX's version too, since fits stand half-done in it).

    **Returns:** whether an earlier run of this configuration is continued. **Raises:** `OtherConfiguration`.
    """
    config = {"settings": settings, "versions": versions(), "command": command}
    continued = False
    if path.exists() and any(path.iterdir()):
        stored = _read(path)
        different = _differences(stored, config, DECISIVE if resume is None else DECISIVE[:1])
        if resume is False and not different:
            raise OtherConfiguration(f"{path} holds this run already. Give --resume to go on in it, or another --out.")
        if different and not force:
            lines = "\n".join(f"  {name}: {old} there, {new} now" for name, old, new in different)
            raise OtherConfiguration(
                f"{path} belongs to a run of another configuration:\n{lines}\n"
                "Give another folder with --out" + (", or --force to replace that run." if resume is None else ".")
            )
        if force:
            for checkpoint in (path / "fits").glob("*.npz"):
                checkpoint.unlink()
        continued = not different and not force
    path.mkdir(parents=True, exist_ok=True)
    write_text(path / CONFIG, json.dumps(config, indent=2) + "\n")
    return continued


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """One JSON object a line, compressed where the name ends in .gz; a number that is not finite is null."""
    with atomic_write(path) as file:
        lines = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=4, mtime=0) if path.suffix == ".gz" else file
        for row in rows:
            lines.write((json.dumps(_plain(row), allow_nan=False) + "\n").encode())
        if lines is not file:
            lines.close()


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """A table with a header; all digits of every number."""
    with atomic_write_text(path) as table:
        writer = csv.DictWriter(table, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole, so that a killed run leaves none cut in half."""
    with atomic_write(path) as file:
        file.write(text.encode())


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        return {"settings": dict(stored["settings"]), "versions": dict(stored["versions"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        # Without its configuration it may be anybody's folder: not even --force writes there.
        raise OtherConfiguration(
            f"{path} is not empty and holds no readable {CONFIG}, so it is not the folder of a run. "
            "Give another folder with --out."
        ) from error


def _differences(
    stored: dict[str, Any], config: dict[str, Any], decisive: tuple[str, ...]
) -> list[tuple[str, Any, Any]]:
    old = stored["settings"] | {name: stored["versions"].get(name) for name in decisive}
    new = json.loads(json.dumps(config["settings"])) | {name: config["versions"][name] for name in decisive}
    return [(name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
