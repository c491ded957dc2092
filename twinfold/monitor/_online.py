"""Measured minus predicted, sample by sample, gathered into windows and each window into a few features.

A window is a cycle of the `Monitor`. Where the state is measured, every window starts at its first measurement, so
that a small error of the twin does not add up over a long run; elsewhere the twin runs on from the start of the run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.data import Dataset, Run
from twinfold.model import Stepper, Twin
from twinfold.monitor._features import channel_features
from twinfold.train._estimate import has_own_parameters

FORMAT = 1  # of a saved state


@dataclass(frozen=True, eq=False)
class Window:
    """A finished window: its run, number in it, times, samples, those `missing` of the outputs, and its features."""

    run: str
    number: int
    start: float
    end: float
    samples: int
    missing: int
    features: dict[str, float]
    note: str


class Windows:
    """The online part: `begin` a run, `sample` by `sample`, `finish` it; its state is plain JSON and does not grow.

    **Arguments:** `twin`; the names of its `outputs`; `window` in samples, None for one window a run (which is then
    kept until the run ends); `restart`: whether each window starts at its first measurement; `degree` of the shape.
    """

    def __init__(
        self, twin: Twin, outputs: Sequence[str], *, window: int | None, restart: bool | None = None, degree: int = 2
    ):
        measured = twin.observe is None and twin.initial is None and twin.trajectory is None
        if restart and not measured:
            raise ValueError("restart=True: a window can start at a measurement only where the outputs are the state.")
        if window is not None and window < 2 * (degree + 2):
            raise ValueError(
                f"window={window}: give at least {2 * (degree + 2)} samples for shapes of degree {degree}."
            )
        self.twin, self.outputs, self.window, self.degree = twin, tuple(outputs), window, degree
        self.restart = measured and window is not None if restart is None else restart
        self.run, self.number, self.seen = "", 0, 0
        self._stepper: Stepper | None = None
        self._gathered: list[tuple[float, list[float]]] = []
        self._note = ""

    def begin(self, run: Run) -> None:
        """Start a run: its name, its group's parameters and its initial state are taken, not its samples."""
        place = None
        if self.twin.runs is not None and has_own_parameters(self.twin):
            places = self.twin.run_indices((run.name,), (run.group,))
            if places is None:
                raise ValueError(f"The twin has no parameters of run '{run.name}': fit them first (train=\"per_run\").")
            place = places[0]
        self._stepper = self.twin.stepper(run.x0, run=place)
        self.run, self.number, self.seen = run.name, 0, 0
        self._gathered, self._note = [], ""

    def sample(self, t: float, w: np.ndarray | None, y: np.ndarray) -> Window | None:
        """Take one sample; the window that it completes, if it does."""
        assert self._stepper is not None, "begin a run first"
        if self.restart and not self._gathered and self.number > 0:
            self._stepper.reset()
        out = self._stepper.step(t, w, y)
        self.seen += 1
        if not out.ok:
            self._note = self._note or f"t = {t:.6g}: {out.message}"
        residual = out.residual if out.residual.shape == y.shape else np.full(y.shape, np.nan)
        self._gathered.append((float(t), np.where(out.ok, residual, np.nan).tolist()))
        return self._close() if self.window is not None and len(self._gathered) == self.window else None

    def finish(self) -> Window | None:
        """End the run: its only window where it is one, and nothing of a window that is not full."""
        whole = self.window is None and len(self._gathered) > 0
        found = self._close() if whole else None
        self._gathered = []
        return found

    def _close(self) -> Window:
        ts = np.array([t for t, _ in self._gathered])
        residual = np.array([row for _, row in self._gathered])
        found = channel_features(residual, self.outputs, ts, degree=self.degree, span=(ts[0], ts[-1]))
        # The logarithm of the size is nearer to normal, which the limits are exact for; the mean is in the shape.
        features = {}
        for name, value in found.items():
            output, kind = name.rsplit(".", 1)
            if kind == "rms":
                features[f"{output}.size"] = math.log(max(value, 1e-300)) if value == value else math.nan
            elif kind != "mean":
                features[name] = value
        missing = int(np.isnan(residual).sum())
        out = Window(self.run, self.number, ts[0], ts[-1], len(ts), missing, features, self._note)
        self.number, self._gathered, self._note = self.number + 1, [], ""
        return out

    def state(self) -> dict[str, Any]:
        """Everything as plain JSON."""
        gathered = [[t, [None if value != value else value for value in row]] for t, row in self._gathered]
        kept = {name: getattr(self, name) for name in ("window", "restart", "degree", "run", "number", "seen")}
        stepper = None if self._stepper is None else self._stepper.state()
        more = {"outputs": list(self.outputs), "note": self._note, "gathered": gathered, "stepper": stepper}
        return {"format": FORMAT} | kept | more

    @staticmethod
    def from_state(twin: Twin, state: Mapping[str, Any], runs: Mapping[str, Run]) -> "Windows":
        """The windows whose `state` it was, with the same twin and the runs by name."""
        if state.get("format") != FORMAT:
            raise ValueError(f"A watch's state has format {FORMAT}, this one {state.get('format')!r}.")
        options = {name: state[name] for name in ("window", "restart", "degree")}
        out = Windows(twin, state["outputs"], **options)
        if state["stepper"] is not None and state["run"] in runs:
            out.begin(runs[state["run"]])
            assert out._stepper is not None
            out._stepper.restore(state["stepper"])
            out.number, out.seen, out._note = state["number"], state["seen"], state["note"]
            nan = math.nan
            out._gathered = [(t, [nan if value is None else value for value in row]) for t, row in state["gathered"]]
        return out


def windows_of(windows: Windows, data: Dataset) -> list[Window]:
    """All windows of a data set, row by row as they would come."""
    found: list[Window | None] = []
    for run in data.runs:
        windows.begin(run)
        for index, t in enumerate(run.ts):
            found.append(windows.sample(float(t), None if run.w is None else run.w[index], run.y[index]))
        found.append(windows.finish())
    return [each for each in found if each is not None]
