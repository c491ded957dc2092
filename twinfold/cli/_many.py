"""The commands that run many fits, in one process or in many: options in, one call, a table or a path out."""

from pathlib import Path
from typing import Annotated

import typer

from twinfold.cli import _common as common
from twinfold.cli._common import CHECK_FAILED, PANEL, Folder, Overrides, Scheduler, Workers, report_errors

app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def sweep(
    over: Annotated[
        list[str],
        typer.Option(
            metavar="A.B=[VALUES]",
            help="A setting and the values to compare; can be repeated.",
            autocompletion=common.complete_setting,
        ),
    ],
    folder: Folder = Path(),
    overrides: Overrides = None,
    random: Annotated[
        int | None, typer.Option(min=1, help="Only this many combinations, drawn at random, instead of all.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; default: runs/sweep.")] = None,
    workers: Workers = 1,
    scheduler: Scheduler = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the results.")] = False,
) -> None:
    """Compare settings: fit with every combination of values, and rank the fits by their error on held-out runs.

    The errors are those on the runs data.valid; the test runs are not used. The same command resumes: finished fits are
    not repeated, further values only add fits.

    \b
    Examples:
      twinfold sweep --over 'loss.l2=[0, 1e-5, 1e-4]' --over 'model.width=[8, 16]'
      twinfold sweep --over 'loss.l2=[0, 1e-5, 1e-4]' --over 'fit.window=[20, 50]' --random 4 --set fit.seeds=3
      twinfold sweep --over 'model.width=[8, 16, 32]' --workers 4

    The exit code is 1 if no fit succeeded.
    """
    with report_errors():
        from twinfold.workspace import sweep_workspace
        from twinfold.workspace._sweep import parse_over
        from twinfold.workspace._sweep_results import conclusions, print_sweep, write_sweep

        values, workspace = parse_over(over), common.open_in_x64(folder, overrides)
        log = (lambda line: None) if quiet else typer.echo
        place = None if out is None else out.resolve()
        result = sweep_workspace(
            workspace,
            values,
            random=random,
            folder=place,
            workers=workers,
            scheduler=scheduler,
            progress=not quiet,
            log=log,
        )
        if result.rows:
            write_sweep(result)
            print_sweep(result, common.console())
            for line in conclusions(result, overrides or ()):
                typer.echo(line)
            typer.echo(f"Table and picture: {result.folder}")
        if result.interrupted:
            typer.echo("Interrupted. The same command resumes the sweep.", err=True)
            raise typer.Exit(common.INTERRUPTED)
        raise typer.Exit(0 if any(row.errors for row in result.rows) else CHECK_FAILED)
