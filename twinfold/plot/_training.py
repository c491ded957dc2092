"""Figures of the training history."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from twinfold.plot._style import COLOURS, GREY, add_legend, subplots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def training_curves(histories: Mapping[str, Mapping[str, np.ndarray]], *, stages: Sequence[str] = ()) -> "Figure":
    """Training loss and validation score of each seed over the epochs, one panel per model.

    **Arguments:** `histories`, the `Fit.history` of each model; `stages`, the names of the training stages.

    **Example:**

    ```python
    twin, ts = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.5)}), np.linspace(0.0, 1.0, 11)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)[:, None]])
    fit = tw.fit(twin, data, method=tw.Adam(5), progress=False)
    figure = tw.plot.training_curves({"decay": fit.history}, stages=["Adam"])
    ```
    """
    columns = min(len(histories), 2)
    rows = -(-len(histories) // columns)
    with subplots(rows, columns, width=4.75 * columns, height=2.5, sharex=True, sharey=True) as (figure, axes):
        for axis, (model, history), colour in zip(axes, histories.items(), COLOURS, strict=False):
            _draw_history(axis, history, colour)
            axis.set_title(model)
        numbered = "    ".join(f"{number}: {name}" for number, name in enumerate(stages, start=1))
        figure.supxlabel(f"epoch\n{numbered}", fontsize=10)
        for axis in axes[::columns]:
            axis.set_ylabel("loss")
        add_legend(figure, axes[0], neutral=True)
    return figure


def stage_starts(history: Mapping[str, np.ndarray]) -> list[int]:
    """The index of the first epoch of each stage."""
    stage = np.asarray(history["stage"])
    stage = stage[:, 0] if stage.ndim == 2 else stage
    return [0, *(np.flatnonzero(np.diff(stage)) + 1).tolist()]


def positive(values: np.ndarray) -> np.ndarray:
    """Values for a logarithmic axis: NaN where not positive and finite."""
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _draw_history(axis: "Axes", history: Mapping[str, np.ndarray], colour: str) -> None:
    epochs = 1 + np.arange(len(history["loss"]))
    for kind, label, alpha, width in (("loss", "training", 0.45, 0.9), ("score", "validation", 1.0, 1.4)):
        lines = axis.plot(epochs, positive(history[kind]), color=colour, alpha=alpha, linewidth=width)
        lines[0].set_label(label)
    axis.set_yscale("log")
    edges = [*stage_starts(history), len(epochs)]
    for number, (start, stop) in enumerate(itertools.pairwise(edges), start=1):
        if start:
            axis.axvline(start + 0.5, color=GREY, linewidth=0.8, linestyle=":")
        where = {"transform": axis.get_xaxis_transform(), "ha": "center", "va": "top", "color": GREY}
        axis.text(0.5 * (start + stop) + 0.5, 1.0, str(number), fontsize=9, **where)
