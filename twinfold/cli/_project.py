"""Commands from nothing to a fitted twin: new, check, fit, evaluate."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from twinfold.cli._common import BAD, INTERRUPTED, PANEL, Folder, Sets, Trust, console, mistakes, opened

app = typer.Typer()


def _templates(incomplete: str) -> list[str]:
    from twinfold.workspace import SAMPLES

    return [name for name in SAMPLES if name.startswith(incomplete)]


@app.command(rich_help_panel=PANEL)
def new(
    name: Annotated[Path, typer.Argument(help="Folder of the project; it must be new, or empty.")],
    template: Annotated[str, typer.Option(help="pendulum, motor or tank.", autocompletion=_templates)] = "pendulum",
) -> None:
    """Write a small project: system.py, twinfold.toml, and measurements that it can be run on at once.

    \b
    Examples:
      twinfold new swing                     a pendulum: constraint, input, hidden velocities
      twinfold new drive --template motor    a DC motor of which only the current is measured
      twinfold new plant --template tank     two tanks, both levels measured, some values missing
    """
    with mistakes():
        from twinfold.workspace import new_project

        out = console()
        for path in new_project(name, template):
            out.print(str(path), markup=False)
        out.print(f"\nNext: cd {name}; twinfold check; twinfold fit", markup=False)


@app.command(rich_help_panel=PANEL)
def check(
    folder: Folder = Path(),
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the figures; check/ in the project.")] = None,
    plots: Annotated[bool, typer.Option(help="Draw inputs, outputs and what was found.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Before any training: does the physics run, do the data agree with it, what can they tell?

    \b
    Examples:
      twinfold check
      twinfold check --no-plots --json > findings.json
      twinfold check --set 'data.files=["new.csv"]'

    Ends with exit code 1 where something will not work as it is.
    """
    with mistakes():
        from twinfold.check import examine
        from twinfold.check._show import show
        from twinfold.plot import save

        workspace = opened(folder, sets)
        system, data = workspace.load_system(), workspace.load_data()
        units = system.units | ({"t": system.units["time"]} if "time" in system.units else {})
        found = examine(system.twin, data, states=system.states, units=units, plots=plots)
        if as_json:
            typer.echo(json.dumps(found.as_dict(), indent=2))
        else:
            show(found, console())
        place = workspace.folder / "check" if out is None else out
        for name, figure in found.figures.items():
            place.mkdir(parents=True, exist_ok=True)
            plain = re.sub(r"[^\w.-]+", "_", name)  # a figure of a run has its name, which may be any
            save(figure, place / f"{plain}.png")
        if found.figures and not as_json:
            console().print(f"Figures: {place}", markup=False)
        raise typer.Exit(BAD if found.worst == "problem" else 0)


@app.command(rich_help_panel=PANEL)
def fit(
    folder: Folder = Path(),
    sets: Sets = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; run.folder of the configuration.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Start over in a folder that holds another run.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Fit the twin of system.py to the data, compare it with its baselines, and keep all in a run folder.

    A fit that was stopped, or killed, goes on when the same command is given again.

    \b
    Examples:
      twinfold fit
      twinfold fit --set fit.seeds=5 --set fit.levenberg=150 --out runs/more
      twinfold fit --set run.track=tensorboard --force
    """
    with mistakes():
        from twinfold.workspace import fit_workspace, show_metrics

        said = console()
        workspace = opened(folder, sets, out)
        outcome = fit_workspace(
            workspace, force=force, progress=not quiet, tell=lambda line: said.print(line, markup=False)
        )
        for seed, words in outcome.lost.items():
            said.print(f"Seed {seed} {words}.", markup=False)
        if outcome.interrupted:
            typer.echo(f"Interrupted. The same command goes on from here ({outcome.folder}).", err=True)
            raise typer.Exit(INTERRUPTED)
        if not outcome.fitted:
            said.print(f"{outcome.folder} holds this fit already; --force starts over.", markup=False)
        show_metrics(outcome.metrics, said)
        said.print(f"Model: {outcome.folder / 'model.twin'}", markup=False)


@app.command(rich_help_panel=PANEL)
def evaluate(
    folder: Folder = Path(),
    sets: Sets = None,
    run: Annotated[Path | None, typer.Option("--run-folder", help="Folder of the run; run.folder.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the numbers to this JSON file.")] = None,
    trust: Trust = False,
) -> None:
    """The errors of the fitted twin beside those of its baselines: constant, pure physics, fitted physics.

    \b
    Examples:
      twinfold evaluate
      twinfold evaluate --set 'data.files=["next-week/*.csv"]' --out next-week.json

    On the data of the fit the numbers are also written to metrics.json in the run folder.
    """
    with mistakes():
        from twinfold.workspace import _files as files
        from twinfold.workspace import judge, load_fitted, plain, show_metrics, write_metrics

        workspace = opened(folder, sets, run)
        fitted, parts = load_fitted(workspace, trust_changed=trust), workspace.load_parts()
        metrics = plain(judge(fitted.twin, parts, fitted.physics))
        same = parts.train.fingerprint() == fitted.info.data_fingerprint
        said = console()
        if not same:
            said.print("These are other data than those of the fit: train, valid and test are parts of the new ones.")
        show_metrics(metrics, said)
        if same:
            write_metrics(workspace.run_folder / files.METRICS, metrics)
        if out is not None:
            write_metrics(out, metrics)
