"""The command line: argument parsing only; what the commands do is in `twinfold.bench`."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from twinfold.cores import available_cores

# The factorisations in training are small: threads of the linear algebra library cost more than they bring, most of all
# where the cores have other work. It reads this when it is loaded, which JAX does when it first needs it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

app = typer.Typer(
    name="twinfold",
    help="Grey-box digital twins that stay on their manifold.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _known_system(name: str) -> str:
    from twinfold.systems.registry import system

    try:
        return system(name).name
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _print_version(wanted: bool) -> bool:
    if wanted:
        from twinfold import __version__

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


@app.command()
def systems() -> None:
    """List the benchmark systems: what is known of each, its equations and its invariants."""
    from rich.console import Console

    from twinfold.bench.describe import describe
    from twinfold.systems.registry import SYSTEMS

    console = Console(highlight=False)
    for name in SYSTEMS:
        known, equations = describe(name)
        console.print(f"[bold]{name}[/]  {known}", soft_wrap=True)
        for line in equations:
            console.print(f"    {line}", markup=False, soft_wrap=True)


@app.command()
def demo(
    system: Annotated[
        str, typer.Option(callback=_known_system, help="Which system; see `twinfold systems`.")
    ] = "two_body",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Fits of each model, side by side; 3 when left out, 1 with --quick."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; runs/demo-SYSTEM when left out.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed and few epochs.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Start over in a folder that holds another run.")] = False,
) -> None:
    """Fit NODE, HRPINN and PHRPINN (fast, robust) to one system, compare them, and write a report.

    A run that was stopped goes on where it was when the same command is given again.
    """
    from rich.console import Console

    from twinfold.bench.demo import Settings, run_demo
    from twinfold.bench.display import show
    from twinfold.bench.folder import OtherConfiguration
    from twinfold.bench.report import write_report
    from twinfold.precision import enable_x64

    enable_x64()
    console = Console(highlight=False)
    few, epochs = (1, (0, 20, 10)) if quick else (3, None)
    settings = Settings(system=system, seeds=seeds or few, epochs=epochs)
    folder = Path("runs") / f"demo-{system}{'-quick' if quick else ''}" if out is None else out
    try:
        results = run_demo(
            settings,
            folder,
            command=shlex.join(["twinfold", *sys.argv[1:]]),
            force=force,
            tell=lambda line: console.print(line, markup=False),
        )
        page = write_report(results, folder)
    except (OtherConfiguration, ImportError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"Interrupted. What is finished is in {folder}; the same command goes on from there.", err=True)
        raise typer.Exit(130) from None
    show(results, console)
    console.print(f"\nReport: [bold]{page}[/]", soft_wrap=True)
    if results.interrupted:
        console.print("Interrupted: the same command goes on from here.")
        raise typer.Exit(130)
    if not results.outcomes:
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the `twinfold` command."""
    # Seeds spread over all cores. As a variable, which JAX reads when it starts: `--help` need not import it.
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(available_cores()))
    app()


if __name__ == "__main__":
    main()
