"""Pictures of predictions and fits. Every function returns a matplotlib figure; `save` writes it as PNG.

Needs `pip install 'twinfold[plot]'`. Colours are those of Okabe and Ito, told apart by colour-blind readers too.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.metrics import Predictions, relative_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (3, 1.2)), (0, (1.2, 1)), "-.", ":")
INK, GREY, PALE = "#1f2430", "#7a7f89", "#f2f4f7"
SMALLEST = 1e-16  # rounding: what is below is drawn here on a log axis
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "grid.color": "#e3e6eb",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.7,
    "legend.frameon": False,
    "figure.facecolor": "white",
}


def save(figure: "Figure", path: str | Path, *, dpi: int = 150) -> None:
    """Write a figure, as PNG or as what the ending of `path` says."""
    with matplotlib_of().rc_context(STYLE):
        figure.savefig(path, dpi=dpi, format=Path(path).suffix.lstrip(".") or "png")


def trajectories(
    predictions: Mapping[str, Predictions],
    *,
    run: int = 0,
    seeds: Mapping[str, int] | None = None,
    names: Sequence[str] | None = None,
    trained: float | None = None,
    time: str = "time",
) -> "Figure":
    """Every output of one run over time, against what was measured.

    **Arguments:** `predictions` by model; `run`, its index; `seeds`, the index of the seed to draw for each model (the
    first when left out); `names` of the outputs, with their units where they have some; `trained`, the duration that
    was trained on; `time`, the label of the time axis.
    """
    first = next(iter(predictions.values()))
    outputs, ts = first.y.shape[-1], first.ts[run, : first.length[run]]
    names = names or [f"y{index}" for index in range(outputs)]
    with matplotlib_of().rc_context(STYLE):
        figure, axes = grid_of(outputs, 1, width=9.5, height=1.75, sharex=True)
        for index, axis in enumerate(axes):
            measured = np.where(first.mask[run], first.y[run], np.nan)[: len(ts), index]
            axis.plot(ts, measured, color=INK, linewidth=5.5, alpha=0.2, label="truth")
            # Each line thinner than the one under it, so that those that agree are all seen.
            widths = np.linspace(3.2, 0.9, len(predictions))
            for (model, each), colour, width in zip(predictions.items(), COLOURS, widths, strict=False):
                values = each.predicted[(seeds or {}).get(model, 0), run, : len(ts), index]
                axis.plot(ts, values, color=colour, linewidth=width, label=model)
            axis.set_ylabel(math_name(names[index]))
            _limit(axis, measured)
            _mark_training(axis, ts, trained, note=index == 0)
        axes[-1].set_xlabel(time)
        _legend(figure, axes[0])
    return figure


def phase(
    predictions: Mapping[str, Predictions],
    *,
    run: int = 0,
    seeds: Mapping[str, int] | None = None,
    outputs: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
) -> "Figure":
    """One output against another along one run, a panel for each model; arguments as for `trajectories`."""
    first = next(iter(predictions.values()))
    names = names or [f"y{index}" for index in range(first.y.shape[-1])]
    a, b = outputs
    count = first.length[run]
    measured = np.where(first.mask[run], first.y[run], np.nan)[:count]
    with matplotlib_of().rc_context(STYLE):
        columns = min(len(predictions), 4)
        rows = -(-len(predictions) // columns)
        figure, axes = grid_of(rows, columns, width=3.0 * columns, height=3.1, sharex=True, sharey=True)
        for axis, (model, each), colour in zip(axes, predictions.items(), COLOURS, strict=False):
            values = each.predicted[(seeds or {}).get(model, 0), run, :count]
            axis.plot(measured[:, a], measured[:, b], color=INK, linewidth=3.6, alpha=0.25, label="truth")
            axis.plot(values[:, a], values[:, b], color=colour, linewidth=1.3, label="model")
            axis.plot(*measured[0, [a, b]], "o", color=INK, markersize=5, label="start")
            axis.set_title(model)
            axis.set_xlabel(math_name(names[a]))
        for axis in axes[::columns]:
            axis.set_ylabel(math_name(names[b]))
        _limit(axes[0], measured[:, b])
        _limit(axes[0], measured[:, a], horizontal=True)
        spans = np.nanmax(measured, 0) - np.nanmin(measured, 0)
        if 2 / 3 < spans[a] / spans[b] < 3 / 2:  # alike in size: a circle looks like one
            for axis in axes:
                axis.set_aspect("equal", adjustable="box")
        _legend(figure, axes[0], colour=GREY)
    return figure


def errors_over_time(
    predictions: Mapping[str, Predictions],
    *,
    floor: Predictions | None = None,
    trained: float | None = None,
    time: str = "time",
) -> "Figure":
    """The relative error at each time: median over seeds and runs, with the band from the 10th to the 90th percentile.

    **Arguments:** `predictions` by model, of runs with the same times; `floor`, those of the exact field; `trained`,
    the duration that was trained on; `time`, the label of the time axis.
    """
    curves = {model: relative_error(each.predicted, each.y, each.mask) for model, each in predictions.items()}
    lowest = None if floor is None else relative_error(floor.predicted, floor.y, floor.mask)
    label = r"relative error $\|\hat{y} - y\|\,/\,\mathrm{rms}\,\|y\|$"
    return _bands(curves, lowest, next(iter(predictions.values())).ts[0], label, trained, time)


def violations_over_time(
    predictions: Mapping[str, Predictions],
    *,
    floor: Predictions | None = None,
    trained: float | None = None,
    time: str = "time",
) -> "Figure":
    """The largest relative violation at each time; median, band and arguments as for `errors_over_time`."""
    curves = {model: each.relative.max(-1) for model, each in predictions.items()}
    lowest = None if floor is None else floor.relative.max(-1)
    label = r"relative violation $|g - g_0|\,/\,$scale"
    return _bands(curves, lowest, next(iter(predictions.values())).ts[0], label, trained, time)


def training(histories: Mapping[str, Mapping[str, np.ndarray]], *, stages: Sequence[str] = ()) -> "Figure":
    """Loss of each seed over the epochs, a panel for each model.

    **Arguments:** `histories`, the `Fit.history` of each model; `stages`, the names of the training stages.
    """
    with matplotlib_of().rc_context(STYLE):
        columns = min(len(histories), 2)
        rows = -(-len(histories) // columns)
        figure, axes = grid_of(rows, columns, width=4.75 * columns, height=2.5, sharex=True, sharey=True)
        for axis, (model, history), colour in zip(axes, histories.items(), COLOURS, strict=False):
            _training_panel(axis, model, history, colour)
        figure.supxlabel(
            "\n".join(["epoch", "    ".join(f"{i + 1}: {name}" for i, name in enumerate(stages))]),
            fontsize=10,
        )
        for axis in axes[::columns]:
            axis.set_ylabel("loss")
        _legend(figure, axes[0], colour=GREY)
    return figure


def math_name(name: str) -> str:
    """A name as it is printed: q1 with an index, theta1 in Greek; what has blanks or units is left alone."""
    match = re.fullmatch(r"([a-zA-Z]+)_?(\d*)", name)
    if match is None or (len(match[1]) > 1 and match[1] not in ("theta", "phi", "omega", "psi")):
        return name
    symbol = match[1] if len(match[1]) == 1 else f"\\{match[1]}"
    return f"${symbol}_{{{match[2]}}}$" if match[2] else f"${symbol}$"


def _bands(
    curves: Mapping[str, np.ndarray],
    floor: np.ndarray | None,
    ts: np.ndarray,
    label: str,
    trained: float | None,
    time: str,
) -> "Figure":
    with matplotlib_of().rc_context(STYLE):
        figure, (axis,) = grid_of(1, 1, width=9.5, height=3.9)
        for (model, values), colour, dash in zip(curves.items(), COLOURS, DASHES, strict=False):
            low, middle, high = _quantiles(values)
            axis.fill_between(ts, low, high, color=colour, alpha=0.13, linewidth=0)
            axis.plot(ts, middle, color=colour, linestyle=dash, label=model)
        if floor is not None:
            axis.plot(
                ts,
                _quantiles(floor)[1],
                color=GREY,
                linestyle="--",
                linewidth=1.3,
                label="exact field (floor)",
            )
        axis.set_yscale("log")
        axis.set_xlabel(time)
        axis.set_ylabel(label)
        _mark_training(axis, ts, trained, note=True)
        _legend(figure, axis)
    return figure


def _quantiles(values: np.ndarray) -> np.ndarray:
    """10th, 50th and 90th percentile over seeds and runs; NaN where it is not finite, so that a line ends there."""
    flat = np.where(np.isnan(values), np.inf, values).reshape(-1, values.shape[-1])
    # The nearest value rather than one in between: there is nothing between a number and infinity.
    out = np.quantile(flat, [0.1, 0.5, 0.9], axis=0, method="nearest")
    out[:, (out[1] == 0) & (np.arange(out.shape[1]) == 0)] = np.nan  # at the start there is no error yet
    return np.where(np.isfinite(out), np.maximum(out, SMALLEST), np.nan)


def _training_panel(axis: "Axes", model: str, history: Mapping[str, np.ndarray], colour: str) -> None:
    epochs = 1 + np.arange(len(history["loss"]))
    for kind, label, alpha, width in (("loss", "training", 0.45, 0.9), ("score", "validation", 1.0, 1.4)):
        values = np.where(np.isfinite(history[kind]) & (history[kind] > 0), history[kind], np.nan)
        lines = axis.plot(epochs, values, color=colour, alpha=alpha, linewidth=width)
        lines[0].set_label(label)
    axis.set_yscale("log")
    axis.set_title(model)
    stage = history["stage"][:, 0]
    edges = [0, *(np.flatnonzero(np.diff(stage)) + 1), len(stage)]
    for number, (start, stop) in enumerate(itertools.pairwise(edges), start=1):
        if start:
            axis.axvline(start + 0.5, color=GREY, linewidth=0.8, linestyle=":")
        middle = 0.5 * (start + stop) + 0.5
        where = {"transform": axis.get_xaxis_transform(), "ha": "center", "va": "top", "color": GREY}
        axis.text(middle, 1.0, str(number), fontsize=9, **where)


def _mark_training(axis: "Axes", ts: np.ndarray, trained: float | None, *, note: bool) -> None:
    axis.set_xlim(ts[0], ts[-1])
    if trained is None or ts[0] + trained >= ts[-1]:
        return
    axis.axvspan(ts[0], ts[0] + trained, color=PALE, zorder=0)
    axis.axvline(ts[0] + trained, color=GREY, linewidth=0.8, linestyle=":")
    if note:
        where = {"transform": axis.get_xaxis_transform(), "fontsize": 8, "color": GREY, "va": "bottom"}
        axis.text(ts[0] + 0.5 * trained, 1.01, "trained on this duration", ha="center", **where)


def _limit(axis: "Axes", measured: np.ndarray, *, horizontal: bool = False) -> None:
    """Room around what was measured; a model that runs away does not squeeze the rest."""
    low, high = np.nanmin(measured), np.nanmax(measured)
    room = 0.25 * (high - low) or 1.0
    (axis.set_xlim if horizontal else axis.set_ylim)(low - room, high + room)


def _legend(figure: "Figure", axis: "Axes", *, colour: str | None = None) -> None:
    handles, labels = axis.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 6), handlelength=2.6)
    if colour is not None:
        # The panels differ in colour, so the legend shows only what kind of line it is.
        for line, label in zip(legend.get_lines(), labels, strict=False):
            if label not in ("truth", "start"):
                line.set_color(colour)


def grid_of(
    rows: int, columns: int, *, width: float, height: float, sharex: bool = False, sharey: bool = False
) -> "tuple[Figure, list[Axes]]":
    matplotlib_of()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
    return figure, list(axes.ravel())


def matplotlib_of() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'twinfold[plot]'.") from error
    return matplotlib
