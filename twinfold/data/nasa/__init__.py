"""NASA's battery measurements: find or fetch them, load discharges, judge their quality, make runs of them."""

from twinfold.data.nasa.collection import Collection, Skipped
from twinfold.data.nasa.discharge import Discharge, Flag
from twinfold.data.nasa.fetch import Fetched, fetch
from twinfold.data.nasa.find import find
from twinfold.data.nasa.load import load
from twinfold.data.nasa.quality import FLAGS
from twinfold.data.nasa.runs import to_dataset

__all__ = ["FLAGS", "Collection", "Discharge", "Fetched", "Flag", "Skipped", "fetch", "find", "load", "to_dataset"]
