"""The user's system.py: the only code of a workspace that is executed, and only here."""

import hashlib
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from twinfold.io import check_regular_file, unknown_name
from twinfold.io._settings import Name, Names, OptionalName, Settings, validate

if TYPE_CHECKING:
    from twinfold.model import Twin

MODULE = "twinfold_user_system"  # the name of system.py as a module


@dataclass(frozen=True, eq=False)
class System:
    """What a system.py defines: the twin, the names of its states (None if not given), units, and the file's hash.

    `arguments` are those that `twin()` was called with, the default values of the others included; `build` is
    `twin()` itself; `functions` are all functions by name.
    """

    path: Path
    sha256: str
    twin: "Twin"
    states: tuple[str, ...] | None
    units: dict[str, str]
    arguments: dict[str, Any] = field(default_factory=dict)
    build: Callable[..., Any] = lambda: None
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, and the default values of the others. **Raises:** `ValueError` for an unknown name."""
        return _bound(self.build, arguments, self.path)

    def rebuild(self, arguments: Mapping[str, Any]) -> "System":
        """The system with other arguments of `twin()`, without the warm-up of a configuration.

        The functions are the same, so what is compiled is reused.
        """
        twin, complete = _build(self.build, arguments, self.path)
        return replace(self, twin=twin, arguments=complete)

    def with_warmup(self, samples: int | None) -> "System":
        """The system whose twin estimates the state at the start of each run, see `Twin`; with None, as it is."""
        if samples is None:
            return self
        import equinox as eqx

        twin = eqx.tree_at(lambda twin: twin.warmup, self.twin, samples, is_leaf=lambda node: node is None)
        return replace(self, twin=twin)


class _Names(Settings):
    STATES: Names | None = None
    UNITS: dict[Name, OptionalName] = Field(default_factory=dict)


def load_system(
    path: str | Path,
    *,
    arguments: Mapping[str, Any] | None = None,
    sha256: str | None = None,
    trust_changed: bool = False,
) -> System:
    """Run a system.py and return what it defines.

    **Arguments:** `path`; `arguments` of its function `twin()`; `sha256`, the hash that the file must have (that of a
    model file); `trust_changed`: run the file even if its hash differs.

    **Raises:** `ValueError` if the file was changed, fails, does not take the arguments or does not build a twin;
    `FileNotFoundError`.
    """
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
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}.") from None
    except (Exception, SystemExit) as error:
        raise ValueError(locate_in_system(error) or f"{path}: {_text(error)}") from None
    twin, complete = _build(build, arguments or {}, path)
    try:
        names = validate(_Names, {name: vars(module)[name] for name in _Names.model_fields if name in vars(module)})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    functions = {name: value for name, value in vars(module).items() if isinstance(value, types.FunctionType)}
    return System(path, actual, twin, names.STATES, names.UNITS, complete, build, functions)


def _build(build: Callable[..., Any], arguments: Mapping[str, Any], path: Path) -> "tuple[Twin, dict[str, Any]]":
    """The twin that `build` returns for these arguments, and all its arguments with their values."""
    from twinfold.model import Twin

    complete = _bound(build, arguments, path)
    try:
        twin = build(**arguments)
    except (Exception, SystemExit) as error:
        raise ValueError(locate_in_system(error) or f"{path}: {_text(error)}") from None
    if not isinstance(twin, Twin):
        raise ValueError(f"{path}: twin() returned a {type(twin).__name__}; it must return a twinfold.Twin.")
    return twin, complete


def _bound(build: Callable[..., Any], arguments: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The arguments and the default values of the others; a `ValueError` names one that is unknown or missing."""
    signature = inspect.signature(build)
    parameters = signature.parameters.values()
    named = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    if not any(each.kind == each.VAR_KEYWORD for each in parameters):
        for name in sorted(set(arguments) - {each.name for each in named}):
            known = unknown_name(name, [each.name for each in named])
            raise ValueError(f"{path}: model.{name} is set, but twin() has no argument {known}")
    for each in named:
        if each.default is each.empty and each.name not in arguments:
            given = ", ".join(arguments) or "nothing"
            raise ValueError(
                f"{path}: twin() needs the argument '{each.name}', and [model] has {given}; set model.{each.name}, or "
                "give the argument a default value."
            )
    defaults = {each.name: each.default for each in named if each.default is not each.empty}
    return defaults | dict(arguments)


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
