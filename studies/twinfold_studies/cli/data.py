"""Commands that get measurements of others."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measurements of others: get them, check them, list them.", no_args_is_help=True)


@app.command("nasa-battery")
def nasa_battery(
    source: Annotated[
        str,
        typer.Option("--from", metavar="PATH|URL", help="A folder, .zip, .mat, .csv or .parquet, or its address."),
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Folder of the files; the cache when left out.")] = None,
    cells: Annotated[str, typer.Option(help="Cells to show, separated by commas; all when left out.")] = "",
    flags: Annotated[bool, typer.Option("--flags", help="Show every flagged discharge with its reasons.")] = False,
    table: Annotated[Path | None, typer.Option(help="Also write a CSV file with a row for each discharge.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its SHA-256 checksum.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first thing that cannot be used.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Download again what is there already.")] = False,
) -> None:
    """Get NASA's battery measurements (sets #5 and #11), or show those that are there: cells, discharges, flags.

    An interrupted download goes on when the same command is given again.
    """
    from rich.console import Console

    from twinfold_studies.nasa.show import Options, run

    options = Options(source, out, tuple(filter(None, cells.split(","))), flags, table, verify, strict, force)
    try:
        run(options, Console(highlight=False))
    except (OSError, ValueError, ImportError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted. The same command goes on from here.", err=True)
        raise typer.Exit(130) from None
