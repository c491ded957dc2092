"""The commands `twinfold systems`, `demo` and `bench`."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from twinfold_studies.bench.queue import Request

app = typer.Typer()
PANEL = "Benchmarks"


def _known_system(name: str) -> str:
    from twinfold_studies.systems.registry import system

    try:
        return system(name).name
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@app.command(rich_help_panel=PANEL)
def systems() -> None:
    """List the benchmark systems: equations, known physics and invariants."""
    from rich.console import Console

    from twinfold_studies.systems.registry import SYSTEMS, describe

    console = Console(highlight=False)
    for name in SYSTEMS:
        known, equations = describe(name)
        console.print(f"[bold]{name}[/]  {known}", soft_wrap=True)
        for line in equations:
            console.print(f"    {line}", markup=False, soft_wrap=True)


@app.command(rich_help_panel=PANEL)
def demo(
    system: Annotated[
        str, typer.Option(callback=_known_system, help="The system; see `twinfold systems`.")
    ] = "two_body",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Fits of each model; default: 3, or 1 with --quick."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: runs/demo-SYSTEM.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and few epochs.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start over in a folder that holds another run.")] = False,
) -> None:
    """Fit NODE, HRPINN and PHRPINN (fast, robust) to one system, compare them, and write a report.

    The same command resumes an interrupted run.
    """
    from rich.console import Console

    from twinfold import enable_compilation_cache, enable_x64
    from twinfold.io import ConfigurationMismatch
    from twinfold_studies.bench.demo import Settings, run_demo
    from twinfold_studies.bench.demo_display import show
    from twinfold_studies.bench.demo_report import write_report

    enable_x64()
    enable_compilation_cache()
    console = Console(highlight=False)
    default_seeds, epochs = (1, (0, 20, 10)) if quick else (3, None)
    settings = Settings(system=system, seeds=seeds or default_seeds, epochs=epochs)
    folder = Path("runs") / f"demo-{system}{'-quick' if quick else ''}" if out is None else out
    try:
        results = run_demo(
            settings,
            folder,
            command=shlex.join(["twinfold", *sys.argv[1:]]),
            force=force,
            log=lambda line: console.print(line, markup=False),
        )
        page = write_report(results, folder)
    except (ConfigurationMismatch, ImportError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"Interrupted. Finished results are in {folder}; the same command resumes the run.", err=True)
        raise typer.Exit(130) from None
    show(results, console)
    console.print(f"\nReport: [bold]{page}[/]", soft_wrap=True)
    if results.interrupted:
        console.print("Interrupted: the same command resumes the run.")
        raise typer.Exit(130)
    if not results.outcomes:
        raise typer.Exit(1)


def _names(text: str, check: Callable[[str], object]) -> tuple[str, ...]:
    """The names in a list separated by commas; `check` raises `ValueError` for an unknown one."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        try:
            check(name)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return names


def _one_of(known: list[str], kind: str) -> Callable[[str], None]:
    def check(name: str) -> None:
        if name not in known:
            from twinfold.io import unknown_name

            raise ValueError(f"there is no {kind} {unknown_name(name, dict.fromkeys(known))}")

    return check


def _sets(given: list[str], known: list[str]) -> tuple[str, ...]:
    """The sets of measurements that are named after an experiment."""
    if given and not known:
        raise typer.BadParameter(f"unexpected: {' '.join(given)}; several experiments are separated by commas")
    return _names(",".join(given), _one_of(known, "set"))


def _pack(requests: list[list["Request"]], folder: Path, file: Path) -> None:
    """Write the finished cells of several experiments to one file."""
    from twinfold_studies.bench.travel import pack

    packed, wanted = pack([each for group in requests for each in group], folder, file)
    typer.echo(f"{file}: {packed} of {wanted} cells, {file.stat().st_size / 1e6:.1f} MB")


def _unpack(files: list[Path], folder: Path) -> None:
    """Add the cells of several files; exit with 2 for a file that cannot be used, with 1 if cells differ."""
    from twinfold_studies.bench.travel import UnusableArchive, unpack

    differ = False
    for file in files:
        try:
            report = unpack(file, folder)
        except (UnusableArchive, OSError) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(2) from None
        typer.echo(f"{file}: {len(report.added)} cells added, {len(report.known)} were here already")
        for key in report.different:
            typer.echo(f"{key} differs from the cell in {folder / 'cells'}, which was kept", err=True)
        differ = differ or bool(report.different)
    if differ:
        raise typer.Exit(1)


@app.command(rich_help_panel=PANEL)
def bench(
    name: Annotated[
        str,
        typer.Argument(
            help="An experiment; `list` shows them, `all` runs all; `pack` and `unpack` carry finished cells."
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            help="real, defaults, refit: [SET ...]; pack: FILE [EXPERIMENT ...]; unpack: FILE ...", show_default=False
        ),
    ] = None,
    systems: Annotated[str, typer.Option(help="Systems, separated by commas; default: all.")] = "",
    models: Annotated[str, typer.Option(help="Models, separated by commas; default: all.")] = "",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds of each model; default: depends on the experiment.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="Protocols, separated by commas: `paper`, `best`.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="A small version that takes less than three minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder; its experiments share their finished results.")] = Path(
        "runs/bench"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="A Dask cluster to use instead, as tcp://host:8786.")
    ] = "",
    minutes: Annotated[float | None, typer.Option(help="Start no further job after this many minutes.")] = None,
    measured: Annotated[
        str,
        typer.Option("--data", help="Folder of measurements (battery, drive, first, real); default: TWINFOLD_DATA."),
    ] = "",
) -> None:
    """Run an experiment of the paper, or one that it proposes, and write its tables, figures and report.

    --resume continues an interrupted or killed run; finished results are not computed again. `pack FILE` writes the
    finished cells of all experiments, or of those that are named, to one file; `unpack FILE ...` adds them to those of
    another machine with the same code.
    """
    from rich.console import Console

    from twinfold import enable_compilation_cache, enable_x64
    from twinfold.io import ConfigurationMismatch
    from twinfold_studies.bench.experiment import Options
    from twinfold_studies.bench.problems import problem
    from twinfold_studies.bench.runner import run_experiment
    from twinfold_studies.experiments.registry import EXPERIMENTS, experiment

    console = Console(highlight=False)
    given = arguments or []
    if name in ("pack", "unpack") and not given:
        raise typer.BadParameter(f"{name} needs a file")
    if name == "list":
        for each in EXPERIMENTS.values():
            console.print(f"[bold]{each.name}[/]  {each.about}", soft_wrap=True)
        return
    folder = out if not quick else out.with_name(f"{out.name}-quick")
    if name == "unpack":
        _unpack([Path(each) for each in given], folder)
        return
    wanted = ",".join(given[1:]) if name == "pack" else name
    chosen = list(EXPERIMENTS) if wanted in ("", "all") else list(_names(wanted, experiment))
    known = [experiment(each) for each in chosen]
    sets = _sets(given, [each for one in known for each in one.sets]) if name != "pack" else ()
    options = Options(
        systems=_names(systems, problem),
        models=_names(models, _one_of([model for each in known for model in each.models], "model")),
        seeds=seeds or 0,
        protocols=_names(protocol, _one_of([each for one in known for each in one.protocols], "protocol")),
        quick=quick,
        data=measured,
        sets=sets,
    )
    if name == "pack":
        _pack([each.requests(each.with_defaults(options)) for each in known], folder, Path(given[0]))
        return
    enable_x64()
    enable_compilation_cache()
    stopped = False
    for each in chosen:
        try:
            page, outcome = run_experiment(
                experiment(each),
                options,
                folder,
                command=shlex.join(["twinfold", *sys.argv[1:]]),
                resume=resume,
                workers=workers,
                scheduler=scheduler,
                seconds=None if minutes is None else 60 * minutes,
                log=lambda line: console.print(line, markup=False),
                show=console.is_terminal,
            )
        except (ConfigurationMismatch, ImportError) as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(2) from None
        console.print(f"{each}: {outcome.computed} jobs computed, {len(outcome.failed)} failed", markup=False)
        console.print(f"Report: [bold]{page}[/]", soft_wrap=True)
        stopped = stopped or outcome.interrupted
        if outcome.interrupted:
            console.print("Not finished: the same command with --resume continues.")
            break
    raise typer.Exit(130 if stopped else 0)
