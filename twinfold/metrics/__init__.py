"""Accuracy of a twin or a fit: errors, constraint violations and failures on recorded runs.

`evaluate` computes all metrics of a model on a data set; `predict` returns the predictions themselves, and `measure`
the metrics of predictions. `with_true_field` gives the smallest error that is possible with a twin's integrator.
"""

from twinfold.metrics._errors import MAX_DTW_SAMPLES, dtw, relative_error, rmse
from twinfold.metrics._evaluate import REDUCE_OVER_RUNS, Evaluation, evaluate, measure, with_true_field
from twinfold.metrics._predict import Predictions, predict

__all__ = [
    "MAX_DTW_SAMPLES",
    "REDUCE_OVER_RUNS",
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
