"""Fitting: loss, methods, seeds, checkpoints."""

from twinfold.train._augmented import AugmentedLagrangian
from twinfold.train._fit import Fit, fit
from twinfold.train._gradient import Adam, Gradient
from twinfold.train._levenberg import LevenbergMarquardt
from twinfold.train._loss import Loss
from twinfold.train._method import AbstractMethod
from twinfold.train._prepare import default_methods, prepare
from twinfold.train._problem import TrainingProblem

__all__ = [
    "AbstractMethod",
    "Adam",
    "AugmentedLagrangian",
    "Fit",
    "Gradient",
    "LevenbergMarquardt",
    "Loss",
    "TrainingProblem",
    "default_methods",
    "fit",
    "prepare",
]
