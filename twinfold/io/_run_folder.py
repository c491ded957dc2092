"""Run folders. A folder belongs to one configuration, which is stored in a single file, the claim."""

import contextlib
import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from twinfold._version import __version__
from twinfold.io._atomic import remove_stale_parts
from twinfold.io._lock import LOCK_FILES, lock_folder
from twinfold.io._writers import json_safe, write_json

CLAIM = "config.json"
PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy")


class ConfigurationMismatch(Exception):
    """The folder belongs to a run of another configuration, or to no run at all. Nothing in it was changed.

    **Example:**

    ```python
    from pathlib import Path

    with tw.io.RunFolder(Path("runs/a")).claim({"seeds": 3}):
        pass
    try:
        with tw.io.RunFolder(Path("runs/a")).claim({"seeds": 5}):
            pass
    except tw.io.ConfigurationMismatch as error:
        print(error)  # ... seeds: 3 in the folder, 5 requested ...
    ```
    """


def versions() -> dict[str, str]:
    """Versions of this library and of the packages that its numbers depend on, and the machine.

    **Example:**

    ```python
    tw.io.versions()["twinfold"] == tw.__version__  # True
    ```
    """
    packages = {name: metadata.version(name) for name in PACKAGES}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"twinfold": __version__, **packages, "python": platform.python_version(), "machine": machine}


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run, which belongs to one configuration: `config.json` has its settings, versions and command.

    **Arguments:** `path`; `outputs`, glob patterns of the files that are deleted when the run starts over; `packages`,
    those whose versions must be the same for a run to be resumed; `read_settings`, a function of the path that
    reads the settings of a folder without `config.json`, written by an earlier version of the program.

    **Example:**

    ```python
    from pathlib import Path

    folder = tw.io.RunFolder(Path("runs/a"), outputs=("*.npz",))
    with folder.claim({"seeds": 3}, command="fit --seeds 3") as resumed:
        resumed  # False: a new run
    with folder.claim({"seeds": 3}) as resumed:
        resumed  # True
    folder.read()["settings"]  # {"seeds": 3}
    ```
    """

    path: Path
    outputs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    read_settings: Callable[[Path], Mapping[str, Any]] | None = None

    @contextlib.contextmanager
    def claim(
        self, settings: Mapping[str, Any], *, command: str = "", force: bool | None = False, resume: bool = True
    ) -> Iterator[bool]:
        """Create the folder for a run, or resume the run in it, and hold it: no other process can claim it meanwhile.

        **Arguments:** `settings`, everything that the numbers of the run depend on; `command`, as typed; `force`: start
        over, whatever configuration the folder belongs to (None: the caller has no such option to offer); `resume`:
        whether a run of the same configuration may be resumed.

        **Returns:** a context manager whose value is whether a run is resumed.

        **Raises:** `ConfigurationMismatch`; `FolderInUse` if another process holds the folder.
        """
        claim = json_safe({"settings": settings, "versions": versions(), "command": command})
        self._check(claim, force, resume)  # before the lock, which writes to the folder
        with lock_folder(self.path):
            occupied = self._check(claim, force, resume)  # another process may have claimed it in between
            remove_stale_parts(self.path)
            if force:
                for pattern in self.outputs:
                    for file in self.path.glob(pattern):
                        file.unlink()
            write_json(self.path / CLAIM, claim)
            yield occupied and not force

    def read(self) -> dict[str, Any]:
        """The claim of the folder: `settings`, `versions` and `command`. **Raises:** `ConfigurationMismatch`."""
        try:
            if self.read_settings and not (self.path / CLAIM).exists():
                return {"settings": json_safe(self.read_settings(self.path)), "versions": {}, "command": ""}
            stored = json.loads((self.path / CLAIM).read_text(encoding="utf-8"))
            return {name: dict(stored[name]) for name in ("settings", "versions")} | {"command": stored["command"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            # Without a claim it may be any folder of the user: not even `force` writes to it.
            raise ConfigurationMismatch(
                f"{self.path} is not empty and has no readable {CLAIM}, so it is not the folder of a run. "
                "Choose another folder with --out."
            ) from error

    def _check(self, claim: dict[str, Any], force: bool | None, resume: bool) -> bool:
        """Whether the folder already holds a run; an error unless the claim is granted."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigurationMismatch(f"{self.path} is a file, not a folder. Choose another folder with --out.")
        # A process that is killed while it claims the folder leaves these: the next one starts afresh.
        incomplete = (f"{CLAIM}.*.part", *LOCK_FILES)
        if not self.path.exists() or all(any(map(file.match, incomplete)) for file in self.path.iterdir()):
            return False
        stored = self.read()
        old, new = (
            each["settings"] | {name: each["versions"].get(name) for name in self.packages} for each in (stored, claim)
        )
        different = [name for name in {**old, **new} if old.get(name) != new.get(name)]
        if different and not force:
            lines = (f"  {name}: {old.get(name)} in the folder, {new.get(name)} requested" for name in different)
            choice = "." if force is None else ", or replace that run with --force."
            raise ConfigurationMismatch(
                f"{self.path} belongs to a run of another configuration:\n" + "\n".join(lines) + "\n"
                f"Choose another folder with --out{choice}"
            )
        if not different and not force and not resume:
            raise ConfigurationMismatch(
                f"{self.path} already holds this run. Continue it with --resume, or choose another folder with --out."
            )
        return True
