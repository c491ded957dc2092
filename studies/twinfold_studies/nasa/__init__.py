"""NASA's battery measurements (PCoE data sets #5 and #11): download, read, check, convert to runs.

`fetch` copies or downloads the files (`download`, `unpack`, `manifest`), `find_data` locates them; `load` reads them
(`mat`, `tables`, `log`) into a `Collection` of `Discharge`s with quality flags; `to_dataset` makes runs of them.
"""

from twinfold_studies.nasa.collection import Collection, Skipped
from twinfold_studies.nasa.discharge import Discharge, Flag
from twinfold_studies.nasa.fetch import Fetched, fetch
from twinfold_studies.nasa.load import load
from twinfold_studies.nasa.location import find_data
from twinfold_studies.nasa.quality import FLAGS
from twinfold_studies.nasa.runs import to_dataset

__all__ = ["FLAGS", "Collection", "Discharge", "Fetched", "Flag", "Skipped", "fetch", "find_data", "load", "to_dataset"]
