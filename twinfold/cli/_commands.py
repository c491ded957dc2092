"""The commands of a workspace, from a new project to an export: options in, one call, a table or a path out."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from twinfold.cli import _common as common
from twinfold.cli._common import CHECK_FAILED, PANEL, Folder, Overrides, RunFolder, RunParameters, Trust, report_errors

app = typer.Typer()
TARGETS = ("c", "fmu", "onnx", "stablehlo")


def _complete_template(incomplete: str) -> list[str]:
    from twinfold.workspace._samples import SAMPLES

    return [name for name in SAMPLES if name.startswith(incomplete)]


@app.command(rich_help_panel=PANEL)
def new(
    name: Annotated[Path, typer.Argument(help="Folder of the project; it must be new or empty.")],
    template: Annotated[
        str, typer.Option(help="pendulum, motor, tank or battery.", autocompletion=_complete_template)
    ] = "pendulum",
) -> None:
    """Create a small project: system.py, twinfold.toml, and sample measurements, ready to run.

    \b
    Examples:
      twinfold new swing                     a pendulum: constraint, input, hidden velocities
      twinfold new drive --template motor    a DC motor of which only the current is measured
      twinfold new plant --template tank     two tanks, both levels measured, some values missing
      twinfold new cell --template battery   a lithium-ion cell with a network that is fitted already
    """
    with report_errors():
        from twinfold.workspace import new_project

        for path in new_project(name, template):
            typer.echo(str(path))
        typer.echo(f"\nNext: cd {name}; twinfold check; twinfold fit")


@app.command(rich_help_panel=PANEL)
def check(
    folder: Folder = Path(),
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the figures; default: check/ in the project.")] = None,
    plots: Annotated[bool, typer.Option(help="Draw inputs, outputs and findings.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check system and data before training: does the physics run, do the data agree, what can they identify?

    \b
    Examples:
      twinfold check
      twinfold check --no-plots --json > findings.json
      twinfold check --set 'data.files=["new.csv"]'

    The exit code is 1 if there is a problem that prevents a fit.
    """
    with report_errors():
        from twinfold.plot import save
        from twinfold.workspace._check import examine_workspace

        workspace = common.open_in_x64(folder, overrides)
        examination = examine_workspace(workspace.load_system(), workspace.load_split(), plots=plots)
        if as_json:
            typer.echo(json.dumps(examination.as_dict(), indent=2))
        else:
            examination.show(common.console())
        place = workspace.folder / "check" if out is None else out
        for name, figure in examination.figures.items():
            place.mkdir(parents=True, exist_ok=True)
            file = re.sub(r"[^\w.-]+", "_", name)  # the figure of a run has its name, which may contain any character
            save(figure, place / f"{file}.png")
        if examination.figures and not as_json:
            typer.echo(f"Figures: {place}")
        raise typer.Exit(CHECK_FAILED if examination.worst == "problem" else 0)


@app.command(rich_help_panel=PANEL)
def fit(
    folder: Folder = Path(),
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: run.folder.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Start over in a folder that holds another run.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Fit the twin of system.py to the data, compare it with its baselines, and store both in a run folder.

    System and data are checked first, as by `twinfold check`. The same command resumes a fit that was interrupted or
    killed. The exit code is 1 if there is a problem, or if a baseline is more accurate than the twin.

    \b
    Examples:
      twinfold fit
      twinfold fit --set fit.seeds=5 --set fit.lm_steps=150 --out runs/more
      twinfold fit --set run.track=tensorboard --force
    """
    with report_errors():
        from twinfold.workspace import fit_workspace
        from twinfold.workspace._display import print_metrics, print_parameters

        workspace = common.open_in_x64(folder, overrides, out)
        outcome = fit_workspace(workspace, force=force, progress=not quiet, log=typer.echo)
        for seed, reason in (outcome.failures or {}).items():
            typer.echo(f"Seed {seed} {reason}.")
        if outcome.interrupted:
            typer.echo(f"Interrupted. The same command resumes the fit ({outcome.folder}).", err=True)
            raise typer.Exit(common.INTERRUPTED)
        if outcome.finished_before:
            typer.echo(f"{outcome.folder} already holds this fit; --force starts over.")
        print_metrics(outcome.metrics, common.console(), outcome.units)
        print_parameters(outcome.parameters, common.console(), outcome.units)
        typer.echo(f"Model: {outcome.folder / 'model.twin'}")
        raise typer.Exit(CHECK_FAILED if any(each.severity == "problem" for each in outcome.findings) else 0)


@app.command(rich_help_panel=PANEL)
def evaluate(
    new: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...", help="Files to judge, each as a whole; default: the parts of the project's data."
        ),
    ] = None,
    folder: Folder = Path(),
    overrides: Overrides = None,
    run_folder: RunFolder = None,
    out: Annotated[Path | None, typer.Option(help="Write the metrics to this JSON file.")] = None,
    band: Annotated[float | None, typer.Option(help="Report the coverage of bands of this probability.")] = None,
    trust: Trust = False,
) -> None:
    """Compare the errors of the fitted twin with those of its baselines: constant, pure physics, fitted physics.

    \b
    Examples:
      twinfold evaluate                                    the training, validation and test runs of the fit
      twinfold evaluate next-week.csv                      a new file, as a whole
      twinfold evaluate next-week/*.csv --out new.json     several, each by itself

    For the data of the fit, the metrics are also written to metrics.json in the run folder.
    """
    with report_errors():
        from twinfold.io import write_json
        from twinfold.workspace._display import print_metrics
        from twinfold.workspace._evaluate import evaluate_workspace

        workspace, fitted = common.open_fitted(folder, overrides, run_folder, trust)
        outcome = evaluate_workspace(workspace, fitted, new or (), band=band, log=_log)
        for note in outcome.notes:
            typer.echo(f"Note: {note}", err=True)
        print_metrics(outcome.metrics, common.console(), outcome.units)
        for finding in outcome.findings:
            typer.echo(f"Note: {finding.message}", err=True)
        if out is not None:
            write_json(out, outcome.metrics | {"units": outcome.units})


def _log(line: str) -> None:
    typer.echo(line, err=True)


def _complete_target(incomplete: str) -> list[str]:
    return [name for name in TARGETS if name.startswith(incomplete)]


def _numbers(text: str | None) -> list[float] | None:
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
    overrides: Overrides = None,
    run_folder: RunFolder = None,
    x0: Annotated[str | None, typer.Option(help="The initial state, values separated by commas.")] = None,
    run: RunParameters = None,
    out: Annotated[Path, typer.Option(help="Table to write, .csv or .parquet.")] = Path("simulation.csv"),
    plot: Annotated[Path | None, typer.Option(help="Figure of the first run; default: beside the table.")] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Write the table only.")] = False,
    band: Annotated[float | None, typer.Option(help="Add bands of this probability, for example 0.9.")] = None,
    trust: Trust = False,
) -> None:
    """Predict under new inputs: read a table of inputs, write a table of outputs and states and a figure.

    The initial state of a run is --x0, or columns named like the states, or derived from the outputs in its first row.

    \b
    Examples:
      twinfold simulate tomorrow.csv --x0 1.2,0,0,0
      twinfold simulate data/sample.csv --out predicted.parquet --plot predicted.png
    """
    with report_errors():
        from twinfold.plot import save
        from twinfold.workspace import _simulate as simulation

        initial = _numbers(x0)
        if out.suffix not in (".csv", *simulation.PARQUET):
            raise typer.BadParameter(f"--out {out}: the name must end in .csv or .parquet.")
        workspace, fitted = common.open_fitted(folder, overrides, run_folder, trust)
        runs = simulation.simulate_workspace(workspace, fitted, inputs, x0=initial, run=run)
        if band is not None:
            from twinfold.workspace._bands import prepare_bands, with_bands

            bands = prepare_bands(workspace, fitted, band, run=run, log=_log)
            runs = with_bands(runs, bands, run=run, given=initial is not None)
        simulation.write_rows(out, simulation.simulation_rows(runs, workspace, fitted))
        typer.echo(f"{sum(each.samples for each in runs)} rows, {len(runs)} runs: {out}")
        if not no_plot:
            figure = out.with_suffix(".png") if plot is None else plot
            save(simulation.plot_simulation(runs[0], fitted), figure)
            typer.echo(f"Figure: {figure}")
        notes = [note for each in runs for note in each.notes]
        if notes:
            more = f" (and {len(notes) - 1} more)" if len(notes) > 1 else ""
            typer.echo(f"Note: {notes[0]}{more}", err=True)
        raise typer.Exit(CHECK_FAILED if any(each.failed for each in runs) else 0)


@app.command(rich_help_panel=PANEL)
def report(
    folder: Folder = Path(),
    overrides: Overrides = None,
    run_folder: RunFolder = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the report; default: report/ in the run folder.")] = None,
    seeds: Annotated[bool, typer.Option(help="Show the spread over all seeds.")] = True,
    trust: Trust = False,
) -> None:
    """Write a report on the fitted twin that opens offline in a browser.

    \b
    Examples:
      twinfold report
      twinfold report --out for-the-meeting
    """
    with report_errors():
        from twinfold.workspace._report import report_workspace

        workspace, fitted = common.open_fitted(folder, overrides, run_folder, trust)
        page = report_workspace(workspace, fitted, folder=out, seeds=seeds, command=common.typed_command())
        typer.echo(f"Report: {page}")


@app.command(rich_help_panel=PANEL)
def export(
    to: Annotated[
        list[str], typer.Option(help="c, fmu, onnx or stablehlo; can be repeated.", autocompletion=_complete_target)
    ],
    folder: Folder = Path(),
    overrides: Overrides = None,
    run_folder: RunFolder = None,
    run: RunParameters = None,
    follower: Annotated[
        bool, typer.Option("--follower", help="Export one sample of the follower of [follow] instead; c or fmu.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder; default: export/ in the run folder.")] = None,
    trust: Trust = False,
) -> None:
    """Export one step of the fitted twin, and compare the export with the twin.

    \b
    Examples:
      twinfold export --to fmu
      twinfold export --to c --follower
      twinfold export --to c --to onnx --out firmware --set export.dt=0.01 --set export.name=plant

    The exit code is 1 if the comparison failed, or an export could not be written.
    """
    with report_errors():
        from twinfold.workspace._export import export_workspace

        workspace, fitted = common.open_fitted(folder, overrides, run_folder, trust)
        failed = False
        for each in export_workspace(workspace, fitted, to, folder=out, run=run, follower=follower, log=typer.echo):
            for line in each.messages:
                typer.echo(line)
            for path in each.files:
                typer.echo(f"  {path}")
            compared = (each.largest_difference, each.free_running_difference) != (None, None)
            failed = failed or not each.files or (compared and not each.checked)
        raise typer.Exit(CHECK_FAILED if failed else 0)


@app.command(rich_help_panel=PANEL)
def info(
    model: Annotated[Path | None, typer.Argument(help="A model file; default: that of the run folder.")] = None,
    folder: Folder = Path(),
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what a model file contains. Nothing in it is executed, and system.py is not read.

    \b
    Examples:
      twinfold info
      twinfold info runs/first/model.twin --json
    """
    with report_errors():
        from twinfold.io import read_info
        from twinfold.workspace import open_workspace
        from twinfold.workspace._display import print_info
        from twinfold.workspace._files import MODEL

        path = open_workspace(folder, overrides or []).run_folder / MODEL if model is None else model
        found = read_info(path)
        if as_json:
            typer.echo(found.model_dump_json(indent=2))
        else:
            print_info(path, found, common.console())
