"""Identifiability: standard errors, re-estimated parameters, uncertainty of predictions, guarded residuals."""

from twinfold.identify._guard import ExpectedError, GuardedFit, guarded_fit
from twinfold.identify._posterior import Posterior, posterior
from twinfold.identify._reestimate import ParameterEstimates, reestimate
from twinfold.identify._uncertainty import Uncertainty, uncertainty

__all__ = [
    "ExpectedError",
    "GuardedFit",
    "ParameterEstimates",
    "Posterior",
    "Uncertainty",
    "guarded_fit",
    "posterior",
    "reestimate",
    "uncertainty",
]
