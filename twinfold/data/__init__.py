"""Recorded runs: readers, windows and batches."""

from twinfold.data._batch import Batch
from twinfold.data._dataset import Dataset
from twinfold.data._load import load_dataset
from twinfold.data._run import Run

__all__ = [
    "Batch",
    "Dataset",
    "Run",
    "load_dataset",
]
