"""One partition of a fleet: read, cut into periods, estimate what is new, write.

The value of an asset and period depends on its samples and on the twin alone: what is stored for the same samples is
kept, and the rest is estimated from the twin's values.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.data import Run, load_dataset
from twinfold.data._run import portable_bytes
from twinfold.fleet._batch import buckets, padding
from twinfold.fleet._estimate import REASONS, AssetEstimates, default_lanes, estimate_bucket
from twinfold.fleet._results import read_about, read_table, write_table
from twinfold.fleet._source import FleetSource, Partition
from twinfold.fleet._variables import AssetVariables
from twinfold.parallel import report_progress
from twinfold.parallel._executor import reason_of

KEYS = ("asset", "period", "from", "to", "samples", "score", "correlation", "reason", "digest")


@dataclass(frozen=True, eq=False)
class PartitionFit:
    """A function of a partition that estimates its assets and writes their table to `out`.

    `settings`: a hash of all that the results depend on beside the measurements.
    """

    variables: AssetVariables
    source: FleetSource
    layout: Mapping[str, Any]  # options of `load_dataset`
    period: float | None
    max_steps: int
    lanes: int | None
    out: Path
    settings: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a table."""
        labels, outputs = self.variables.labels, self.layout["outputs"]
        kinds = [f"{kind}:{label}" for kind in ("value", "error", "change") for label in labels]
        return (*KEYS, *kinds, *(f"{kind}:{output}" for kind in ("rms", "mean") for output in outputs))

    def path(self, partition: Partition) -> Path:
        """The file of a partition."""
        return self.out / f"{partition.name.removesuffix('.parquet').removesuffix('.csv')}.parquet"

    def is_current(self, partition: Partition) -> bool:
        """Whether the stored table is of these files and settings."""
        about = read_about(self.path(partition))
        return about is not None and about.get("signature") == partition.signature(self.settings)

    def __call__(self, partition: Partition) -> dict[str, Any]:
        """Estimate a partition. **Returns:** its numbers of assets, files that failed, samples, seconds."""
        started = time.perf_counter()
        runs, rows, failures = self._read(partition)
        read = time.perf_counter()
        known = self._stored(partition)
        new = [index for index, run in enumerate(runs) if _digest(run.run) not in known]
        estimated = self._estimate([runs[index].run for index in new])
        found = dict(zip(new, estimated, strict=True))
        for index, run in enumerate(runs):
            numbers = found[index] if index in found else known[_digest(run.run)]
            rows.append(run.keys() | numbers)
        rows.sort(key=lambda row: (row["asset"], row["period"]))
        lengths = [len(run.run.ts) for run in runs]
        counts = {
            "assets": len({row["asset"] for row in rows}),
            "rows": len(rows),
            "failed": sum(bool(row["reason"]) for row in rows),
        }
        about = counts | {
            "signature": partition.signature(self.settings),
            "settings": self.settings,
            "failures": failures,
            "labels": list(self.variables.labels),
            "outputs": list(self.layout["outputs"]),
        }
        write_table(self.path(partition), rows, about, self.columns)
        return counts | {
            "partition": partition.name,
            "estimated": len(new),
            "failures": failures,
            "samples": sum(lengths),
            "padding": padding(lengths),
            "read_seconds": read - started,
            "seconds": time.perf_counter() - started,
        }

    def _read(self, partition: Partition) -> tuple[list["_Period"], list[dict[str, Any]], dict[str, str]]:
        """The periods of all assets, a row for each asset that cannot be used, and the files that cannot be read."""
        runs: list[_Period] = []
        rows, failures = [], {}
        for name, table in self.source.tables(partition):
            if isinstance(table, str):
                failures[name] = table
                continue
            try:
                (run,) = load_dataset({name: table}, **self.layout).runs
                runs += _cut(run, self.period)
            except Exception as error:  # a row with a reason; the other assets go on
                rows.append(dict.fromkeys(self.columns, np.nan) | _failed(name, reason_of(error)))
        return runs, rows, failures

    def _stored(self, partition: Partition) -> dict[str, dict[str, Any]]:
        """The numbers in the present table by the digest of their samples, if it has the same settings."""
        path = self.path(partition)
        about = read_about(path)
        if about is None or about.get("settings") != self.settings:
            return {}
        columns = [name for name in self.columns if name not in ("asset", "period", "from", "to", "digest")]
        table = read_table(path)
        return {
            str(digest): dict(zip(columns, values, strict=True))
            for digest, values in zip(table["digest"], table[columns].itertuples(index=False), strict=True)
            if digest
        }

    def _estimate(self, runs: Sequence[Run]) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        lanes = default_lanes() if self.lanes is None else self.lanes  # where it runs, which may be another machine
        for members, bucket in buckets(runs):
            report_progress(len(found) / len(runs))
            estimates = estimate_bucket(self.variables, bucket, lanes, max_steps=self.max_steps)
            found |= dict(zip(members, self._rows(estimates, len(members)), strict=True))
        return [found[index] for index in range(len(runs))]

    def _rows(self, estimates: AssetEstimates, count: int) -> list[dict[str, Any]]:
        e = {name: np.asarray(value)[:count] for name, value in vars(estimates).items()}
        labels, outputs = self.variables.labels, self.layout["outputs"]
        pairs = {"value": ("values", labels), "error": ("errors", labels), "change": ("change", labels)}
        pairs |= {"rms": ("rms", outputs), "mean": ("mean", outputs)}
        return [
            {
                "samples": int(e["samples"][row]),
                "score": float(e["score"][row]),
                "correlation": float(e["correlation"][row]),
                "reason": REASONS[int(e["code"][row])],
            }
            | {
                f"{kind}:{label}": float(e[source][row, place])
                for kind, (source, of) in pairs.items()
                for place, label in enumerate(of)
            }
            for row in range(count)
        ]


@dataclass(frozen=True)
class _Period:
    asset: str
    number: int
    run: Run

    def keys(self) -> dict[str, Any]:
        ts = self.run.ts
        return {
            "asset": self.asset,
            "period": self.number,
            "from": float(ts[0]),
            "to": float(ts[-1]),
            "digest": _digest(self.run),
        }


def _failed(asset: str, reason: str) -> dict[str, Any]:
    return {"asset": asset, "period": 0, "samples": 0, "reason": reason, "digest": ""}


def _cut(run: Run, period: float | None) -> list[_Period]:
    """The periods of a run, counted from its first sample; those with fewer than two samples are left out."""
    if period is None:
        return [_Period(run.name, 0, run)]
    if run.x0 is not None:
        raise ValueError("period: x0 is the state at the start of an asset's data; a later period has none.")
    number = np.floor((run.ts - run.ts[0]) / period).astype(int)
    found = []
    for each in np.unique(number).tolist():
        part = number == each
        if part.sum() > 1 and not np.isnan(run.y[part]).all():
            w = None if run.w is None else run.w[part]
            found.append(_Period(run.name, each, Run(run.name, run.ts[part], run.y[part], w)))
    return found


def _digest(run: Run) -> str:
    digest = hashlib.sha256()
    for array in (run.ts, run.y, run.w, run.x0):
        digest.update(b"-" if array is None else portable_bytes(array))
    return digest.hexdigest()[:24]
