"""Figures of experiments: dots for seeds, curves with bands, scatter plots."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.plot import COLOURS, DASHES, GREY, INK, subplots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_OVER_MEDIAN = 1e5  # upper end of a log axis, in units of the median of the panel
MIN_LOG_VALUE = 1e-17  # drawn in place of zero on a log axis


def dots(
    panels: Mapping[str, Mapping[str, np.ndarray]],
    label: str,
    *,
    lines: Mapping[str, Mapping[str, float | None]] | None = None,
    marks: Mapping[str, Mapping[str, float | None]] | None = None,
    columns: int = 3,
) -> "Figure":
    """One panel per system and one row per model: a dot for each seed and a bar at the median, on a log axis.

    Seeds that are far beyond all others are an arrow at the edge of the panel.

    **Arguments:** `panels`, the values of all seeds by title and model; `label` of the axis; `lines`, named vertical
    lines of a panel; `marks`, an additional value of a model (that of the paper); `columns` of the figure.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    max_rows = max(len(models) for models in panels.values())
    with subplots(rows, columns, width=max(4.2 * columns, 6.0), height=0.24 * max_rows + 0.7) as (figure, axes):
        for axis, (title, models) in zip(axes, panels.items(), strict=False):
            edge = _edge(list(models.values()))
            for row, (model, values) in enumerate(models.items()):
                finite = np.maximum(values[np.isfinite(values)], MIN_LOG_VALUE)
                inside = finite[finite <= edge]
                axis.plot(inside, np.full(len(inside), row), "o", color=COLOURS[1], alpha=0.25, markersize=4, mew=0)
                if len(inside) < len(finite):
                    axis.plot(edge, row, ">", color=COLOURS[1], markersize=5, mew=0)
                if len(finite) == len(values) and np.median(finite) <= edge:
                    axis.plot(np.median(finite), row, "|", color=INK, markersize=11, mew=2)
                paper = (marks or {}).get(title, {}).get(model)
                if paper is not None:
                    axis.plot(paper, row, "D", color=COLOURS[4], markersize=4.5, mfc="none")
            for index, (name, value) in enumerate((lines or {}).get(title, {}).items()):
                if value is not None and np.isfinite(value) and value > 0:
                    axis.axvline(value, color=GREY, linewidth=1.1, linestyle=DASHES[1 + index], label=name)
            axis.set_xscale("log")
            axis.set_yticks(range(len(models)), list(models))
            axis.set_ylim(len(models) - 0.4, -0.6)
            axis.set_title(title)
            axis.set_xlabel(label)
            _set_ticks(axis)
            if (lines or {}).get(title):
                axis.legend(fontsize=8, loc="best")
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
    return figure


def curves(
    panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
    x_label: str,
    y_label: str,
    *,
    bands: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]] | None = None,
    log: tuple[bool, bool] = (True, True),
    columns: int = 3,
    markers: bool = True,
) -> "Figure":
    """One panel per title and one curve (x, y) per name, with an optional band (low, high)."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    with subplots(rows, columns, width=max(4.2 * columns, 6.0), height=2.9) as (figure, axes):
        names = list(dict.fromkeys(name for each in panels.values() for name in each))
        for axis, (title, each) in zip(axes, panels.items(), strict=False):
            for name, (x, y) in each.items():
                index = names.index(name)
                style = {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)]}
                y = np.where(np.isfinite(y), np.maximum(y, MIN_LOG_VALUE) if log[1] else y, np.nan)
                axis.plot(x, y, label=name, marker="o" if markers else "", markersize=3.5, **style)
                band = (bands or {}).get(title, {}).get(name)
                if band is not None:
                    axis.fill_between(x, *band, color=style["color"], alpha=0.15, linewidth=0)
            axis.set_xscale("log" if log[0] else "linear")
            axis.set_yscale("log" if log[1] else "linear")
            if log[1]:
                _limit(axis, [y for _, y in each.values()])
            axis.set_title(title)
            axis.set_xlabel(x_label)
            axis.set_ylabel(y_label)
            _set_ticks(axis)
        for axis in axes[len(panels) :]:
            axis.set_visible(False)
        handles: dict[str, Any] = {}
        for axis in axes[: len(panels)]:
            handles |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=min(len(names), 5),
            handlelength=2.6,
        )
    return figure


def scatter(points: Sequence[tuple[str, float, float]], x_label: str, y_label: str) -> "Figure":
    """Named points on two log axes."""
    with subplots(1, 1, width=8.5, height=4.4) as (figure, (axis,)):
        markers = "osD^vP*X<>"
        for index, (name, x, y) in enumerate(points):
            style: dict[str, Any] = {"color": COLOURS[index % len(COLOURS)], "marker": markers[index % len(markers)]}
            axis.plot(x, max(y, MIN_LOG_VALUE), linestyle="", markersize=7, label=name, alpha=0.85, **style)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.margins(x=0.15, y=0.12)
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
        _set_ticks(axis)
        figure.legend(loc="outside right upper")
    return figure


def _limit(axis: Any, curves: Sequence[np.ndarray]) -> None:
    """Clip the axis, so that one diverged seed (1e52) does not flatten all other curves."""
    top = _edge(curves)
    if any(np.any(y[np.isfinite(y)] > top) for y in curves):
        axis.set_ylim(top=top)


def _edge(series: Sequence[np.ndarray]) -> float:
    """The upper end of a log axis on which the median of all values can still be told from its neighbours."""
    values = np.concatenate([np.ravel(each) for each in series])
    values = values[np.isfinite(values) & (values > 0)]
    return float(MAX_OVER_MEDIAN * np.median(values)) if len(values) else np.inf


def _set_ticks(axis: Any) -> None:
    """Ticks 1, 3, 10, ... on a short log axis, 1, 2, 5, 10, ... on a shorter one, evenly spaced on a very short one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    low, high = axis.get_xlim()
    if axis.get_xscale() == "log" and high / low < 300:
        short = high / low < 4  # it would have fewer than two of these ticks
        steps = (1.0, 2.0, 5.0) if high / low < 30 else (1.0, 3.0)
        axis.xaxis.set_major_locator(MaxNLocator(4) if short else LogLocator(subs=steps))
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _brief(value)))
        axis.xaxis.set_minor_formatter(NullFormatter())


def _brief(value: float) -> str:
    """2e-5 rather than 0.00002, and 0.02 rather than 2e-2."""
    if value == 0 or 1e-2 <= abs(value) < 1e4:
        return f"{value:g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"
