"""The commands that run many fits, in one process or in many: options in, one call, a table or a path out."""

from pathlib import Path
from typing import Annotated

import typer

from twinfold.cli import _common as common
from twinfold.cli._common import (
    CHECK_FAILED,
    PANEL,
    Folder,
    Overrides,
    RunFolder,
    Scheduler,
    Trust,
    Workers,
    report_errors,
)

app = typer.Typer()
fleet = typer.Typer(help="One twin, many assets: own scalars of each, alarms, a report.", no_args_is_help=True)
app.add_typer(fleet, name="fleet", rich_help_panel=PANEL)
Out = Annotated[Path, typer.Option(help="Folder of the results.")]


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


@fleet.command("fit")
def fleet_fit(
    source: Annotated[str, typer.Argument(metavar="FOLDER", help="Measurements: a folder, or an address as s3://...")],
    folder: Folder = Path(),
    overrides: Overrides = None,
    run_folder: RunFolder = None,
    out: Out = Path("runs/fleet"),
    parameters: Annotated[
        str, typer.Option(help="Scalars to estimate, separated by commas; default: every Unknown scalar.")
    ] = "",
    asset: Annotated[str, typer.Option(help="The column that names the assets, if a file has several.")] = "",
    period: Annotated[
        float | None, typer.Option(min=0.0, help="Estimate each span of so many seconds by itself, to see drift.")
    ] = None,
    partition: Annotated[int, typer.Option(min=1, help="Assets read at a time.")] = 500,
    lanes: Annotated[
        int | None, typer.Option(min=1, help="Assets computed at a time; default: 32 on a CPU, 4096 on a GPU.")
    ] = None,
    workers: Workers = 1,
    scheduler: Scheduler = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = False,
    trust: Trust = False,
) -> None:
    """Estimate the scalars of every asset with the fitted twin of a project; its learned parts stay as they are.

    The same command resumes, and takes up new files and new rows. The columns are those of [data] in twinfold.toml.

    \b
    Examples:
      twinfold fleet fit cells/ --workers 4                    one file or folder for each asset
      twinfold fleet fit s3://plant/cells --asset cell_id      many assets in each file
      twinfold fleet fit cells/ --parameters R_o,q_max --period 86400

    The exit code is 1 if an asset or a file failed.
    """
    with report_errors():
        from twinfold.workspace._fleet import fit_workspace_fleet

        workspace, fitted = common.open_fitted(folder, overrides, run_folder, trust)
        names = [name.strip() for name in parameters.split(",") if name.strip()]
        done = fit_workspace_fleet(
            workspace,
            fitted,
            source,
            out,
            parameters=names or None,
            asset=asset,
            period=period,
            partition=partition,
            lanes=lanes,
            workers=workers,
            scheduler=scheduler,
            progress=not quiet,
            log=lambda line: typer.echo(line, err=True),
        )
        typer.echo(
            f"{done.assets} assets in {done.partitions} partitions: {done.estimated} estimates made, {done.rows} "
            f"stored, {done.failed} failed, {len(done.failures)} files not read. Padding {done.padding:.0%}."
        )
        typer.echo(f"Estimates: {done.folder / 'fit'}")
        _end(interrupted=done.interrupted, failed=bool(done.failed or done.failures))


@fleet.command("monitor")
def fleet_monitor(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="The results of `twinfold fleet fit`.")] = Path(
        "runs/fleet"
    ),
    healthy: Annotated[int, typer.Option(min=1, help="First periods of each asset that count as healthy.")] = 1,
    rate: Annotated[
        float, typer.Option("--false-alarm-rate", help="Alarms of a healthy asset in each period.")
    ] = 0.001,
    health: Annotated[str, typer.Option(help="The scalar that wears, for the remaining life.")] = "",
    threshold: Annotated[float | None, typer.Option(help="Its value at the end of life.")] = None,
    rising: Annotated[bool, typer.Option("--rising", help="It rises to its threshold.")] = False,
    workers: Workers = 1,
    scheduler: Scheduler = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")] = False,
) -> None:
    """Judge every asset against the healthy part of the fleet: alarms, and remaining lives.

    \b
    Examples:
      twinfold fleet monitor
      twinfold fleet monitor runs/fleet --healthy 5 --health q_max --threshold 9000

    The exit code is 1 if there is an alarm.
    """
    with report_errors():
        from twinfold.fleet import monitor_fleet

        found = monitor_fleet(
            out,
            healthy=healthy,
            false_alarm_rate=rate,
            health=health,
            threshold=threshold,
            falling=not rising,
            workers=workers,
            scheduler=scheduler,
            progress=not quiet,
            log=lambda line: typer.echo(line, err=True),
        )
        typer.echo(f"{found.alarms} of {found.assets} assets are in alarm.")
        for name, severity in found.worst[:10]:
            typer.echo(f"  {name}: {severity:.2f} times the limit")
        _end(interrupted=found.interrupted, failed=bool(found.alarms or found.failures))


@fleet.command("report")
def fleet_report(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="The results of `twinfold fleet fit`.")] = Path(
        "runs/fleet"
    ),
    title: Annotated[str, typer.Option(help="Title of the page; default: the name of the folder.")] = "",
) -> None:
    """Write pages about the fleet that open offline: distributions, drift, alarms ranked, a page for each asset."""
    with report_errors():
        from twinfold.fleet import report_fleet

        typer.echo(f"Report: {report_fleet(out, title=title, log=lambda line: typer.echo(line, err=True))}")


def _end(*, interrupted: bool, failed: bool) -> None:
    """Leave the command with its exit code."""
    if interrupted:
        typer.echo("Interrupted. The same command resumes.", err=True)
        raise typer.Exit(common.INTERRUPTED)
    raise typer.Exit(CHECK_FAILED if failed else 0)
