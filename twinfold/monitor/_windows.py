"""Measured minus predicted, sample by sample, collected into windows with a few features each.

A window is one cycle of the `Monitor`. If the state is measured, every window starts at its first measurement, so that
a small error of the twin does not accumulate over a long run; otherwise the twin runs on from the start of the run.
Samples from which that start was estimated are no evidence: they are in no window.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinfold.data import Dataset, Run
from twinfold.data._rows import begun
from twinfold.model import Stepper, Twin
from twinfold.monitor._features import residual_features

OPTIONS = ("window", "restart", "degree")


@dataclass(frozen=True, eq=False)
class Window:
    """A complete window: its run, number in the run, times, samples, `missing` values of the outputs, and features."""

    run: str
    number: int
    start: float
    end: float
    samples: int
    missing: int
    features: dict[str, float]
    note: str


@dataclass(eq=False)
class ResidualWindows:
    """The windows of a running plant: `begin` a run, then `sample` by `sample`. Its state is plain JSON.

    `outputs` names those of the `twin`; `window` is the number of samples, None for one window per run; `restart`:
    whether each window starts at its first measurement; `degree` of the shape. The rest is the state: the current
    `run`, the `number` of complete windows in it, the times and residuals of the open window, its `note`, and the
    number of samples `ahead` that the initial state was estimated from.
    """

    twin: Twin
    outputs: tuple[str, ...]
    window: int | None
    restart: bool
    degree: int
    run: str = ""
    number: int = 0
    stepper: Stepper | None = None
    residuals: list[tuple[float, list[float]]] = field(default_factory=list)
    note: str = ""
    ahead: int = 0

    @staticmethod
    def start(
        twin: Twin, outputs: Sequence[str], *, window: int | None, restart: bool | None = None, degree: int = 2
    ) -> "ResidualWindows":
        """Return the windows of a twin before any run; `restart` by default where the state is measured."""
        measured = twin.observe is None and twin.initial is None and twin.trajectory is None
        if restart and not measured:
            raise ValueError("restart=True: a window can start at a measurement only if the outputs are the state.")
        if window is not None and window < 2 * (degree + 2):
            raise ValueError(
                f"window={window}: a shape of degree {degree} needs at least {2 * (degree + 2)} samples. Give a longer "
                "window or a lower degree."
            )
        restart = measured and window is not None if restart is None else restart
        return ResidualWindows(twin, tuple(outputs), window, restart, degree)

    def begin(self, run: Run) -> None:
        """Start a run with its parameters and initial state; an incomplete window of the previous run is dropped."""
        twin, index, seen = self.twin, None, 0
        if (estimated := begun(twin, (run,))) is not None:
            (twin, (seen,)), index = estimated, 0
        elif twin.runs is not None and twin.has_own_parameters:
            indices = twin.run_indices((run.name,), (run.group,))
            assert indices is not None, "the twin was fitted on this run"
            index = indices[0]
        self.stepper = twin.stepper(run.x0, run=index)
        self.run, self.number, self.residuals, self.note, self.ahead = run.name, 0, [], "", int(seen)

    def sample(self, t: float, w: np.ndarray | None, y: np.ndarray) -> Window | None:
        """Take one sample; return the window that it completes, if any."""
        assert self.stepper is not None, "begin a run first"
        if self.restart and not self.residuals and self.number > 0:
            self.stepper.reset()
        out = self.stepper.step(t, w, y)
        if not out.ok:
            self.note = self.note or f"t = {t:.6g}: {out.message}"
        if self.ahead > 0:
            self.ahead -= 1
            return None
        residual = out.residual if out.residual.shape == y.shape else np.full(y.shape, np.nan)
        self.residuals.append((float(t), np.where(out.ok, residual, np.nan).tolist()))
        return self._close() if len(self.residuals) == self.window else None

    def extend(self, run: Run, first: int = 0) -> Iterator[Window]:
        """Take the samples of the current run from index `first` to its end; yield each complete window."""
        for index in range(first, len(run.ts)):
            window = self.sample(float(run.ts[index]), None if run.w is None else run.w[index], run.y[index])
            if window is not None:
                yield window
        if self.window is None and self.residuals:
            yield self._close()

    def collect(self, data: Dataset) -> list[Window]:
        """Return all windows of a data set."""
        windows: list[Window] = []
        for run in data.runs:
            self.begin(run)
            windows += self.extend(run)
        return windows

    def _close(self) -> Window:
        ts = np.array([t for t, _ in self.residuals])
        residual = np.array([row for _, row in self.residuals])
        features = {}
        for output, r in zip(self.outputs, residual.T, strict=True):
            mine = residual_features(r, ts, degree=self.degree, span=(ts[0], ts[-1]))
            del mine["mean"]  # shape_0 is the robust mean
            # The limits are exact for normal features: the logarithm of the size is closer to normal.
            features[f"{output}.size"] = float(np.log(np.maximum(mine.pop("rms"), 1e-300)))
            features |= {f"{output}.{name}": value for name, value in mine.items()}
        missing = int(np.isnan(residual).sum())
        closed = Window(self.run, self.number, ts[0], ts[-1], len(ts), missing, features, self.note)
        self.number, self.residuals, self.note = self.number + 1, [], ""
        return closed

    def state(self) -> dict[str, Any]:
        """Return everything but the twin as plain JSON."""
        return {name: getattr(self, name) for name in (*OPTIONS, "run", "number", "note", "ahead")} | {
            "outputs": list(self.outputs),
            "stepper": None if self.stepper is None else self.stepper.state(),
            "residuals": [[t, [None if value != value else value for value in row]] for t, row in self.residuals],
        }

    @staticmethod
    def from_state(twin: Twin, state: Mapping[str, Any], runs: Mapping[str, Run]) -> "ResidualWindows":
        """Return the windows that were saved by `state`, with the same twin and the runs by name."""
        windows = ResidualWindows.start(twin, state["outputs"], **{name: state[name] for name in OPTIONS})
        if state["stepper"] is not None and state["run"] in runs:
            windows.begin(runs[state["run"]])
            assert windows.stepper is not None
            windows.stepper.restore(state["stepper"])
            # Up to version 0.2 samples ahead counted, so a state of it has none left.
            windows.number, windows.note, windows.ahead = state["number"], state["note"], state.get("ahead", 0)
            windows.residuals = [
                (t, [math.nan if value is None else value for value in row]) for t, row in state["residuals"]
            ]
        return windows
