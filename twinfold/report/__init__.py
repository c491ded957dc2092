"""What was learned, how good it is and where to be careful: one folder about a fitted twin, read in a browser."""

from twinfold.report.write import write_twin_report

__all__ = ["write_twin_report"]
