"""Where NASA's files are on this machine."""

import os
import sys
from pathlib import Path

NAME = "nasa_battery"
COMMAND = "twinfold data nasa-battery --from PATH|URL"


def cache_folder() -> Path:
    """The folder that `twinfold data` fills: that of TWINFOLD_CACHE, or twinfold in the user's cache folder."""
    chosen = os.environ.get("TWINFOLD_CACHE")
    if chosen:
        return Path(chosen)
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "twinfold"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "twinfold" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "twinfold"


def find(folder: str | os.PathLike[str] | None = None) -> Path:
    """The folder (or file) of the battery data.

    **Arguments:** `folder`, where they are; when left out, nasa_battery in the folder of TWINFOLD_DATA, else in
    `cache_folder()`.

    **Raises:** `FileNotFoundError` that says where was looked, and how to get the data.
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
    looked = " or ".join(f"'{place}'" for place in places)
    raise FileNotFoundError(
        f"There are no NASA battery data in {looked}. Get them with `{COMMAND}`, or set TWINFOLD_DATA to the folder "
        f"that holds {NAME}."
    )
