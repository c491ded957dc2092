"""Pictures of the data before any training: each run, all runs over each other, and the constraint in the data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.check._finding import Finding
from twinfold.check._invariant import Measured, measured
from twinfold.check._subject import BlockedError, Subject
from twinfold.plot import COLOURS, GREY, INK, STYLE, grid_of, math_name, matplotlib_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RUNS = 6  # runs with a figure of their own
OVER = 30  # runs in one panel


def all_of(subject: Subject, findings: Sequence[Finding]) -> "tuple[dict[str, Figure], list[Finding]]":
    """The figures by name, and a finding for each that could not be drawn."""
    drawn: dict[str, Figure] = {}
    failed: list[Finding] = []
    places = np.unique(np.linspace(0, len(subject.data) - 1, RUNS).astype(int))
    makers = {"overview": lambda: overview(subject), "invariant": lambda: invariants(subject)}
    makers |= {f"run_{subject.data.names[k]}": lambda k=k: one_run(subject, int(k), findings) for k in places}
    for name, make in makers.items():
        try:
            figure = make()
        except ImportError as error:
            return {}, [Finding("figures", "note", str(error))]
        except Exception as error:
            failed.append(Finding("figures", "note", f"'{name}' could not be drawn: {type(error).__name__}: {error}"))
            continue
        if figure is not None:
            drawn[name] = figure
    return drawn, failed


def overview(subject: Subject) -> "Figure":
    """Every channel of all runs, over time since the start of each."""
    data = subject.data
    names = (*data.output_names, *data.input_names)
    with matplotlib_of().rc_context(STYLE):
        figure, axes = grid_of(len(names), 1, width=9.5, height=1.6, sharex=True)
        runs = data.runs[:OVER]
        for place, (axis, name) in enumerate(zip(axes, names, strict=True)):
            for run, colour in zip(runs, _shades(len(runs)), strict=True):
                values = run.y if place < len(data.output_names) else run.w
                assert values is not None
                column = values[:, place if place < len(data.output_names) else place - len(data.output_names)]
                style: dict[str, Any] = {} if place < len(data.output_names) else {"drawstyle": "steps-post"}
                axis.plot(run.ts - run.ts[0], column, color=colour, linewidth=1.0, **style)
            axis.set_ylabel(math_name(name) + subject.unit(name))
        shown = "" if len(runs) == len(data) else f" (the first {OVER})"
        axes[0].set_title(f"{len(data)} runs{shown}, time since the start of each")
        axes[-1].set_xlabel("time" + subject.unit("t", "time"))
    return figure


def one_run(subject: Subject, index: int, findings: Sequence[Finding]) -> "Figure":
    """What was measured in one run, what the physics says by itself, and where something was found."""
    data, run = subject.data, subject.data.runs[index]
    names = (*data.output_names, *data.input_names)
    with matplotlib_of().rc_context(STYLE):
        figure, axes = grid_of(len(names), 1, width=9.5, height=1.6, sharex=True)
        for place, name in enumerate(data.output_names):
            axis, y = axes[place], run.y[:, place]
            _gaps(axis, run.name, findings)
            dots = 3.0 if len(run.ts) < 400 else 1.5
            axis.plot(run.ts, y, ".", color=INK, markersize=dots, label="measured")
            _physics(axis, subject, index, place)
            marked = _places(findings, run.name, name)
            if marked:
                at = run.ts[marked]
                axis.plot(at, y[marked], "o", color=COLOURS[4], mfc="none", markersize=9, label="outlier")
            absent = np.flatnonzero(np.isnan(y))
            if len(absent):
                where = {"transform": axis.get_xaxis_transform(), "color": COLOURS[4], "markersize": 5}
                axis.plot(run.ts[absent], np.zeros(len(absent)), "|", label="missing", **where)
            axis.set_ylabel(math_name(name) + subject.unit(name))
        for place, name in enumerate(data.input_names):
            axis = axes[len(data.output_names) + place]
            assert run.w is not None
            held = subject.given.cell.input_interpolation == "hold"
            axis.plot(run.ts, run.w[:, place], color=GREY, drawstyle="steps-post" if held else "default", label="input")
            axis.set_ylabel(math_name(name) + subject.unit(name))
        axes[0].set_title(f"Run {run.name}")
        axes[-1].set_xlabel("time" + subject.unit("t", "time"))
        _legend(figure, axes)
    return figure


def invariants(subject: Subject) -> "Figure | None":
    """Each constraint along the runs, from the measurements, relative to its scale; None where it cannot be told."""
    if not subject.constrained:
        return None
    told = {row: series for row, series in measured(subject).items() if not isinstance(series, str)}
    if not told:
        return None
    with matplotlib_of().rc_context(STYLE):
        figure, axes = grid_of(len(told), 1, width=9.5, height=2.2, sharex=True)
        for axis, (row, series) in zip(axes, told.items(), strict=True):
            _invariant(axis, series[:OVER])
            axis.set_ylabel(f"g{row} / scale")
        axes[0].set_title(
            "The constraint in the data: it should be zero, but for noise (band: two standard deviations)"
        )
        axes[-1].set_xlabel("time" + subject.unit("t", "time"))
    return figure


def _invariant(axis: "Axes", series: Sequence[Measured]) -> None:
    for each, colour in zip(series, _shades(len(series)), strict=True):
        axis.plot(each.ts - each.ts[0], each.g / each.scale, color=colour, linewidth=1.0)
    noise = float(np.nanmedian([each.noise / each.scale for each in series]))
    if np.isfinite(noise):
        axis.axhspan(-2 * noise, 2 * noise, color=GREY, alpha=0.2, linewidth=0)
    axis.axhline(0, color=GREY, linewidth=0.8)


def _physics(axis: "Axes", subject: Subject, index: int, place: int) -> None:
    """The physics by itself, within reach of what was measured."""
    try:
        _, ys = subject.rolled
    except BlockedError:
        return
    run = subject.data.runs[index]
    measured_y = run.y[:, place]
    low, high = np.nanmin(measured_y), np.nanmax(measured_y)
    room = (high - low) or 1.0
    values = ys[index, : len(run.ts), place]
    inside = np.where((values > low - room) & (values < high + room), values, np.nan)
    axis.plot(run.ts, inside, color=COLOURS[1], linewidth=1.2, label="physics alone", zorder=1)


def _gaps(axis: "Axes", run: str, findings: Sequence[Finding]) -> None:
    for finding in findings:
        for gap in finding.detail.get("gaps", ()) if finding.kind == "gaps" else ():
            if gap["run"] == run:
                axis.axvspan(gap["from"], gap["to"], color=COLOURS[0], alpha=0.18, linewidth=0, label="gap")


def _places(findings: Sequence[Finding], run: str, output: str) -> list[int]:
    return [
        place["sample"]
        for finding in findings
        if finding.kind == "outliers"
        for place in finding.detail.get("places", ())
        if place["run"] == run and place["output"] == output
    ]


def _shades(count: int) -> list[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(count)]


def _legend(figure: "Figure", axes: "Sequence[Axes]") -> None:
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(list(found.values()), list(found), loc="outside upper right", ncols=6)
