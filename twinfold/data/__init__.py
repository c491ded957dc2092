"""Recorded runs: read, select, split and batch measurements.

Start with `load_dataset` for files and tables, or `Dataset.from_arrays` for arrays. A `Dataset` holds one `Run` per
recording; `Dataset.batch` and `Dataset.windows` return the padded arrays (`Batch`) from which a loss is computed.
"""

from twinfold.data._batch import Batch
from twinfold.data._dataset import Dataset
from twinfold.data._load import load_dataset
from twinfold.data._run import Run

__all__ = ["Batch", "Dataset", "Run", "load_dataset"]
