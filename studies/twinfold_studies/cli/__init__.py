"""Commands that the studies add to `twinfold`: systems, demo, bench, data."""

import typer


def add_commands(app: typer.Typer) -> None:
    """Add the commands to the application; the entry point in the group `twinfold.commands`."""
    from twinfold_studies.cli import bench, data

    app.add_typer(bench.app)
    app.add_typer(data.app, name="data", rich_help_panel=bench.PANEL)
