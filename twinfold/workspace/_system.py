"""The user's system.py: the only code of a workspace that is executed, and only here."""

import hashlib
import sys
import traceback
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from twinfold.io import check_regular_file
from twinfold.io._settings import Name, Names, OptionalName, Settings, validate

if TYPE_CHECKING:
    from twinfold.model import Twin

MODULE = "twinfold_user_system"  # the name of system.py as a module


@dataclass(frozen=True, eq=False)
class System:
    """What a system.py defines: the twin, the names of its states (None if not given), units, and the file's hash."""

    path: Path
    sha256: str
    twin: "Twin"
    states: tuple[str, ...] | None
    units: dict[str, str]

    def with_warmup(self, samples: int) -> "System":
        """The system whose twin estimates the state at the start of each run; see `Twin`."""
        import equinox as eqx

        twin = eqx.tree_at(lambda twin: twin.warmup, self.twin, samples, is_leaf=lambda node: node is None)
        return replace(self, twin=twin)


class _Names(Settings):
    STATES: Names | None = None
    UNITS: dict[Name, OptionalName] = Field(default_factory=dict)


def load_system(path: str | Path, *, sha256: str | None = None, trust_changed: bool = False) -> System:
    """Run a system.py and return what it defines.

    **Arguments:** `path`; `sha256`, the hash that the file must have (that of a model file); `trust_changed`: run the
    file even if its hash differs.

    **Raises:** `ValueError` if the file was changed, fails, or does not build a twin; `FileNotFoundError`.
    """
    from twinfold.model import Twin

    path = Path(path)
    try:
        check_regular_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no {path}; system.file in twinfold.toml must name the file that builds the twin."
        ) from None
    source = path.read_bytes()
    actual = hashlib.sha256(source).hexdigest()
    if sha256 is not None and actual != sha256 and not trust_changed:
        raise ValueError(
            f"{path} is not the file that the model was fitted with, so it was not run (SHA-256 {actual[:12]}..., the "
            f"model has {sha256[:12]}...). Fit again, restore the old file, or pass --trust-changed-system if the "
            "change does not affect the model."
        )
    # The bytes that were hashed are the bytes that run: the file is not read a second time.
    module = types.ModuleType(MODULE)
    module.__file__ = str(path)
    sys.modules[MODULE] = module
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
        build = getattr(module, "twin", None)
        if not callable(build):
            raise ValueError("there is no function twin(); define one that returns a twinfold.Twin")
        twin = build()
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}.") from None
    except (Exception, SystemExit) as error:
        raise ValueError(locate_in_system(error) or f"{path}: {_text(error)}") from None
    if not isinstance(twin, Twin):
        raise ValueError(f"{path}: twin() returned a {type(twin).__name__}; it must return a twinfold.Twin.")
    try:
        names = validate(_Names, {name: vars(module)[name] for name in _Names.model_fields if name in vars(module)})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return System(path, actual, twin, names.STATES, names.UNITS)


def locate_in_system(error: BaseException) -> str | None:
    """The message of an error with the last line of system.py that led to it; None if it did not pass through there."""
    frames = [
        summary
        for (frame, _), summary in zip(
            traceback.walk_tb(error.__traceback__), traceback.extract_tb(error.__traceback__), strict=True
        )
        if frame.f_globals.get("__name__") == MODULE
    ]
    if not frames:
        return None
    last = frames[-1]
    return f"{last.filename}, line {last.lineno}, in {last.name}: {_text(error)}\n    {last.line}"


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
