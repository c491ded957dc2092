"""Commands with a fitted twin: simulate, report, export, info, monitor."""

import json
from pathlib import Path
from typing import Annotated

import typer

from twinfold.cli._common import BAD, PANEL, Folder, Sets, Trust, console, mistakes, opened, typed

app = typer.Typer()
RunFolder = Annotated[Path | None, typer.Option("--run-folder", help="Folder of the run; run.folder.")]
OwnRun = Annotated[str | None, typer.Option("--run", help="A run of the fit whose own parameters to use.")]


def _kinds(incomplete: str) -> list[str]:
    from twinfold.workspace import KINDS

    return [name for name in KINDS if name.startswith(incomplete)]


def _values(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--x0 {text}: give numbers separated by commas, one for each state.") from None


@app.command(rich_help_panel=PANEL)
def simulate(
    inputs: Annotated[list[str], typer.Argument(help="CSV, Parquet or .mat files with times and inputs.")],
    folder: Folder = Path(),
    sets: Sets = None,
    run_folder: RunFolder = None,
    x0: Annotated[str | None, typer.Option(help="The state at the start, values separated by commas.")] = None,
    run: OwnRun = None,
    out: Annotated[Path, typer.Option(help="Table to write, .csv or .parquet.")] = Path("simulation.csv"),
    plot: Annotated[Path | None, typer.Option(help="Picture of the first run; beside the table.")] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Write the table alone.")] = False,
    trust: Trust = False,
) -> None:
    """Predict under new inputs: a table of inputs in, a table of outputs and states and a picture out.

    A run starts from --x0, or from columns named like the states, or from the outputs in its first row.

    \b
    Examples:
      twinfold simulate tomorrow.csv --x0 1.2,0,0,0
      twinfold simulate data/sample.csv --out predicted.parquet --plot predicted.png
    """
    with mistakes():
        from twinfold.plot import save
        from twinfold.workspace import load_fitted, picture, rows_of, simulate_workspace, write_table

        start = _values(x0)
        if out.suffix not in (".csv", ".parquet", ".pq"):
            raise typer.BadParameter(f"--out {out}: the name must end in .csv or .parquet.")
        workspace = opened(folder, sets, run_folder)
        fitted = load_fitted(workspace, trust_changed=trust)
        found = simulate_workspace(workspace, fitted, inputs, x0=start, run=run)
        write_table(out, rows_of(found, workspace, fitted))
        said = console()
        said.print(f"{sum(each.samples for each in found)} rows, {len(found)} runs: {out}", markup=False)
        if not no_plot:
            picture_path = out.with_suffix(".png") if plot is None else plot
            save(picture(found[0], fitted), picture_path)
            said.print(f"Picture: {picture_path}", markup=False)
        notes = [note for each in found for note in each.notes]
        more = f" (and {len(notes) - 1} more like it)" if len(notes) > 1 else ""
        for note in notes[:1]:
            typer.echo(f"Note: {note}{more}", err=True)
        raise typer.Exit(BAD if any(each.failed for each in found) else 0)


@app.command(rich_help_panel=PANEL)
def report(
    folder: Folder = Path(),
    sets: Sets = None,
    run_folder: RunFolder = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the report; report/ in that of the run.")] = None,
    seeds: Annotated[bool, typer.Option(help="Show the spread over all seeds too.")] = True,
    trust: Trust = False,
) -> None:
    """Write a page about the fitted twin that opens offline in a browser.

    \b
    Examples:
      twinfold report
      twinfold report --out for-the-meeting
    """
    with mistakes():
        from twinfold.workspace import load_fitted, report_workspace

        workspace = opened(folder, sets, run_folder)
        fitted, parts = load_fitted(workspace, trust_changed=trust), workspace.load_parts()
        place = workspace.run_folder / "report" if out is None else out
        page = report_workspace(workspace, fitted, parts, folder=place, seeds=seeds, command=typed())
        console().print(f"Report: {page}", markup=False)


@app.command(rich_help_panel=PANEL)
def export(
    to: Annotated[
        list[str], typer.Option(help="c, fmu, onnx or stablehlo; can be given again.", autocompletion=_kinds)
    ],
    folder: Folder = Path(),
    sets: Sets = None,
    run_folder: RunFolder = None,
    run: OwnRun = None,
    out: Annotated[Path | None, typer.Option(help="Folder; export/ in that of the run.")] = None,
    trust: Trust = False,
) -> None:
    """Export one step of the fitted twin, and compare what was written with the twin.

    \b
    Examples:
      twinfold export --to fmu
      twinfold export --to c --to onnx --out firmware --set export.dt=0.01 --set export.name=plant

    Ends with exit code 1 where the comparison failed, or nothing could be written.
    """
    with mistakes():
        from twinfold.workspace import export_workspace, load_fitted

        workspace = opened(folder, sets, run_folder)
        fitted = load_fitted(workspace, trust_changed=trust)
        place = workspace.run_folder / "export" if out is None else out
        said, failed = console(), False
        for each in export_workspace(workspace, fitted, to, place, run=run):
            for line in each.words:
                said.print(line, markup=False)
            for path in each.files:
                said.print(f"  {path}", markup=False)
            compared = (each.largest_difference, each.free_running_difference) != (None, None)
            failed = failed or not each.files or (compared and not each.checked)
        raise typer.Exit(BAD if failed else 0)


@app.command(rich_help_panel=PANEL)
def info(
    model: Annotated[Path | None, typer.Argument(help="A model file; that of the run folder when left out.")] = None,
    folder: Folder = Path(),
    sets: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
) -> None:
    """What is in a model file. Nothing of it is executed, and system.py is not looked at.

    \b
    Examples:
      twinfold info
      twinfold info runs/first/model.twin --json
    """
    with mistakes():
        import dataclasses

        from twinfold.model import read_info
        from twinfold.workspace import _files as files
        from twinfold.workspace import show_info

        path = opened(folder, sets).run_folder / files.MODEL if model is None else model
        found = read_info(path)
        if as_json:
            typer.echo(json.dumps(dataclasses.asdict(found), indent=2))
        else:
            show_info(path, found, console())


@app.command(rich_help_panel=PANEL)
def monitor(
    new: Annotated[list[str], typer.Argument(help="Files of new measurements, with the columns of the data.")],
    folder: Folder = Path(),
    sets: Sets = None,
    run_folder: RunFolder = None,
    healthy: Annotated[
        list[str] | None, typer.Option(help="Files of the plant when all was well; the data of the fit.")
    ] = None,
    window: Annotated[int | None, typer.Option(min=2, help="Samples that are judged together.")] = None,
    rate: Annotated[float, typer.Option(min=1e-6, max=0.5, help="False alarms per window.")] = 0.01,
    out: Annotated[Path | None, typer.Option(help="Folder of table, picture and state; monitor/ in the run's.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the rows added since the last call.")] = False,
    trust: Trust = False,
) -> None:
    """Watch a plant with its twin: has the difference between the two changed since all was well?

    \b
    Examples:
      twinfold monitor today.csv
      twinfold monitor today.csv --healthy january.csv --window 50 --rate 0.001
      twinfold monitor today.csv --resume

    Ends with exit code 1 where something has changed.
    """
    with mistakes():
        from twinfold.workspace import load_fitted, watch_workspace

        workspace = opened(folder, sets, run_folder)
        fitted = load_fitted(workspace, trust_changed=trust)
        place = workspace.run_folder / "monitor" if out is None else out
        found = watch_workspace(
            workspace, fitted, new, healthy=healthy, folder=place, resume=resume, window=window, rate=rate
        )
        said = console()
        said.print(found.words, markup=False)
        said.print(f"Table, picture and state: {place}", markup=False)
        raise typer.Exit(BAD if found.status == "changed" else 0)
