"""What a page about a fleet shows, small whatever the number of assets: histograms, bands over time, ranked lists."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.fleet._monitor import ALARMS
from twinfold.fleet._results import read_about, read_table

if TYPE_CHECKING:
    import pandas as pd

BINS = 40
QUANTILES = (0.1, 0.5, 0.9)
MAX_PER_PERIOD = 20_000  # values that the bands of a period are computed from
NO_GROUP = "score"  # drawn beside the scalars


class Aggregate:
    """Collects the tables of partitions one by one."""

    def __init__(self, labels: Sequence[str], partitions: int):
        self.names = (*(f"value:{label}" for label in labels), NO_GROUP)
        self.quota = math.ceil(MAX_PER_PERIOD / max(partitions, 1))
        self.latest: dict[str, list[np.ndarray]] = {name: [] for name in self.names}
        self.periods: dict[int, dict[str, list[np.ndarray]]] = {}
        self.ranked: list[list[Any]] = []
        self.failures: list[list[str]] = []

    def add(self, number: int, table: "pd.DataFrame", alarms: "pd.DataFrame | None") -> None:
        """Take the partition with this number."""
        last = table.groupby("asset", sort=True).tail(1)
        for name in self.names:
            self.latest[name].append(_finite(last[name]))
        for period, rows in table.groupby("period"):
            of = self.periods.setdefault(int(period), {name: [] for name in self.names})  # pyright: ignore
            for name in self.names:
                of[name].append(_finite(rows[name])[: self.quota])
        severity = {} if alarms is None else dict(zip(alarms["asset"], alarms["severity"], strict=True))
        raised = {} if alarms is None else dict(zip(alarms["asset"], alarms["alarm"], strict=True))
        changed = {} if alarms is None else dict(zip(alarms["asset"], alarms["changed"], strict=True))
        for asset, score, reason in zip(last["asset"], last["score"], last["reason"], strict=True):
            numbers = [_rounded(severity.get(asset, math.nan)), _rounded(score)]
            self.ranked.append([asset, number, *numbers, int(raised.get(asset, False)), changed.get(asset, ""), reason])

    def histograms(self) -> list[dict[str, Any]]:
        """The distribution of each scalar over the fleet, latest period; values beyond the ends are counted there."""
        found = []
        for name in self.names:
            values = np.concatenate(self.latest[name])
            if not len(values):
                continue
            low, high = np.quantile(values, [0.005, 0.995])
            if not low < high:
                low, high = low - 0.5, high + 0.5
            counts, edges = np.histogram(np.clip(values, low, high), BINS, (low, high))
            middle = [_rounded(each) for each in np.quantile(values, QUANTILES)]
            found.append(
                {"name": name.removeprefix("value:"), "counts": counts.tolist(), "low": edges[0], "high": edges[-1]}
                | {"quantiles": middle}
            )
        return found

    def bands(self) -> list[dict[str, Any]]:
        """For each scalar, the quantiles over the fleet in each period; none if there is only one."""
        if len(self.periods) < 2:
            return []
        found = []
        for name in self.names:
            points = []
            for period in sorted(self.periods):
                values = np.concatenate(self.periods[period][name])
                if len(values):
                    points.append([period, *(_rounded(each) for each in np.quantile(values, QUANTILES))])
            if points:
                found.append({"name": name.removeprefix("value:"), "points": points})
        return found

    def rows(self) -> list[list[Any]]:
        """All assets: alarms first, by severity, then by score; those that failed last."""

        def key(row: list[Any]) -> tuple:
            severity, score, alarm, reason = row[2], row[3], row[4], row[6]
            return bool(reason), -alarm, -(severity or 0.0), -(score or 0.0), row[0]

        return sorted(self.ranked, key=key)


def read_partition(out: Path, path: Path) -> tuple["pd.DataFrame", "pd.DataFrame | None", dict[str, Any]]:
    """The estimates of a partition, its alarms if there are any, and what is known about it."""
    alarms = out / ALARMS / path.name
    return read_table(path), read_table(alarms) if alarms.exists() else None, read_about(path) or {}


def _finite(values: Any) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    return array[np.isfinite(array)]


def _rounded(value: float) -> float | None:
    """Five digits are enough for a page; JSON has no NaN."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
