"""What the data can tell: how certain a parameter is, and how far a learned residual can be trusted."""

from twinfold.identify._guard import guarded_fit
from twinfold.identify._posterior import posterior
from twinfold.identify._reestimate import reestimate
from twinfold.identify._uncertainty import uncertainty

__all__ = [
    "guarded_fit",
    "posterior",
    "reestimate",
    "uncertainty",
]
