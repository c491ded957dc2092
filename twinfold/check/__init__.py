"""What to know before fitting."""

from twinfold.check._examine import examine
from twinfold.check._finding import Examination, Finding

__all__ = [
    "Examination",
    "Finding",
    "examine",
]
