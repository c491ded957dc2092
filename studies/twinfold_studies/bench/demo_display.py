"""The table of a demonstration in the terminal."""

from rich.console import Console
from rich.table import Table

from twinfold_studies.bench.demo import Results
from twinfold_studies.bench.demo_summary import failure_reasons, summarise, table


def show(results: Results, console: Console) -> None:
    """Print the table, the main results and the failures."""
    grid = Table(title=f"{results.data.system.title}, {results.settings.seeds} seed(s)", title_justify="left")
    grid.add_column("")
    for outcome in results.outcomes:
        grid.add_column(outcome.title, justify="right")
    for line in table(results):
        cells = [f"[bold]{cell}[/]" if index == line.best else cell for index, cell in enumerate(line.cells)]
        grid.add_row(f"  {line.label}" if line.indented else line.label, *cells)
    if results.outcomes:
        console.print(grid)
    for line in summarise(results):
        console.print(line, markup=False, highlight=False)
    for where, reason in failure_reasons(results):
        console.print(f"{where}: {reason}", style="yellow", markup=False, highlight=False)
