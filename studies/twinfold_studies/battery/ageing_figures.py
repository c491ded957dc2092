"""Figures of ageing cells: score and alarm, capacity and remaining life, parameters, residuals."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.plot import COLOURS, GREY, INK, PALE, subplots
from twinfold_studies.battery.monitoring import HEALTHY, end_of_life

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]


def scores(cells: Mapping[str, Rows], where: str) -> "Figure":
    """The running score of each cell and its limit."""

    def panel(axis: "Axes", rows: Rows) -> None:
        cycle, running, limit = (_column(rows, name) for name in ("cycle", "running", "limit"))
        alarm = np.array([row["alarm"] for row in rows])
        axis.axvspan(0.5, HEALTHY + 0.5, color=PALE, zorder=0)
        axis.plot(cycle, _column(rows, "score"), ".", color=GREY, markersize=3, label="score of a cycle")
        axis.plot(cycle, running, color=COLOURS[1], label="running score")
        axis.plot(cycle, limit, color=INK, linestyle="--", linewidth=1.2, label="limit")
        axis.plot(cycle[alarm], running[alarm], "o", color=COLOURS[4], markersize=3, label="alarm")
        if alarm.any():
            first, capacity = int(alarm.argmax()), _column(rows, "capacity_Ah")
            fade = 1 - capacity[first] / capacity[0]
            axis.axvline(cycle[first], color=COLOURS[4], linewidth=1)
            style = {"textcoords": "offset points", "xytext": (5, 6), "fontsize": 8.5, "color": COLOURS[4]}
            base = ("data", "axes fraction")
            axis.annotate(f"cycle {cycle[first]:.0f}, fade {fade:.1%}", (cycle[first], 0), xycoords=base, **style)
        axis.set_ylim(np.nanmin(running) - 4, 1.6 * max(np.nanmax(running), np.nanmax(limit)))
        axis.set_ylabel("healthy standard deviations")

    return _panels(cells, panel, where)


def capacity(cells: Mapping[str, Rows], worn: Mapping[str, float], shares: Sequence[float], where: str) -> "Figure":
    """Measured and estimated capacity, and the end of life as predicted at these shares of life."""

    def panel(axis: "Axes", rows: Rows, cell: str) -> None:
        cycle, measured, estimated, error = (
            _column(rows, name) for name in ("cycle", "capacity_Ah", "estimated_Ah", "estimated_error")
        )
        end = end_of_life(measured, worn[cell])
        axis.axhline(worn[cell], color=INK, linewidth=1, linestyle=":", label="end of life")
        for share, colour in zip(shares if end is not None else (), COLOURS[2:], strict=False):
            at = round(share * (end or 0)) - 1
            if at < HEALTHY or not np.isfinite(rows[at]["remaining"]):
                continue
            start, low, high = (cycle[at], estimated[at]), cycle[at] + rows[at]["low"], cycle[at] + rows[at]["high"]
            high = min(high, 2 * cycle[-1])
            axis.fill([start[0], low, high], [start[1], worn[cell], worn[cell]], color=colour, alpha=0.22, linewidth=0)
            middle = cycle[at] + rows[at]["remaining"]
            axis.plot(
                [start[0], middle], [start[1], worn[cell]], color=colour, label=f"predicted at {share:.0%} of life"
            )
        axis.plot(cycle, measured, ".", color=GREY, markersize=4, label="measured")
        axis.fill_between(cycle, estimated - 2 * error, estimated + 2 * error, color=COLOURS[1], alpha=0.2, linewidth=0)
        axis.plot(cycle, estimated, color=COLOURS[1], linewidth=1.1, label="estimated")
        axis.set_ylabel("capacity / Ah")

    return _panels(cells, panel, where, with_name=True)


def parameters(cells: Mapping[str, Rows], where: str) -> "Figure":
    """q_max and R_o of each cycle, with error bars."""

    def panel(axis: "Axes", rows: Rows) -> None:
        cycle = _column(rows, "cycle")
        for name, label, colour in (("q_max", "$q_{max}$", COLOURS[1]), ("R_o", "$R_o$", COLOURS[4])):
            value, error = _column(rows, name), _column(rows, f"{name}_error")
            bars = {"fmt": ".", "markersize": 3, "elinewidth": 0.7, "color": colour, "label": label}
            axis.errorbar(cycle, value / value[0], 2 * error / value[0], **bars)
        axis.axhline(1, color=GREY, linewidth=0.8)
        axis.set_ylabel("relative to the first cycle")

    return _panels(cells, panel, where)


def residuals(cells: Mapping[str, Rows], where: str) -> "Figure":
    """Residual curves of each cell, dark for the first cycle and light for the last."""

    from matplotlib import colormaps

    def panel(axis: "Axes", curves: Rows) -> None:
        last = max(curve["cycle"] for curve in curves)
        colours = colormaps["viridis"]
        for curve in curves:
            age = curve["cycle"] / last
            label = f"cycle {curve['cycle']}" if curve in (curves[0], curves[-1]) else None
            axis.plot(curve["charge"], curve["residual"], color=colours(0.92 * age), linewidth=1.1, label=label)
        axis.axhline(0, color=GREY, linewidth=0.8)
        axis.set_xlabel("discharged charge / Ah")
        axis.set_ylabel("residual / V")
        axis.legend(fontsize=8, loc="lower left")

    return _panels(cells, panel, where, legend=False)


def _panels(
    cells: Mapping[str, Rows], panel: Callable[..., None], where: str, *, with_name: bool = False, legend: bool = True
) -> "Figure":
    """One panel per cell; the source of the data is the title of the figure."""
    with subplots(1, len(cells), width=4.4 * len(cells), height=3.3) as (figure, axes):
        for axis, (cell, rows) in zip(axes, cells.items(), strict=True):
            axis.set_xlabel("cycle")
            panel(axis, rows, cell) if with_name else panel(axis, rows)
            axis.set_title(cell)
        figure.suptitle(where.strip("()"), fontsize=9, color=GREY)
        if legend:
            handles, labels = axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 7), fontsize=9)
    return figure


def _column(rows: Rows, name: str) -> np.ndarray:
    return np.array([row[name] for row in rows], np.float64)
