"""Condition monitoring: residual features, alarms with a stated false-alarm rate, remaining useful life."""

from twinfold.monitor._features import residual_features
from twinfold.monitor._monitor import Monitor, Record
from twinfold.monitor._verdict import Verdict
from twinfold.monitor._watch import Watch, watch

__all__ = [
    "Monitor",
    "Record",
    "Verdict",
    "Watch",
    "residual_features",
    "watch",
]
