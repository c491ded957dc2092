"""Pages about a fitted twin that open offline in a browser."""

from twinfold.report._page import figure, grid, heading, number, page, pairs, text
from twinfold.report._write import write_twin_report

__all__ = [
    "figure",
    "grid",
    "heading",
    "number",
    "page",
    "pairs",
    "text",
    "write_twin_report",
]
