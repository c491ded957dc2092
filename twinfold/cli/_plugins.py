"""Commands of other distributions, through the entry point group `twinfold.commands`."""

from collections.abc import Callable, Iterable
from typing import Any

import typer

from twinfold.cli._common import USAGE_ERROR

STUDIES = "studies"  # the entry point of the distribution twinfold-studies
STUDY_COMMANDS = ("bench", "data", "demo", "systems")


def add_plugin_commands(app: typer.Typer, entries: Iterable[Any]) -> None:
    """Add the commands of each entry point, a function of the application; one that fails is reported on stderr.

    Where the backport `importlib_metadata` is loaded, as by Dask, entry points are instances of its own class.

    Without the studies, their commands only say where they are.
    """
    added = set()
    for entry in entries:
        try:
            entry.load()(app)
            added.add(entry.name)
        except Exception as error:  # whatever another distribution raises, the other commands must work
            source = entry.dist.name if entry.dist else entry.value
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            typer.echo(f"Cannot load the commands of {source} ({reason}).", err=True)
    if STUDIES not in added:
        for name in STUDY_COMMANDS:
            options = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
            app.command(name, hidden=True, context_settings=options)(_refusal(name))


def _refusal(name: str) -> Callable[[], None]:
    def refuse() -> None:
        typer.echo(
            f"`twinfold {name}` is in the distribution twinfold-studies, which is not installed (from a checkout: "
            "pip install -e ./studies).",
            err=True,
        )
        raise typer.Exit(USAGE_ERROR)

    return refuse
