"""The command group `twinfold data`: published measurements."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Download, check and list published measurements.", no_args_is_help=True)


@app.command("nasa-battery")
def nasa_battery(
    source: Annotated[
        str,
        typer.Option("--from", metavar="PATH|URL", help="A folder, .zip, .mat, .csv or .parquet, or its URL."),
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Folder of the files; default: the cache.")] = None,
    cells: Annotated[str, typer.Option(help="Cells to show, separated by commas; default: all.")] = "",
    flags: Annotated[bool, typer.Option("--flags", help="Show every flagged discharge with its reasons.")] = False,
    table: Annotated[Path | None, typer.Option(help="Also write a CSV file with a row for each discharge.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its SHA-256 checksum.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first discharge or file that cannot be used.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Download files again that exist.")] = False,
) -> None:
    """Get NASA's battery measurements (sets #5 and #11), or show those in the folder: cells, discharges, flags.

    The same command resumes an interrupted download.
    """
    from rich.console import Console

    from twinfold_studies.nasa.command import CommandOptions, run

    options = CommandOptions(source, out, tuple(filter(None, cells.split(","))), flags, table, verify, strict, force)
    try:
        run(options, Console(highlight=False))
    except (OSError, ValueError, ImportError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted. The same command resumes the download.", err=True)
        raise typer.Exit(130) from None
