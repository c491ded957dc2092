"""What a page about plants shows: the last samples of some assets, and a line about each, in bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from twinfold.follow._alarms import Judged
from twinfold.follow._fleet import FleetOutput

MAX_SHOWN = 60  # assets with their samples
MAX_SAMPLES = 5000  # of each, the latest
MAX_EVENTS = 500  # alarms, the latest


@dataclass(eq=False)
class Standing:
    """One line about an asset."""

    samples: int = 0
    refused: int = 0
    faults: int = 0
    last: float = np.nan
    score: float = np.nan
    limit: float = np.nan
    alarm: bool = False
    alarms: int = 0
    message: str = ""


@dataclass(eq=False)
class History:
    """Give `record` the output of each batch. An asset with an alarm takes the place of one that never had any.

    `columns`: the names of the numbers of a row. `shown`: for each asset with samples, the samples that were recorded
    and a ring of the latest; `standings` of all assets; `events`: alarms that were raised.
    """

    columns: Sequence[str]
    shown: dict[str, tuple[int, np.ndarray]] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    events: list[tuple[str, float, float, float]] = field(default_factory=list)

    def record(self, names: Sequence[str], numbers: np.ndarray, out: FleetOutput, judged: Judged) -> None:
        """Take one batch: its numbers [B, columns], with which values were accepted and the alarm appended."""
        refused = np.asarray((np.isfinite(out.residual) & ~out.accepted).any(axis=1))
        rows = np.column_stack([numbers, out.accepted, judged.alarm])
        for place, name in enumerate(names):
            standing = self.standings.setdefault(name, Standing())
            standing.samples += 1
            standing.refused += bool(refused[place])
            standing.faults += not out.ok[place]
            standing.last, standing.alarm = float(out.t[place]), bool(judged.alarm[place])
            standing.score, standing.limit = float(judged.running[place]), float(judged.limit[place])
            standing.message = out.message[place] or standing.message
            if judged.raised[place]:
                standing.alarms += 1
                self.events = [*self.events, (name, standing.last, standing.score, standing.limit)][-MAX_EVENTS:]
            if out.ok[place] and self._has_room(name, standing):
                count, ring = self.shown.get(name) or (0, np.full((16, rows.shape[1]), np.nan))
                if count >= len(ring) < MAX_SAMPLES:
                    more = np.full((min(len(ring), MAX_SAMPLES - len(ring)), rows.shape[1]), np.nan)
                    ring = np.concatenate([ring, more])
                ring[count % len(ring)] = rows[place]
                self.shown[name] = (count + 1, ring)

    def _has_room(self, name: str, standing: Standing) -> bool:
        if name in self.shown or len(self.shown) < MAX_SHOWN:
            return True
        quiet = None if not standing.alarms else next((n for n in self.shown if not self.standings[n].alarms), None)
        if quiet is not None:
            del self.shown[quiet]
        return quiet is not None

    def samples(self, name: str) -> np.ndarray:
        """The samples of an asset in order of time."""
        count, ring = self.shown[name]
        return ring[:count] if count <= len(ring) else np.roll(ring, -(count % len(ring)), axis=0)
