"""The folder of NASA's files on this machine."""

import os
import sys
from pathlib import Path

NAME = "nasa_battery"
COMMAND = "twinfold data nasa-battery --from PATH|URL"


def cache_folder() -> Path:
    """The folder of `twinfold data`: TWINFOLD_CACHE, or `twinfold` in the cache folder of the user."""
    chosen = os.environ.get("TWINFOLD_CACHE")
    if chosen:
        return Path(chosen)
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "twinfold"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "twinfold" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "twinfold"


def find_data(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder (or file) of the battery data.

    **Arguments:** `folder`; default: `nasa_battery` in the folder TWINFOLD_DATA, or in `cache_folder()`.

    **Raises:** `FileNotFoundError` that names the folders and the command that gets the data.
    """
    if folder is not None:
        places = [Path(folder)]
    else:
        data = os.environ.get("TWINFOLD_DATA")
        places = [Path(data) / NAME] if data else []
        places.append(cache_folder() / NAME)
    for place in places:
        if place.exists():
            return place
    searched = " or ".join(f"'{place}'" for place in places)
    raise FileNotFoundError(
        f"There are no NASA battery data in {searched}. Get them with `{COMMAND}`, or set TWINFOLD_DATA to the folder "
        f"that holds {NAME}."
    )
