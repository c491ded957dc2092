"""Alarms on innovations: has a plant changed since the twin was fitted?

The innovations of a filter whose model and noise are right are white, of mean zero and of the variance that it states.
In a window of samples, each output has two numbers that are then standard normal, however many values are missing:

    mean    sum z / sqrt(c)                                              z: innovation over its standard deviation
    size    ((sum z^2 / c)^(1/3) - 1 + 2/(9c)) / sqrt(2/(9c))            c values; Wilson and Hilferty (1931)

Their running means are compared with limits of a stated rate of false alarms, as in `twinfold.monitor`: those limits
are calibrated on healthy data, where model and noise are only nearly right, or follow from theory. A value that the
gate of the filter refuses counts as far away as the gate: one wild value is no alarm, a window of them is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from twinfold.monitor._limits import FeatureLimits, feature_limits

FAR = 1e-6  # the gate of values that count, for a filter without one
MIN_HEALTHY = 10  # windows from which limits are calibrated
MANY = 10**6  # cycles that theory stands for
FEATURES = ("mean", "size")


@dataclass(frozen=True, eq=False)
class Judged:
    """The alarms of some assets at their last complete window.

    The `running` score, its `limit`, and whether there is an `alarm`: the score is above the limit. NaN before the
    first window is complete. `raised` where the alarm is new with this sample.

    **Example:**

    ```python
    alarms = tw.follow.InnovationAlarms(outputs=["y"], window=20)
    for _ in range(20):
        judged = alarms.update(np.array([0]), np.array([[4.0]]))
    judged.alarm, judged.running > judged.limit  # [True], [True]
    ```
    """

    running: np.ndarray
    limit: np.ndarray
    alarm: np.ndarray
    raised: np.ndarray


class InnovationAlarms:
    """The running alarms of all assets of a fleet, in arrays of constant size for each.

    **Arguments:** the names of the `outputs`; samples per `window`; the `false_alarm_rate` per window, over all
    outputs together; `smoothing`, the weight of the newest window in the running score; the `gate` of the filter;
    `limits`, from `calibrated`: those of theory when left out.

    **Example:**

    ```python
    rng = np.random.default_rng(0)
    healthy = [rng.normal(size=(400, 1)) for _ in range(3)]  # innovations over their standard deviations
    alarms = tw.follow.InnovationAlarms.calibrated(["y"], healthy, window=20, false_alarm_rate=0.001)
    for z in rng.normal(2.0, 1.0, size=(40, 1)):
        judged = alarms.update(np.array([7]), z[None])
    judged.alarm  # [True]
    ```
    """

    def __init__(
        self,
        outputs: Sequence[str],
        *,
        window: int = 20,
        false_alarm_rate: float = 0.001,
        smoothing: float = 0.2,
        gate: float | None = None,
        limits: FeatureLimits | None = None,
    ):
        if window < 2 or not 0 < smoothing <= 1 or not 0 < false_alarm_rate < 0.5:
            raise ValueError(
                f"window={window}, smoothing={smoothing:g}, false_alarm_rate={false_alarm_rate:g}: give at least 2 "
                "samples, a weight in (0, 1] and a rate between 0 and 0.5."
            )
        self.outputs, self.window, self.smoothing = tuple(outputs), window, smoothing
        self.far = float(np.sqrt(chi2.isf(FAR if gate is None else gate, 1)))
        self.limits = _theory(self.outputs, false_alarm_rate) if limits is None else limits
        self.calibrated_on = 0 if limits is None else limits.count
        self._arrays = self._empty(0)

    @staticmethod
    def calibrated(
        outputs: Sequence[str],
        healthy: Sequence[np.ndarray],
        *,
        window: int = 20,
        false_alarm_rate: float = 0.001,
        smoothing: float = 0.2,
        gate: float | None = None,
    ) -> "InnovationAlarms":
        """Alarms with limits from healthy innovations, where there are at least ten windows of them.

        **Arguments:** `healthy`: for each record, its innovations over their standard deviations [T, k], NaN where
        nothing was measured; the others as for the class.
        """
        plain = InnovationAlarms(
            outputs, window=window, false_alarm_rate=false_alarm_rate, smoothing=smoothing, gate=gate
        )
        windows = [
            values
            for record in healthy
            for part in range(len(record) // window)
            if np.isfinite(values := plain.features(record[part * window : (part + 1) * window])).all()
        ]
        if len(windows) < MIN_HEALTHY:
            return plain
        named = [dict(zip(plain.limits.names, values.tolist(), strict=True)) for values in windows]
        limits = feature_limits(named, false_alarm_rate=false_alarm_rate)
        return InnovationAlarms(
            outputs,
            window=window,
            false_alarm_rate=false_alarm_rate,
            smoothing=smoothing,
            gate=gate,
            limits=limits,
        )

    def features(self, z: np.ndarray) -> np.ndarray:
        """The features of one window of innovations over their standard deviations [T, k]."""
        return self._features(*(each[None] for each in self._sums(z)))[0]

    def update(self, rows: np.ndarray, z: np.ndarray) -> Judged:
        """Take the innovations of one sample of some assets.

        **Arguments:** `rows`, the numbers of the assets, each once; `z` [B, k], innovations over their standard
        deviations, NaN where there is none.
        """
        self._reserve(int(rows.max(initial=-1)) + 1)
        now = self._arrays
        count, total, squares = self._sums(z[:, None], axis=1)
        for name, added in (("count", count), ("total", total), ("squares", squares)):
            now[name][rows] += added
        now["samples"][rows] += 1
        before = now["alarm"][rows]
        full = rows[now["samples"][rows] >= self.window]
        if len(full):
            self._close(full)
        alarm = now["alarm"][rows]
        return Judged(now["running"][rows], now["limit"][rows], alarm, alarm & ~before)

    def _close(self, rows: np.ndarray) -> None:
        """Judge the complete windows of some assets; one without enough values is not judged."""
        now = self._arrays
        found = self._features(now["count"][rows], now["total"][rows], now["squares"][rows])
        for name in ("count", "total", "squares", "samples"):
            now[name][rows] = 0
        sound = np.isfinite(found).all(axis=1)
        rows, deviation = rows[sound], found[sound] - self.limits.mean
        # The running mean of `twinfold.monitor._alarm`, for all assets at once.
        now["judged"][rows] += 1
        share = self.smoothing / (1 - (1 - self.smoothing) ** now["judged"][rows])
        mean = (1 - share)[:, None] * now["mean"][rows] + share[:, None] * self.limits.clip(deviation)
        weight = (1 - share) ** 2 * now["weight"][rows] + share**2
        now["mean"][rows], now["weight"][rows] = mean, weight
        now["running"][rows], now["limit"][rows] = self.limits.scores(mean), self.limits.limits(weight)
        now["alarm"][rows] = now["running"][rows] > now["limit"][rows]

    def _sums(self, z: np.ndarray, axis: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        near = np.clip(z, -self.far, self.far)
        return (~np.isnan(z)).sum(axis), np.nansum(near, axis), np.nansum(near**2, axis)

    def _features(self, count: np.ndarray, total: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """[B, 2 k]; NaN for an output with values in less than half of the window."""
        c = np.where(2 * count >= self.window, count, np.nan)
        size = (np.cbrt(squares / c) - 1 + 2 / (9 * c)) / np.sqrt(2 / (9 * c))
        return np.concatenate([total / np.sqrt(c), size], axis=-1)

    def _empty(self, assets: int) -> dict[str, np.ndarray]:
        k = len(self.outputs)
        floats = {"total": (k,), "squares": (k,), "mean": (2 * k,), "weight": ()}
        return {
            "count": np.zeros((assets, k), np.int64),
            "samples": np.zeros(assets, np.int64),
            "judged": np.zeros(assets, np.int64),
            "running": np.full(assets, np.nan),
            "limit": np.full(assets, np.nan),
            "alarm": np.zeros(assets, bool),
            **{name: np.zeros((assets, *shape)) for name, shape in floats.items()},
        }

    def _reserve(self, assets: int) -> None:
        have = len(self._arrays["samples"])
        if assets > have:
            more = self._empty(max(assets, 2 * have, 16) - have)
            self._arrays = {name: np.concatenate([value, more[name]]) for name, value in self._arrays.items()}

    def arrays(self, assets: int) -> dict[str, np.ndarray]:
        """Everything that is carried, for so many assets, in arrays that later samples do not change."""
        self._reserve(assets)
        return {name: value[:assets].copy() for name, value in self._arrays.items()}

    def restore(self, arrays: Mapping[str, np.ndarray], assets: int) -> None:
        """Continue from such arrays. **Raises:** `ValueError` if they are those of other alarms."""
        fresh = self._empty(assets)
        for name, mine in fresh.items():
            given = arrays.get(name)
            if given is None or given.shape != mine.shape or given.dtype != mine.dtype:
                raise ValueError(f"the saved state does not fit the alarms: {name}")
        self._arrays = {name: np.array(arrays[name]) for name in fresh}


def _theory(outputs: Sequence[str], false_alarm_rate: float) -> FeatureLimits:
    """The limits for a filter whose model and noise are right: all features are standard normal."""
    names = tuple(f"{output}.{feature}" for feature in FEATURES for output in outputs)
    p = len(names)
    return FeatureLimits(names, MANY, false_alarm_rate, np.zeros(p), np.ones(p), np.ones((2, p), bool), np.zeros(p))
