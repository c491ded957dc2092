"""Figures of predictions: runs over time, phase portraits, errors and violations over time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from twinfold.metrics import Predictions, relative_error
from twinfold.plot._style import COLOURS, DASHES, GREY, INK, LOG_FLOOR, PALE, add_legend, math_label, subplots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def trajectories(
    predictions: Mapping[str, Predictions],
    *,
    run: int = 0,
    seeds: Mapping[str, int] | None = None,
    names: Sequence[str] | None = None,
    training_duration: float | None = None,
    time: str = "time",
) -> "Figure":
    """Every output of one run over time, measured and predicted.

    **Arguments:** `predictions` by model; `run`, the index of the run; `seeds`, the index of the seed to draw for each
    model (default: the first); `names` of the outputs, with units; `training_duration`, marked in the figure; `time`,
    the label of the time axis.

    **Example:**

    ```python
    twin, ts = tw.Twin(lambda x: -x), np.linspace(0.0, 1.0, 11)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)[:, None]])
    figure = tw.plot.trajectories({"decay": tw.predict(twin, data)}, names=["y [V]"])
    tw.plot.save(figure, "trajectories.png")
    ```
    """
    first = next(iter(predictions.values()))
    measured, ts = _measured(first, run), first.ts[run, : first.length[run]]
    names = names or [f"y{index}" for index in range(measured.shape[1])]
    with subplots(measured.shape[1], 1, width=9.5, height=1.75, sharex=True) as (figure, axes):
        for index, axis in enumerate(axes):
            axis.plot(ts, measured[:, index], color=INK, linewidth=5.5, alpha=0.2, label="truth")
            # Later lines are thinner, so that lines that coincide are all visible.
            widths = np.linspace(3.2, 0.9, len(predictions))
            for (model, each), colour, width in zip(predictions.items(), COLOURS, widths, strict=False):
                values = each.predicted[(seeds or {}).get(model, 0), run, : len(ts), index]
                axis.plot(ts, values, color=colour, linewidth=width, label=model)
            axis.set_ylabel(math_label(names[index]))
            axis.set_ylim(*_limits(measured[:, index]))
            _mark_training(axis, ts, training_duration, note=index == 0)
        axes[-1].set_xlabel(time)
        add_legend(figure, axes[0])
    return figure


def phase_portrait(
    predictions: Mapping[str, Predictions],
    *,
    run: int = 0,
    seeds: Mapping[str, int] | None = None,
    outputs: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
) -> "Figure":
    """One output against another along one run, one panel per model.

    **Arguments:** `outputs`, the indices of the two; the others as in `trajectories`.

    **Example:**

    ```python
    twin, ts = tw.Twin(lambda x: jnp.stack([x[1], -x[0]])), np.linspace(0.0, 6.0, 61)
    data = tw.Dataset.from_arrays(ts, [np.stack([np.cos(ts), -np.sin(ts)], axis=1)])
    figure = tw.plot.phase_portrait({"oscillator": tw.predict(twin, data)}, names=["q", "p"])
    ```
    """
    first = next(iter(predictions.values()))
    a, b = outputs
    measured = _measured(first, run)
    names = names or [f"y{index}" for index in range(measured.shape[1])]
    columns = min(len(predictions), 4)
    rows = -(-len(predictions) // columns)
    with subplots(rows, columns, width=3.0 * columns, height=3.1, sharex=True, sharey=True) as (figure, axes):
        for axis, (model, each), colour in zip(axes, predictions.items(), COLOURS, strict=False):
            values = each.predicted[(seeds or {}).get(model, 0), run, : len(measured)]
            axis.plot(measured[:, a], measured[:, b], color=INK, linewidth=3.6, alpha=0.25, label="truth")
            axis.plot(values[:, a], values[:, b], color=colour, linewidth=1.3, label="model")
            axis.plot(*measured[0, [a, b]], "o", color=INK, markersize=5, label="start")
            axis.set_title(model)
            axis.set_xlabel(math_label(names[a]))
        for axis in axes[::columns]:
            axis.set_ylabel(math_label(names[b]))
        axes[0].set(xlim=_limits(measured[:, a]), ylim=_limits(measured[:, b]))
        spans = np.nanmax(measured, 0) - np.nanmin(measured, 0)
        if 2 / 3 < spans[a] / spans[b] < 3 / 2:  # similar ranges: draw a circle as a circle
            for axis in axes:
                axis.set_aspect("equal", adjustable="box")
        add_legend(figure, axes[0], neutral=True)
    return figure


def errors_over_time(
    predictions: Mapping[str, Predictions],
    *,
    floor: Predictions | None = None,
    training_duration: float | None = None,
    time: str = "time",
) -> "Figure":
    """The relative error over time: median over seeds and runs, with the band from the 10th to the 90th percentile.

    **Arguments:** `predictions` by model, of runs with the same times; `floor`, the predictions of the exact field;
    `training_duration`, marked in the figure; `time`, the label of the time axis.

    **Example:**

    ```python
    ts = np.linspace(0.0, 1.0, 11)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)[:, None]])
    wrong, exact = (tw.predict(tw.Twin(field), data) for field in (lambda x: -1.1 * x, lambda x: -x))
    figure = tw.plot.errors_over_time({"wrong rate": wrong}, floor=exact, training_duration=0.5)
    ```
    """
    curves = {model: relative_error(each.predicted, each.y, each.mask) for model, each in predictions.items()}
    lowest = None if floor is None else relative_error(floor.predicted, floor.y, floor.mask)
    label = r"relative error $\|\hat{y} - y\|\,/\,\mathrm{rms}\,\|y\|$"
    return _bands(curves, lowest, next(iter(predictions.values())).ts[0], label, training_duration, time)


def violations_over_time(
    predictions: Mapping[str, Predictions],
    *,
    floor: Predictions | None = None,
    training_duration: float | None = None,
    time: str = "time",
) -> "Figure":
    """The largest relative violation of the constraint over time; median, band and arguments as in `errors_over_time`.

    **Example:**

    ```python
    energy = tw.Conserved(lambda x: x @ x)
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), constraint=energy)
    ts = np.linspace(0.0, 6.0, 31)
    data = tw.Dataset.from_arrays(ts, [np.stack([np.cos(ts), -np.sin(ts)], axis=1)])
    figure = tw.plot.violations_over_time({"unprojected": tw.predict(twin, data)})
    ```
    """
    curves = {model: each.relative_violation.max(-1) for model, each in predictions.items()}
    lowest = None if floor is None else floor.relative_violation.max(-1)
    label = r"relative violation $|g - g_0|\,/\,$scale"
    return _bands(curves, lowest, next(iter(predictions.values())).ts[0], label, training_duration, time)


def _measured(predictions: Predictions, run: int) -> np.ndarray:
    """The measured values of a run, [T, k]; NaN where missing."""
    return np.where(predictions.mask[run], predictions.y[run], np.nan)[: predictions.length[run]]


def _bands(
    curves: Mapping[str, np.ndarray],
    floor: np.ndarray | None,
    ts: np.ndarray,
    label: str,
    training_duration: float | None,
    time: str,
) -> "Figure":
    with subplots(1, 1, width=9.5, height=3.9) as (figure, (axis,)):
        for (model, values), colour, dash in zip(curves.items(), COLOURS, DASHES, strict=False):
            low, middle, high = _quantiles(values)
            axis.fill_between(ts, low, high, color=colour, alpha=0.13, linewidth=0)
            axis.plot(ts, middle, color=colour, linestyle=dash, label=model)
        if floor is not None:
            style = {"color": GREY, "linestyle": "--", "linewidth": 1.3}
            axis.plot(ts, _quantiles(floor)[1], label="exact field (floor)", **style)
        axis.set(yscale="log", xlabel=time, ylabel=label)
        _mark_training(axis, ts, training_duration, note=True)
        add_legend(figure, axis)
    return figure


def _quantiles(values: np.ndarray) -> np.ndarray:
    """10th, 50th and 90th percentile over seeds and runs; NaN where not finite, so that a line ends there."""
    flat = np.where(np.isnan(values), np.inf, values).reshape(-1, values.shape[-1])
    # Nearest value: interpolation between a number and infinity is undefined.
    out = np.quantile(flat, [0.1, 0.5, 0.9], axis=0, method="nearest")
    out[:, (out[1] == 0) & (np.arange(out.shape[1]) == 0)] = np.nan  # the error at the initial state is zero
    return np.where(np.isfinite(out), np.maximum(out, LOG_FLOOR), np.nan)


def _mark_training(axis: "Axes", ts: np.ndarray, duration: float | None, *, note: bool) -> None:
    axis.set_xlim(ts[0], ts[-1])
    if duration is None or ts[0] + duration >= ts[-1]:
        return
    axis.axvspan(ts[0], ts[0] + duration, color=PALE, zorder=0)
    axis.axvline(ts[0] + duration, color=GREY, linewidth=0.8, linestyle=":")
    if note:
        where = {"transform": axis.get_xaxis_transform(), "fontsize": 8, "color": GREY, "va": "bottom"}
        axis.text(ts[0] + 0.5 * duration, 1.01, "training horizon", ha="center", **where)


def _limits(measured: np.ndarray) -> tuple[float, float]:
    """Axis limits from the measured values alone, so that a diverging model does not compress the rest."""
    low, high = np.nanmin(measured), np.nanmax(measured)
    margin = 0.25 * (high - low) or 1.0
    return low - margin, high + margin
