"""What the commands of a workspace share: their options, and what becomes of a mistake."""

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

PANEL = "Your own system"
BAD, MISTAKE, INTERRUPTED = 1, 2, 130


def _settings(incomplete: str) -> list[str]:
    from twinfold.workspace import setting_names

    return [f"{name}=" for name in setting_names() if name.startswith(incomplete)]


Folder = Annotated[
    Path, typer.Option("-C", "--folder", metavar="FOLDER", help="Work in this folder rather than the current one.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="A.B=VALUE",
        help="Replace a setting of twinfold.toml; can be given again and again.",
        autocompletion=_settings,
    ),
]
Trust = Annotated[
    bool,
    typer.Option("--trust-changed-system", help="Run system.py though it is not the file the model was fitted with."),
]


def console() -> Console:
    """Where results are printed."""
    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def typed() -> str:
    """The command as it was typed."""
    return shlex.join(["twinfold", *sys.argv[1:]])


def opened(folder: Path, sets: list[str] | None, out: Path | None = None) -> "Workspace":
    """The workspace of a command, in double precision; `out` is its run folder, relative to the current one."""
    from twinfold._core import enable_x64
    from twinfold.workspace import open_workspace

    enable_x64()
    changes = [*(sets or []), *([] if out is None else [f"run.folder={_quoted(str(out.resolve()))}"])]
    return open_workspace(folder, changes)


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


@contextlib.contextmanager
def mistakes() -> Iterator[None]:
    """Whatever goes wrong inside ends in one message on stderr and an exit code; warnings are one line each."""
    from twinfold.io import OtherConfiguration
    from twinfold.model import SimulationError
    from twinfold.workspace import in_user_code

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
            expected = isinstance(error, OtherConfiguration | ValueError | OSError | ImportError | SimulationError)
            words = in_user_code(error)
            if os.environ.get("TWINFOLD_TRACEBACK"):
                raise
            if words is None and not expected:
                typer.echo(
                    f"This should not have happened: {type(error).__name__}: {error}\n"
                    "With TWINFOLD_TRACEBACK=1 in the environment the same command shows where.",
                    err=True,
                )
                raise typer.Exit(BAD) from None
            typer.echo(words or str(error), err=True)
            raise typer.Exit(MISTAKE) from None
