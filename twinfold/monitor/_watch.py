"""Monitoring of a plant with its twin: does the residual still look as it did when the plant was healthy?

The residuals of healthy runs give the limits, with a stated false-alarm rate per window (see `_limits`); new samples
are taken row by row, and each complete window is judged. The state is plain JSON: a watch continues where it stopped,
with the rows added since.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.data import Dataset
from twinfold.data._rows import rows_of
from twinfold.model import Twin
from twinfold.monitor._limits import MIN_HEALTHY
from twinfold.monitor._monitor import Monitor
from twinfold.monitor._state import check_format
from twinfold.monitor._verdict import Verdict, cross_validate, judge_windows
from twinfold.monitor._windows import ResidualWindows, Window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = 2  # of a saved state
HEALTHY_WINDOWS = 30  # aimed at by the default window
MIN_WINDOW, MAX_WINDOW = 20, 200  # samples of the default window


@dataclass(eq=False)
class Watch:
    """A running watch: `Watch.calibrate` creates it, `take` judges new data, `verdict` sums up.

    `rows` are the windows judged in this session; `healthy` counts the healthy windows and those that exceed limits
    computed without them; `taken` is the number of samples taken of each run.

    **Example:**

    ```python
    rng, ts = np.random.default_rng(0), 0.1 * np.arange(200)
    healthy, new = (tw.Dataset.from_arrays(ts, [np.exp(-k * ts) + 0.02 * rng.normal(size=200)]) for k in (1, 2))
    watch = tw.monitor.Watch.calibrate(tw.Twin(lambda x: -x), healthy, window=20, restart=False)
    watch.take(new)[0]["alarm"]
    state = watch.state()  # plain JSON, for Watch.from_state
    ```
    """

    windows: ResidualWindows
    monitor: Monitor
    healthy: Mapping[str, Any]
    taken: dict[str, int] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def calibrate(
        twin: Twin,
        healthy: Dataset,
        *,
        window: int | str | None = None,
        false_alarm_rate: float = 0.01,
        smoothing: float = 0.2,
        confirm: tuple[int, int] = (1, 1),
        degree: int = 2,
        restart: bool | None = None,
        joint: bool = False,
    ) -> "Watch":
        """Return a watch with limits from healthy data.

        **Arguments:**

        - `twin`, fitted; `healthy`, runs of the healthy plant, preferably not those that the twin was fitted on.
        - `window` in samples, or `"run"` to judge whole runs; about 30 healthy windows by default.
        - `false_alarm_rate` per window; `smoothing`, `confirm` and `joint`: see `Monitor.calibrate`.
        - `degree` of the shape of a residual along a window.
        - `restart`: start the twin at the first measurement of each window (by default, if the state is measured).

        **Raises:** `ValueError` if there are too few healthy windows, or residuals that never vary.
        """
        length = _window_length(rows_of(twin, healthy).warmup, healthy, window)
        start = partial(
            ResidualWindows.start, twin, healthy.output_names, window=length, restart=restart, degree=degree
        )
        features = _varying_features([each.features for each in start().collect(healthy)])
        options: dict[str, Any] = {
            "false_alarm_rate": false_alarm_rate,
            "smoothing": smoothing,
            "confirm": confirm,
            "joint": joint,
        }
        monitor = Monitor.calibrate(features, **options)
        judged = sum(all(map(math.isfinite, each.values())) for each in features)
        counts = {"windows": len(features), "judged": judged, "samples": length or 0}
        return Watch(start(), monitor, counts | cross_validate(features, options))

    def take(self, data: Dataset) -> list[dict[str, Any]]:
        """Judge each window that is completed by the samples not yet taken.

        **Returns:** a row for each such window: run, window, from, to, samples, missing, score, running, limit, alarm,
        the feature that `changed` most and its `change` in healthy standard deviations, note.
        """
        if data.output_names != self.windows.outputs:
            raise ValueError(
                f"The new data have the outputs {', '.join(data.output_names)}; the healthy ones had "
                f"{', '.join(self.windows.outputs)}."
            )
        before = len(self.rows)
        for run in data.runs:
            taken = self.taken.get(run.name, 0)
            # A run judged as a whole, or followed by another one, cannot be continued.
            closed = self.windows.window is None or run.name != self.windows.run
            if taken >= len(run.ts) or (taken and closed):
                continue
            if not taken:
                self.windows.begin(run)
            self.rows += [self._judge(window) for window in self.windows.extend(run, taken)]
            self.taken[run.name] = len(run.ts)
        return self.rows[before:]

    def _judge(self, window: Window) -> dict[str, Any]:
        record = self.monitor.update(window.features)
        alarm, judged = self.monitor.alarm, math.isfinite(record.score)
        spread = alarm.limits.spread
        changes = alarm.running / (spread if spread.ndim == 1 else np.sqrt(np.diag(spread)))
        largest = int(np.argmax(np.abs(changes)))
        return {
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
            "changed": alarm.limits.names[largest] if judged else "",
            "change": float(changes[largest]) if judged else math.nan,
            "note": "; ".join(part for part in (record.note, window.note) if part),
        }

    @property
    def verdict(self) -> Verdict:
        """The verdict on all rows."""
        alarm = self.monitor.alarm
        return judge_windows(
            self.rows, alarm.limits.false_alarm_rate, alarm.smoothing, self.healthy, self.monitor.findings
        )

    def figure(self) -> "Figure":
        """Return a figure of the running score, its limit, and the largest change."""
        from twinfold.monitor._figure import draw_scores

        return draw_scores(self.rows, self.monitor.alarm.limits.false_alarm_rate)

    def state(self) -> dict[str, Any]:
        """Return everything but the rows as plain JSON, for `from_state`."""
        return {
            "format": FORMAT,
            "windows": self.windows.state(),
            "monitor": self.monitor.state(),
            "healthy": dict(self.healthy),
            "taken": dict(self.taken),
        }

    @staticmethod
    def from_state(twin: Twin, state: Mapping[str, Any], data: Dataset) -> "Watch":
        """Return the watch that was saved by `state`, for the same twin; `data` contains the run that it was in."""
        check_format(state, FORMAT)
        windows = ResidualWindows.from_state(twin, state["windows"], {run.name: run for run in data.runs})
        return Watch(windows, Monitor.from_state(state["monitor"]), state["healthy"], dict(state["taken"]))


def watch(
    twin: Twin, healthy: Dataset, new: Dataset, *, state: Mapping[str, Any] | None = None, **options: Any
) -> Watch:
    """Judge new data with limits from healthy data.

    **Arguments:** `twin`, fitted; `healthy`; `new`; `state` of an earlier watch, to continue with the samples added to
    `new` since (the healthy data are then not used); `options` as for `Watch.calibrate`.

    **Returns:** a `Watch` with `rows`, `verdict`, `figure()` and `state()`.

    **Raises:** `ValueError` as for `Watch.calibrate`, or if the state was saved in another format.

    **Example:**

    ```python
    rng, ts = np.random.default_rng(0), 0.1 * np.arange(200)
    healthy, new = (tw.Dataset.from_arrays(ts, [np.exp(-k * ts) + 0.02 * rng.normal(size=200)]) for k in (1, 2))
    result = tw.monitor.watch(tw.Twin(lambda x: -x), healthy, new, window=20, restart=False)
    result.verdict.status  # "changed"
    print(result.verdict.message)
    ```
    """
    result = Watch.calibrate(twin, healthy, **options) if state is None else Watch.from_state(twin, state, new)
    result.take(new)
    return result


def _window_length(seen: Sequence[int] | np.ndarray, data: Dataset, window: int | str | None) -> int | None:
    """The samples of a window, where so many at the start of each run were `seen`."""
    samples = [max(len(run.ts) - int(before), 0) for run, before in zip(data.runs, seen, strict=True)]
    if isinstance(window, str):
        if window != "run":
            raise ValueError(f'window={window!r}: give a number of samples, or "run".')
        return None
    if window is None:
        window = int(np.clip(sum(samples) // HEALTHY_WINDOWS, MIN_WINDOW, MAX_WINDOW))
        window = max(min(window, max(samples)), 1)
    count = sum(each // window for each in samples) if window > 0 else 0
    if count < MIN_HEALTHY:
        used = ", without those that initial states are estimated from" if np.any(seen) else ""
        raise ValueError(
            f"window={window}: the healthy data ({sum(samples)} samples in {len(samples)} runs{used}) contain {count} "
            f"full windows; at least {MIN_HEALTHY} are needed, and 20 or more for a useful limit. Give a shorter "
            "window, or more healthy data."
        )
    return window


def _varying_features(features: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Leave out features that are the same in every healthy window: they have no spread to judge by."""
    names = list(features[0]) if features else []
    values = np.array([[each[name] for name in names] for each in features])
    finite = values[np.isfinite(values).all(axis=1)] if features else values
    if len(finite) < MIN_HEALTHY:
        raise ValueError(
            f"{len(finite)} of {len(features)} healthy windows could be judged; at least {MIN_HEALTHY} are needed. In "
            "the others too many values were missing, or the twin failed: see `twinfold check`."
        )
    varying = finite.std(axis=0) > 1e-12 * np.abs(finite).max(axis=0)
    if not varying.any():
        raise ValueError(
            "The residuals are the same in every healthy window, so there is no spread to judge by: give measured data."
        )
    return [{name: each[name] for name, use in zip(names, varying, strict=True) if use} for each in features]
