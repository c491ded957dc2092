"""An examination on the console."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinfold.check._finding import SEVERITIES, Examination, Severity

STYLES: dict[Severity, str] = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}


def show(examination: Examination, console: Console | None = None) -> None:
    """Print every finding, and at the end how many of each severity there are."""
    console = Console() if console is None else console
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in examination.findings:
        style = STYLES[finding.severity]
        table.add_row(Text(finding.severity, style), Text(finding.kind, "bold"), Text(finding.words))
    console.print(table)
    counts = {name: sum(each.severity == name for each in examination.findings) for name in SEVERITIES}
    said = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count and name != "ok"]
    console.print(Text(", ".join(said) or "Nothing to worry about.", STYLES[examination.worst]))
