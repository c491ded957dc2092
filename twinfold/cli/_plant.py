"""The commands beside a running plant, `follow` and `monitor`: options in, one call, rows or a verdict out."""

from pathlib import Path
from typing import Annotated

import typer

from twinfold.cli import _common as common
from twinfold.cli._common import CHECK_FAILED, PANEL, Folder, Overrides, RunFolder, RunParameters, Trust, report_errors

app = typer.Typer()


@app.command(rich_help_panel=PANEL)
def follow(
    source: Annotated[
        str, typer.Argument(metavar="[LOG]", help="A log, CSV or JSON lines; - or nothing: standard input.")
    ] = "-",
    folder: Folder = Path(),
    overrides: Overrides = None,
    run_folder: RunFolder = None,
    model: Annotated[
        Path | None, typer.Option(help="A model file; default: that of the run folder. Needs its system.py.")
    ] = None,
    run: RunParameters = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Table to write, .csv, .jsonl or .parquet; default: followed.csv, or standard output."),
    ] = None,
    format: Annotated[str, typer.Option(help="csv, jsonl or parquet; default: by the name of the table.")] = "",
    state: Annotated[
        Path | None, typer.Option(help="Resume from this file if it exists, and save to it, once a second or more.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Folder for a page about the plants that opens offline in a browser.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Follow plants with their twin: correct its state with every sample, and tell when a plant has changed.

    Each sample in has a row out: estimated states and parameters, the predicted outputs with a band, innovations, which
    values were refused, alarms. Several assets share a log by a column of their names. [follow] in twinfold.toml says
    how much noise there is, and which parameters drift.

    \b
    Examples:
      twinfold follow today.csv --out followed.csv --page followed
      plant-logger | twinfold follow --state plant.state --format jsonl > followed.jsonl
      twinfold follow today.csv --set 'follow.drift={stiffness=0.01}' --set 'follow.spread={stiffness=0.05}'

    The exit code is 1 if an alarm was raised.
    """
    with report_errors():
        from twinfold.workspace._follow import follow_workspace, model_file, open_model

        def log(line: str) -> None:
            typer.echo(line, err=True)

        if model is None:
            workspace, fitted = common.open_fitted(folder, overrides, run_folder, trust)
            place = model_file(workspace).parent
        else:
            common.prepare_jax()
            workspace, fitted = open_model(model, folder, overrides or [], trust_changed=trust)
            place = model.parent
        path = None if source == "-" else Path(source)
        table = Path("followed.csv") if out is None and path is not None and format in ("", "csv") else out
        if table is None and path is not None:
            table = Path(f"followed.{format}")
        outcome = follow_workspace(
            workspace, fitted, path, out=table, format=format, state=state, folder=place, run=run, page=page, log=log
        )
        left = f", {outcome.left_out} lines left out" if outcome.left_out else ""
        where = "" if table is None else f": {table}"
        log(f"{outcome.samples} samples of {outcome.assets} assets, {outcome.alarms} alarms{left}{where}")
        if page is not None:
            log(f"Page: {page / 'index.html'}")
        if outcome.interrupted:
            raise typer.Exit(common.INTERRUPTED)
        raise typer.Exit(CHECK_FAILED if outcome.alarms else 0)


@app.command(rich_help_panel=PANEL)
def monitor(
    new: Annotated[list[str], typer.Argument(help="Files of new measurements, with the columns of the data.")],
    folder: Folder = Path(),
    overrides: Overrides = None,
    run_folder: RunFolder = None,
    healthy: Annotated[
        list[str] | None,
        typer.Option(help="Files of the healthy plant; default: the runs held out from the fit, or else all."),
    ] = None,
    window: Annotated[int | None, typer.Option(min=2, help="Samples per window.")] = None,
    rate: Annotated[
        float, typer.Option("--false-alarm-rate", min=1e-6, max=0.5, help="False alarms per window.")
    ] = 0.01,
    old_rate: Annotated[str | None, common.renamed("--rate", "--false-alarm-rate")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of table, figure and state; default: monitor/ in the run folder.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue with the rows added since the last call.")] = False,
    trust: Trust = False,
) -> None:
    """Monitor a plant with its twin: has the difference between the two changed since the plant was healthy?

    \b
    Examples:
      twinfold monitor today.csv
      twinfold monitor today.csv --healthy january.csv --window 50 --false-alarm-rate 0.001
      twinfold monitor today.csv --resume

    The exit code is 1 if a change was detected.
    """
    with report_errors():
        from twinfold.workspace._monitor import monitor_workspace

        workspace, fitted = common.open_fitted(folder, overrides, run_folder, trust)
        place = workspace.run_folder / "monitor" if out is None else out
        verdict = monitor_workspace(
            workspace, fitted, new, healthy=healthy, folder=place, resume=resume, window=window, false_alarm_rate=rate
        )
        typer.echo(verdict.message)
        typer.echo(f"Table, figure and state: {place}")
        raise typer.Exit(CHECK_FAILED if verdict.status == "changed" else 0)
