"""A fleet with its alarms and its counts: samples in, rows out; what it carries is one state."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from twinfold.follow._alarms import InnovationAlarms, Judged
from twinfold.follow._fleet import Fleet, FleetOutput
from twinfold.follow._rows import Rows
from twinfold.follow._samples import Sample

ALARMS = "alarms."  # in the names of saved arrays


class Following:
    """What one process follows.

    **Arguments:** the `fleet`; its `alarms`; the `rows` to write; `key`, which says what is followed: a state of
    another key is not restored; `max_assets`; `log` for messages; `watch`, called with the
    names, numbers, estimates and alarms of each batch.
    """

    def __init__(
        self,
        fleet: Fleet,
        alarms: InnovationAlarms,
        rows: Rows,
        *,
        key: str,
        max_assets: int = 10_000,
        log: Callable[[str], None] = lambda line: None,
        watch: Callable[[Sequence[str], np.ndarray, FleetOutput, Judged], None] | None = None,
    ):
        self.fleet, self.alarms, self.rows, self.key = fleet, alarms, rows, key
        self.max_assets, self._log, self._watch = max_assets, log, watch
        self.samples = self.alarmed = 0
        self._inputs = 0
        self._refused: set[str] = set()

    def take(self, samples: Sequence[Sample]) -> Iterator[list[list[Any]]]:
        """The rows of samples, in batches in which each asset has one sample; the samples of an asset stay in order."""
        waiting = list(samples)
        while waiting:
            batch: dict[str, Sample] = {}
            later = []
            for sample in waiting:
                if sample.asset in batch:
                    later.append(sample)
                elif self._admitted(sample.asset, len(batch)):
                    batch[sample.asset] = sample
            if batch:
                yield self._step(batch)
            waiting = later

    def _admitted(self, asset: str, joining: int) -> bool:
        if asset in self.fleet.assets or len(self.fleet) + joining < self.max_assets:
            return True
        if asset not in self._refused and len(self._refused) < 100:
            self._refused.add(asset)
            self._log(f"asset {asset!a}: left out, since {self.max_assets} others are followed (follow.max_assets).")
        return False

    def _step(self, batch: dict[str, Sample]) -> list[list[Any]]:
        names = list(batch)
        w = np.array([each.w for each in batch.values()], float)
        y = np.array([each.y for each in batch.values()], float)
        self._inputs = w.shape[1]
        out = self.fleet.step(names, np.array([each.t for each in batch.values()]), w, y)
        with np.errstate(invalid="ignore", over="ignore"):
            judged = self.alarms.update(out.row, out.residual / out.y_std)
        self.samples += len(batch)
        for place in np.flatnonzero(judged.raised):
            self.alarmed += 1
            self._log(
                f"ALARM: asset {names[place]!a} at {out.t[place]:.9g}: the innovations differ from those of a "
                f"healthy plant (score {judged.running[place]:.3g}, limit {judged.limit[place]:.3g})."
            )
        numbers, rows = self.rows.build(names, np.where(np.isfinite(y), y, np.nan), out, judged)
        if self._watch is not None:
            self._watch(names, numbers, out, judged)
        return rows

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Everything that is carried: what JSON can hold, and arrays that later samples do not change."""
        about = {"key": self.key, "inputs": self._inputs, "assets": list(self.fleet.assets)}
        counts = {"samples": self.samples, "alarmed": self.alarmed}
        arrays = self.fleet.arrays()
        named = {f"{ALARMS}{name}": value for name, value in self.alarms.arrays(len(self.fleet)).items()}
        return about | counts, arrays | named

    def restore(self, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Continue from such a state. **Raises:** `ValueError` if it is that of something else."""
        if about["key"] != self.key:
            raise ValueError("it was saved with another model or other settings of [follow]")
        assets, self._inputs = [str(name) for name in about["assets"]], int(about["inputs"])
        self.fleet.restore(assets, arrays, self._inputs)
        self.alarms.restore(
            {name.removeprefix(ALARMS): value for name, value in arrays.items() if name.startswith(ALARMS)}, len(assets)
        )
        self.samples, self.alarmed = int(about["samples"]), int(about["alarmed"])
