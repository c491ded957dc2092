"""A workspace: the configuration of a folder, the system that its system.py builds, and its measurements in parts.

system.py is the only code of the user's that runs, and only where it is named: here, with the file that it is.
"""

import hashlib
import sys
import traceback
import types
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinfold.data import Dataset, load_dataset
from twinfold.io import settle
from twinfold.model import Twin
from twinfold.workspace._config import FILE, Config, DataConfig, read_config

MODULE = "twinfold_user_system"  # what system.py is called while it runs


@dataclass(frozen=True, eq=False)
class System:
    """What a system.py says: its twin, the names of the states (None where it has none), units, and its fingerprint."""

    path: Path
    sha256: str
    twin: Twin
    states: tuple[str, ...] | None
    units: dict[str, str]


@dataclass(frozen=True, eq=False)
class Parts:
    """The runs to fit on, to choose by, and to judge by; `notes` say what could not be done as asked."""

    train: Dataset
    valid: Dataset | None
    test: Dataset | None
    notes: tuple[str, ...] = ()

    def named(self) -> dict[str, Dataset]:
        """Those that are there, by name."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: data for name, data in parts.items() if data is not None}


@dataclass(frozen=True)
class Workspace:
    """A folder with a twinfold.toml, and its configuration; see `open_workspace`."""

    folder: Path
    config: Config

    @property
    def run_folder(self) -> Path:
        """Where a fit and all that comes of it is kept."""
        return self.folder / self.config.run.folder

    @property
    def system_path(self) -> Path:
        """The file of the system."""
        return self.folder / self.config.system.file

    def load_system(self, **options: Any) -> System:
        """The system; see `load_system`."""
        return load_system(self.system_path, **options)

    def load_data(self) -> Dataset:
        """All measurements."""
        return read_data(self.config.data, self.folder)

    def load_parts(self) -> Parts:
        """The measurements, split as the configuration says."""
        return split_data(self.load_data(), self.config.data)


def open_workspace(folder: str | Path = ".", overrides: Sequence[str] = ()) -> Workspace:
    """The workspace in a folder.

    **Arguments:** `folder`, with a twinfold.toml; `overrides`, texts `section.name=value`.
    """
    return Workspace(Path(folder), read_config(Path(folder) / FILE, overrides))


def load_system(path: str | Path, *, sha256: str | None = None, trust_changed: bool = False) -> System:
    """Run a system.py and take its twin.

    **Arguments:** `path`; `sha256`, the fingerprint that the file must have (that of a model file); `trust_changed`:
    run it also where it has another one.

    **Raises:** `ValueError` where the file was changed, does not run, or builds no twin.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no {path}; system.file in {FILE} names the file that builds the twin.")
    source = path.read_bytes()
    found = hashlib.sha256(source).hexdigest()
    if sha256 is not None and found != sha256 and not trust_changed:
        raise ValueError(
            f"{path} is not the file that the model was fitted with, so it was not run (fingerprint {found[:12]}..., "
            f"that of the model {sha256[:12]}...). Fit again, put the old file back, or pass --trust-changed-system "
            "if the change does not matter."
        )
    # What is run is what was fingerprinted: the file is not read a second time.
    module = types.ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module
    twin = _contained(path, lambda: _run(source, path, module))
    if not isinstance(twin, Twin):
        raise ValueError(f"{path}: twin() returned a {type(twin).__name__}; it must return a twinfold.Twin.")
    states, units = getattr(module, "STATES", None), getattr(module, "UNITS", {})
    names = None if states is None else settle(states, tuple[str, ...], f"{path}: STATES")
    return System(path, found, twin, names, settle(units, dict[str, str], f"{path}: UNITS"))


def _run(source: bytes, path: Path, module: types.ModuleType) -> Any:
    exec(compile(source, str(path), "exec"), module.__dict__)
    build = getattr(module, "twin", None)
    if not callable(build):
        raise ValueError("there is no function twin(); define one that returns a twinfold.Twin")
    return build()


def _contained(path: Path, call: Any) -> Any:
    """What `call` returns; whatever goes wrong in the user's file is said with its line."""
    try:
        return call()
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}.") from None
    except (Exception, SystemExit) as error:
        raise ValueError(in_user_code(error) or f"{path}: {_said(error)}") from None


def in_user_code(error: BaseException) -> str | None:
    """An error with the last line of the user's system.py that led to it; None where none did."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__") == MODULE]
    if not frames:
        return None
    last = traceback.extract_tb(error.__traceback__)
    name = frames[-1].f_code.co_filename
    place = [each for each in last if each.filename == name][-1]
    return f"{name}, line {place.lineno}, in {place.name}: {_said(error)}\n    {place.line}"


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def read_data(config: DataConfig, folder: Path, **changes: Any) -> Dataset:
    """The measurements that a configuration names, in files relative to `folder`."""
    names = set(DataConfig.__dataclass_fields__) - {"files", "valid", "test"}
    options = {name: getattr(config, name) for name in names} | {"source": config.files, "folder": folder}
    return load_dataset(**options | changes)


def split_data(data: Dataset, config: DataConfig) -> Parts:
    """The runs in three parts that share none: by shares, or by name."""
    notes, rest, test = [], data, None
    wanted = [name for name in ("valid", "test") if getattr(config, name)]
    shares = [name for name in wanted if isinstance(getattr(config, name), float)]
    # Every part needs a run, and the training set first of all.
    while len(data) < 1 + len(wanted) and shares:
        left = shares.pop()
        wanted.remove(left)
        notes.append(
            f"There {'is one run' if len(data) == 1 else f'are {len(data)} runs'}, so data.{left} has none. "
            "data.pieces = 5 cuts every run into five, of which some can be held back."
        )
    if "test" in wanted:
        rest, test = data.split(config.test)
    valid = None
    if "valid" in wanted:
        share = config.valid
        if isinstance(share, float):
            share = min(max(round(share * len(data)), 1), len(rest) - 1) / len(rest)
        rest, valid = rest.split(share)
    return Parts(rest, valid, test, tuple(notes))
