"""Figures of the data before any training: each run, all runs together, and the constraint in the data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.check._finding import Finding
from twinfold.check._invariant import measured_constraints
from twinfold.check._subject import BlockedError, Subject, spaced_indices
from twinfold.plot import COLOURS, GREY, INK, math_label, subplots
from twinfold.plot._style import plain_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_RUN_FIGURES = 6
MAX_RUNS = 30  # in one panel


def draw_figures(subject: Subject, findings: Sequence[Finding]) -> "tuple[dict[str, Figure], list[Finding]]":
    """Return the figures by name, and a finding for each that could not be drawn."""
    figures: dict[str, Figure] = {}
    failed: list[Finding] = []
    functions = {"overview": lambda: draw_overview(subject), "invariant": lambda: draw_constraints(subject)}
    for index in spaced_indices(len(subject.data), MAX_RUN_FIGURES):
        name = f"run_{subject.data.names[index]}"
        functions[name] = lambda index=int(index): draw_run(subject, index, findings)
    for name, draw in functions.items():
        try:
            figure = draw()
        except ImportError as error:
            return {}, [Finding("figures", "note", str(error))]
        except Exception as error:
            message = f"'{name}' could not be drawn: {type(error).__name__}: {error}"
            failed.append(Finding("figures", "note", message))
            continue
        if figure is not None:
            figures[name] = figure
    return figures, failed


def draw_overview(subject: Subject) -> "Figure":
    """Draw every channel of all runs over the time since the start of each."""
    data, channels = subject.data, subject.channels
    with subplots(len(channels), 1, width=9.5, height=1.6, sharex=True) as (figure, axes):
        for axis, (name, series) in zip(axes, channels.items(), strict=True):
            style: Any = "steps-post" if name in data.input_names else "default"
            for index, (run, values) in enumerate(zip(data.runs[:MAX_RUNS], series, strict=False)):
                axis.plot(run.ts - run.ts[0], values, color=_colour(index), linewidth=1.0, drawstyle=style)
            axis.set_ylabel(math_label(plain_label(name)) + plain_label(subject.unit(name)))
        first = f" (the first {MAX_RUNS})" if len(data) > MAX_RUNS else ""
        axes[0].set_title(f"{len(data)} runs{first}, time since the start of each")
        axes[-1].set_xlabel("time" + plain_label(subject.unit("t", "time")))
    return figure


def draw_run(subject: Subject, index: int, findings: Sequence[Finding]) -> "Figure":
    """Draw the measurements of one run, the simulated physics, and the places of findings."""
    run = subject.data.runs[index]
    with subplots(len(subject.channels), 1, width=9.5, height=1.6, sharex=True) as (figure, axes):
        for axis, (name, series) in zip(axes, subject.channels.items(), strict=True):
            axis.set_ylabel(math_label(plain_label(name)) + plain_label(subject.unit(name)))
            if name in subject.data.output_names:
                _draw_output(axis, subject, index, name, findings)
                continue
            style: Any = "steps-post" if subject.given.cell.input_interpolation == "hold" else "default"
            axis.plot(run.ts, series[index], color=GREY, drawstyle=style, label="input")
        axes[0].set_title(plain_label(f"Run {run.name}"))
        axes[-1].set_xlabel("time" + plain_label(subject.unit("t", "time")))
        entries: dict[str, Any] = {}
        for axis in axes:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        figure.legend(list(entries.values()), list(entries), loc="outside upper right", ncols=6)
    return figure


def _draw_output(axis: "Axes", subject: Subject, index: int, name: str, findings: Sequence[Finding]) -> None:
    run, y = subject.data.runs[index], subject.channels[name][index]
    for gap in _details(findings, "gaps", "gaps", run.name):
        axis.axvspan(gap["from"], gap["to"], color=COLOURS[0], alpha=0.18, linewidth=0, label="gap")
    axis.plot(run.ts, y, ".", color=INK, markersize=3.0 if len(run.ts) < 400 else 1.5, label="measured")
    _draw_physics(axis, subject, index, name)
    outliers = [each["sample"] for each in _details(findings, "outliers", "places", run.name) if each["output"] == name]
    if outliers:
        axis.plot(run.ts[outliers], y[outliers], "o", color=COLOURS[4], mfc="none", markersize=9, label="outlier")
    missing = run.ts[np.isnan(y)]
    if len(missing):
        place: dict[str, Any] = {"transform": axis.get_xaxis_transform(), "color": COLOURS[4], "markersize": 5}
        axis.plot(missing, np.zeros(len(missing)), "|", label="missing", **place)


def _draw_physics(axis: "Axes", subject: Subject, index: int, name: str) -> None:
    """The simulated physics, near the range of the measurements."""
    try:
        _, ys = subject.simulated
    except BlockedError:
        return
    run, y = subject.data.runs[index], subject.channels[name][index]
    low, high = np.nanmin(y), np.nanmax(y)
    margin = (high - low) or 1.0
    values = ys[index, : len(run.ts), subject.data.output_names.index(name)]
    inside = np.where((values > low - margin) & (values < high + margin), values, np.nan)
    axis.plot(run.ts, inside, color=COLOURS[1], linewidth=1.2, label="physics alone", zorder=1)


def draw_constraints(subject: Subject) -> "Figure | None":
    """Draw each measured constraint along the runs relative to its scale; None if there is none."""
    if not subject.constrained:
        return None
    known = {row: series for row, series in measured_constraints(subject).items() if not isinstance(series, str)}
    if not known:
        return None
    with subplots(len(known), 1, width=9.5, height=2.2, sharex=True) as (figure, axes):
        for axis, (row, series) in zip(axes, known.items(), strict=True):
            for index, each in enumerate(series[:MAX_RUNS]):
                axis.plot(each.ts - each.ts[0], each.g / each.scale, color=_colour(index), linewidth=1.0)
            noise = float(np.nanmedian([each.noise / each.scale for each in series[:MAX_RUNS]]))
            if np.isfinite(noise):
                axis.axhspan(-2 * noise, 2 * noise, color=GREY, alpha=0.2, linewidth=0)
            axis.axhline(0, color=GREY, linewidth=0.8)
            axis.set_ylabel(f"g{row} / scale")
        axes[0].set_title("The constraint in the data: zero except for noise (band: two standard deviations)")
        axes[-1].set_xlabel("time" + plain_label(subject.unit("t", "time")))
    return figure


def _details(findings: Sequence[Finding], kind: str, key: str, run: str) -> list[dict[str, Any]]:
    """The entries of one run in the details of the findings of one kind."""
    found = [each for finding in findings if finding.kind == kind for each in finding.detail.get(key, ())]
    return [each for each in found if each["run"] == run]


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]
