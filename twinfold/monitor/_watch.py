"""Watch a plant with its twin: is the difference between the two still what it was when all was well?

The residuals of healthy runs give the limits, with a stated rate of false alarms per window (see `limits`); new samples
come row by row, and each full window is judged. The whole state is plain JSON: watching goes on where it stopped, with
the rows that have been added since.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.data import Dataset
from twinfold.model import Twin
from twinfold.monitor._limits import FEWEST
from twinfold.monitor._monitor import Monitor
from twinfold.monitor._online import Window, Windows, windows_of
from twinfold.monitor._verdict import Verdict, crossed, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 1  # of a saved state
AIM = 30  # healthy windows, where the length of a window is left open
SHORTEST, LONGEST = 20, 200  # samples of such a window


@dataclass(eq=False)
class Watch:
    """A running watch: `take` new data; `rows` are the windows judged so far in this session, `verdict` sums them up.

    `healthy` says how the limits did on healthy windows that were left out of them.
    """

    windows: Windows
    monitor: Monitor
    healthy: Mapping[str, Any]
    seen: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def take(self, data: Dataset) -> list[dict[str, Any]]:
        """Go through the rows that were not seen yet, and judge each window that they complete.

        **Returns:** a row for each such window: run, window, from, to, samples, missing, score, running, limit, alarm,
        the feature that changed most with its change in healthy standard deviations, note.
        """
        if data.output_names != self.windows.outputs:
            raise ValueError(
                f"The new data have the outputs {', '.join(data.output_names)}; the healthy ones had "
                f"{', '.join(self.windows.outputs)}."
            )
        before = len(self.rows)
        for run in data.runs:
            done = self.seen.get(run.name, 0)
            over = self.windows.window is None or run.name != self.windows.run  # a run that was judged, or left
            if done >= len(run.ts) or (done and over):
                continue
            if not done:
                self._judge(self.windows.finish())
                self.windows.begin(run)
            for index in range(done, len(run.ts)):
                w = None if run.w is None else run.w[index]
                self._judge(self.windows.sample(float(run.ts[index]), w, run.y[index]))
            self.seen[run.name] = len(run.ts)
            if self.windows.window is None:
                self._judge(self.windows.finish())
        return self.rows[before:]

    def _judge(self, window: Window | None) -> None:
        if window is None:
            return
        record = self.monitor.update(window.features)
        limits, alarm = self.monitor.alarm.limits, self.monitor.alarm
        spread = limits.spread if limits.spread.ndim == 1 else np.sqrt(np.diag(limits.spread))
        changes = alarm.running / spread
        most = int(np.argmax(np.abs(changes)))
        notes = [part for part in (record.note, window.note) if part]
        self.rows.append(
            {
                "run": window.run,
                "window": window.number,
                "from": window.start,
                "to": window.end,
                "samples": window.samples,
                "missing": window.missing,
                "score": record.score,
                "running": record.running,
                "limit": record.limit,
                "alarm": record.alarm,
                "changed": limits.names[most] if math.isfinite(record.score) else "",
                "change": float(changes[most]) if math.isfinite(record.score) else math.nan,
                "note": "; ".join(notes),
            }
        )

    @property
    def verdict(self) -> Verdict:
        """What the rows say together."""
        return verdict(self.rows, self.monitor.alarm.limits.rate, self.monitor.alarm.smoothing, self.healthy)

    def figure(self) -> "Figure":
        """The running score against its limit, and what changed."""
        from twinfold.monitor._picture import scores

        return scores(self.rows, self.monitor.alarm.limits.rate)

    def state(self) -> dict[str, Any]:
        """Everything but the rows as plain JSON, for `resume`."""
        return {
            "format": FORMAT,
            "windows": self.windows.state(),
            "monitor": self.monitor.state(),
            "healthy": dict(self.healthy),
            "seen": dict(self.seen),
        }


def resume(twin: Twin, state: Mapping[str, Any], data: Dataset) -> Watch:
    """The watch whose `state` it was, for the same twin; `data` holds the run that was being watched."""
    if state.get("format") != FORMAT:
        raise ValueError(f"A watch's state has format {FORMAT}, this one {state.get('format')!r}: calibrate again.")
    windows = Windows.from_state(twin, state["windows"], {run.name: run for run in data.runs})
    return Watch(windows, Monitor.from_state(state["monitor"]), state["healthy"], dict(state["seen"]))


def calibrate(
    twin: Twin,
    healthy: Dataset,
    *,
    window: int | str | None = None,
    rate: float = 0.01,
    smoothing: float = 0.2,
    confirm: tuple[int, int] = (1, 1),
    degree: int = 2,
    restart: bool | None = None,
    joint: bool = False,
) -> Watch:
    """A watch that knows what healthy looks like.

    **Arguments:**

    - `twin`, fitted; `healthy`, runs of the plant when all was well, best not those that the twin was fitted on.
    - `window` in samples, or `"run"` to judge whole runs; about 30 healthy windows when left out.
    - `rate` of false alarms per window; `smoothing`, `confirm` and `joint`: see `Monitor.calibrate`.
    - `degree` of the shape of a residual along a window.
    - `restart`: start the twin at the first measurement of each window (where the state is measured, when left out).

    **Raises:** `ValueError` where there are too few healthy windows, or residuals that never vary.
    """
    length = _length(healthy, window)
    windows = Windows(twin, healthy.output_names, window=length, restart=restart, degree=degree)
    found = windows_of(windows, healthy)
    features = _varying([each.features for each in found])
    options: dict[str, Any] = {"rate": rate, "smoothing": smoothing, "confirm": confirm, "joint": joint}
    monitor = Monitor.calibrate(features, **options)
    judged = sum(all(map(math.isfinite, each.values())) for each in features)
    left_out = crossed(features, options)
    known = {"windows": len(found), "judged": judged, "samples": length or 0} | left_out
    return Watch(Windows(twin, healthy.output_names, window=length, restart=restart, degree=degree), monitor, known)


def watch(
    twin: Twin,
    healthy: Dataset,
    new: Dataset,
    *,
    state: Mapping[str, Any] | None = None,
    **options: Any,
) -> Watch:
    """Watch new data, with limits from healthy ones: rows in `.rows`, words in `.verdict`, `.figure()`, `.state()`.

    **Arguments:** `twin`, fitted; `healthy`; `new`; `state` of an earlier watch, to go on with the rows that have been
    added to `new` since (the healthy data are then not looked at again); `options` as for `calibrate`.
    """
    watching = calibrate(twin, healthy, **options) if state is None else resume(twin, state, new)
    watching.take(new)
    return watching


def _length(data: Dataset, window: int | str | None) -> int | None:
    samples = [len(run.ts) for run in data.runs]
    if isinstance(window, str):
        if window != "run":
            raise ValueError(f'window={window!r}: give a number of samples, or "run".')
        return None
    if window is None:
        window = int(np.clip(sum(samples) // AIM, SHORTEST, LONGEST))
        window = min(window, max(samples))
    count = sum(each // window for each in samples) if window > 0 else 0
    if count < FEWEST:
        raise ValueError(
            f"window={window}: the healthy data ({sum(samples)} samples in {len(samples)} runs) have {count} full "
            f"windows; at least {FEWEST} are needed, and 20 or more to set a useful limit. Give a shorter window, or "
            "more healthy data."
        )
    return window


def _varying(features: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Without features that are the same in every healthy window: there is no spread to judge them by."""
    names = list(features[0])
    values = np.array([[each[name] for name in names] for each in features])
    finite = values[np.isfinite(values).all(axis=1)]
    if len(finite) < FEWEST:
        raise ValueError(
            f"{len(finite)} of {len(features)} healthy windows could be judged; at least {FEWEST} are needed. In the "
            "others too much was missing, or the twin failed: see `twinfold check`."
        )
    keep = finite.std(axis=0) > 1e-12 * np.abs(finite).max(axis=0)
    if not keep.any():
        raise ValueError("The residuals are the same in every healthy window: there is no spread to judge by.")
    return [{name: each[name] for name, use in zip(names, keep, strict=True) if use} for each in features]
