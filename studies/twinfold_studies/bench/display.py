"""The table of a demonstration in the terminal."""

from rich.console import Console
from rich.table import Table

from twinfold_studies.bench.demo import Results
from twinfold_studies.bench.report import SUB
from twinfold_studies.bench.summary import in_words, reasons, table


def show(results: Results, console: Console) -> None:
    """Print the table, what it says in words, and what failed."""
    shown = Table(title=f"{results.data.system.title}, {results.settings.seeds} seed(s)", title_justify="left")
    shown.add_column("")
    for outcome in results.outcomes:
        shown.add_column(outcome.title, justify="right")
    for line in table(results):
        cells = [f"[bold]{cell}[/]" if index == line.best else cell for index, cell in enumerate(line.cells)]
        shown.add_row(f"  {line.label}" if line.label in SUB else line.label, *cells)
    if results.outcomes:
        console.print(shown)
    for line in in_words(results):
        console.print(line, markup=False, highlight=False)
    for where, reason in reasons(results):
        console.print(f"{where}: {reason}", style="yellow", markup=False, highlight=False)
