"""Checks of a twin and its data before any training."""

from twinfold.check._examination import Examination, examine
from twinfold.check._finding import Finding

__all__ = [
    "Examination",
    "Finding",
    "examine",
]
