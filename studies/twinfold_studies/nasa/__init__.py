"""NASA's battery measurements: find or fetch them, load discharges, judge their quality, make runs of them."""

from twinfold_studies.nasa.collection import Collection, Skipped
from twinfold_studies.nasa.discharge import Discharge, Flag
from twinfold_studies.nasa.fetch import Fetched, fetch
from twinfold_studies.nasa.find import find
from twinfold_studies.nasa.load import load
from twinfold_studies.nasa.quality import FLAGS
from twinfold_studies.nasa.runs import to_dataset

__all__ = ["FLAGS", "Collection", "Discharge", "Fetched", "Flag", "Skipped", "fetch", "find", "load", "to_dataset"]
