"""What the commands of a workspace share: their options, and the reporting of errors."""

import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from twinfold.workspace import Workspace
    from twinfold.workspace._fit import Fitted

PANEL = "Your own system"
CHECK_FAILED, USAGE_ERROR, INTERRUPTED = 1, 2, 130  # exit codes


def complete_setting(incomplete: str) -> list[str]:
    """The settings whose names begin so, for the completion of the shell."""
    from twinfold.workspace._config import setting_names

    return [f"{name}=" for name in setting_names() if name.startswith(incomplete)]


Folder = Annotated[
    Path, typer.Option("-C", "--folder", metavar="FOLDER", help="Use this folder instead of the current one.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="A.B=VALUE",
        help="Replace a setting of twinfold.toml; can be repeated.",
        autocompletion=complete_setting,
    ),
]
RunFolder = Annotated[Path | None, typer.Option("--run-folder", help="Folder of the run; default: run.folder.")]
RunParameters = Annotated[
    str | None, typer.Option("--run", help="A run of the training data whose own parameters are used.")
]
Workers = Annotated[int, typer.Option(min=1, help="Number of processes of this machine.")]
Scheduler = Annotated[
    str, typer.Option(metavar="ADDRESS", help="A Dask cluster to use instead, as tcp://host:8786; see docs/fleet.md.")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust-changed-system", help="Run system.py even if it is not the file that the model was fitted with."
    ),
]


def renamed(old: str, new: str) -> Any:
    """An option of an earlier version, which is refused with its new name."""

    def refuse(value: str | None) -> None:
        if value is not None:
            raise typer.BadParameter(f"{old} is now called {new}.")

    return typer.Option(old, hidden=True, callback=refuse)


def console() -> Console:
    """The console for results."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def typed_command() -> str:
    """The command as it was typed."""
    return shlex.join(["twinfold", *sys.argv[1:]])


def prepare_jax() -> None:
    """Double precision, and compiled programs of earlier commands."""
    from twinfold._core import enable_compilation_cache, enable_x64

    enable_x64()
    enable_compilation_cache()


def open_in_x64(folder: Path, overrides: list[str] | None, run_folder: Path | None = None) -> "Workspace":
    """Open the workspace of a command in double precision; `run_folder` is relative to the current folder."""
    import tomlkit

    from twinfold.workspace import open_workspace

    prepare_jax()
    changes = list(overrides or [])
    if run_folder is not None:
        changes.append(f"run.folder={tomlkit.string(str(run_folder.resolve())).as_string()}")
    return open_workspace(folder, changes)


def open_fitted(
    folder: Path, overrides: list[str] | None, run_folder: Path | None, trust_changed: bool
) -> "tuple[Workspace, Fitted]":
    """The workspace of a command with the configuration of its fit, which --set can change, and its fitted twin."""
    from twinfold.workspace import load_fitted
    from twinfold.workspace._config import FILE

    now = open_in_x64(folder, overrides, run_folder)
    workspace = now.as_fitted(overrides or [])
    if different := workspace.differences(now):
        typer.echo(
            f"Note: the configuration is that of the fit in {workspace.run_folder}; {FILE} now has other values of "
            f"{', '.join(different)}, which the next fit will use (here: --set).",
            err=True,
        )
    return workspace, load_fitted(workspace, trust_changed=trust_changed)


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Turn an exception into one message on stderr and an exit code, and a warning into one line."""

    def note(message: Any, *_: Any, **__: Any) -> None:
        typer.echo(f"Note: {message}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = note
        try:
            yield
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            typer.echo("Interrupted.", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            if os.environ.get("TWINFOLD_TRACEBACK"):
                raise
            from twinfold.workspace._system import locate_in_system

            message = locate_in_system(error) or (str(error) if _is_expected(error) else None)
            if message is None:
                typer.echo(
                    f"Internal error: {type(error).__name__}: {error}\n"
                    "Set TWINFOLD_TRACEBACK=1 in the environment to see where it was raised.",
                    err=True,
                )
                raise typer.Exit(CHECK_FAILED) from None
            typer.echo(message, err=True)
            raise typer.Exit(USAGE_ERROR) from None


def _is_expected(error: Exception) -> bool:
    from twinfold.io import ConfigurationMismatch

    if isinstance(error, ConfigurationMismatch | ValueError | OSError | ImportError):
        return True
    from twinfold.model import SimulationError  # here, since it imports JAX

    return isinstance(error, SimulationError)
