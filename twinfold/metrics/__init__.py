"""How good a prediction is."""

from twinfold.metrics._dtw import dtw
from twinfold.metrics._errors import relative_error, rmse
from twinfold.metrics._evaluate import Evaluation, evaluate, measure
from twinfold.metrics._floor import with_true_field
from twinfold.metrics._predict import Predictions, predict

__all__ = [
    "Evaluation",
    "Predictions",
    "dtw",
    "evaluate",
    "measure",
    "predict",
    "relative_error",
    "rmse",
    "with_true_field",
]
