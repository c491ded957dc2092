"""Watching a plant: residual scores, alarms with a stated rate, remaining life."""

from twinfold.monitor._features import residual_features
from twinfold.monitor._monitor import Monitor
from twinfold.monitor._verdict import Verdict
from twinfold.monitor._watch import watch

__all__ = [
    "Monitor",
    "Verdict",
    "residual_features",
    "watch",
]
