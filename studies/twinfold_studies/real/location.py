"""The folder of public measurements on this machine. They are not part of the repository."""

import os
from pathlib import Path

FOLDER = "real"


def find_real(name: str, folder: str = "") -> Path:
    """The folder of a public data set.

    **Arguments:** `name` of the set, which is that of its folder; `folder` that holds the sets, or whose folder `real`
    does (default: TWINFOLD_DATA).

    **Raises:** `FileNotFoundError` that names the folders that were tried.
    """
    place = folder or os.environ.get("TWINFOLD_DATA", "")
    if not place:
        raise FileNotFoundError(
            f"no folder of measurements: give --data FOLDER or set TWINFOLD_DATA to one with {name}"
        )
    tried = [Path(place) / FOLDER / name, Path(place) / name]
    for path in tried:
        if path.is_dir():
            return path
    raise FileNotFoundError("there is no " + " and no ".join(f"'{path}'" for path in tried))
