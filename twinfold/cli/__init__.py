"""The command line: argument parsing only; the commands themselves are in `workspace`.

Other distributions add commands through the entry point group `twinfold.commands`.
"""

import os
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Annotated

import typer

from twinfold.cli import _commands, _many, _plant
from twinfold.cli._plugins import add_plugin_commands

# Training factorises many small matrices, where the threads of the linear algebra library cost more than they save,
# above all on busy cores. The variable is read when JAX first loads the library.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

when_a_command_begins: list[Callable[[], None]] = []
app = typer.Typer(
    name="twinfold",
    help="""Grey-box digital twins that stay on their manifold.

    \b
    twinfold new pendulum      create a project
    cd pendulum
    twinfold check             check system and data
    twinfold fit               fit the twin; the same command resumes
    twinfold report            write a report
    twinfold export --to fmu   export it to where it runs
    """,
    epilog="Exit codes: 0: success; 1: completed, but a check failed; 2: wrong input; 130: interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(_commands.app)
app.add_typer(_plant.app)
app.add_typer(_many.app)
add_plugin_commands(app, tuple(entry_points(group="twinfold.commands")))


def _print_version(wanted: bool) -> bool:
    if wanted:
        from twinfold._version import __version__

        typer.echo(f"twinfold {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    for call in when_a_command_begins:
        call()
