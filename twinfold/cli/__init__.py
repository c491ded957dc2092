"""The command line: argument parsing only; what the commands do is in `workspace`.

Other distributions add commands through the entry point group `twinfold.commands`.
"""

import os
from importlib.metadata import entry_points
from typing import Annotated

import typer

from twinfold.cli import _deploy, _project

# The factorisations in training are small: threads of the linear algebra library cost more than they bring, most of all
# where the cores have other work. It reads this when it is loaded, which JAX does when it first needs it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

app = typer.Typer(
    name="twinfold",
    help="""Grey-box digital twins that stay on their manifold.

    \b
    twinfold new pendulum      a project to start from
    cd pendulum
    twinfold check             look at system and data
    twinfold fit               fit the twin; the same command goes on
    twinfold report            a page about it
    twinfold export --to fmu   and where it runs next
    """,
    epilog="Exit codes: 0 all well; 1 done, and what came out is bad; 2 a mistake in what was given; 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for commands in (_project.app, _deploy.app):
    app.add_typer(commands)
for entry in entry_points(group="twinfold.commands"):
    entry.load()(app)


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
    pass


def main() -> None:
    """Entry point of the `twinfold` command."""
    app()
