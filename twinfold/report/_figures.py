"""The interactive figures of runs and training, as dictionaries that plotly's script draws in the browser."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, GREY, INK, LOG_FLOOR
from twinfold.plot._training import positive, stage_starts
from twinfold.report._learned_parts import spread_indices
from twinfold.report._metrics import SPLITS
from twinfold.report._numbers import json_numbers
from twinfold.report._predictions import SplitPredictions

TWIN, RESIDUAL, BAND = COLOURS[1], COLOURS[4], "rgba(0, 114, 178, 0.18)"
UNCERTAIN = "rgba(31, 36, 48, 0.12)"  # of a band that is not that of the seeds, around it
SPLIT_COLOURS = {"train": COLOURS[1], "valid": COLOURS[2], "test": COLOURS[4]}
ROUNDING = 1e-12  # violations that are all smaller share one scale
MAX_EPOCHS = 1500  # points of a training curve
MAX_VIOLATIONS = 20_000  # points of each split


def label(name: str, units: Mapping[str, str]) -> str:
    """A name with its unit, escaped because plotly interprets tags in labels."""
    unit = units.get(name, "")
    return html.escape(f"{name} [{unit}]" if unit else name, quote=False)


def figure(traces: Sequence[Mapping[str, Any]], height: int, **layout: Any) -> dict[str, Any]:
    """A figure: its traces and its layout. The style that all figures share is set by the script of the page."""
    return {"data": traces, "layout": {"height": height, **layout}}


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": title}, **options}


def line(name: str, colour: str, *, width: float = 1.8, dash: str = "solid", **options: Any) -> dict[str, Any]:
    """A line without markers."""
    style = {"color": colour, "width": width, "dash": dash}
    return {"type": "scatter", "mode": "lines", "name": name, "line": style, **options}


def band(
    low: Mapping[str, Any], high: Mapping[str, Any], name: str = "all seeds", colour: str = BAND, **options: Any
) -> list[dict[str, Any]]:
    """The band between two lines, given by their data; `options` of both."""
    edge = {"width": 0.0, "hoverinfo": "skip"} | options
    return [
        line("", colour, **edge | {"showlegend": False}, **low),
        line(name, colour, fill="tonexty", fillcolor=colour, **edge, **high),
    ]


def output_figure(
    index: int, name: str, units: Mapping[str, str], *, bands: bool, probability: float | None = None
) -> dict[str, Any]:
    """One output of a run over time, with the residual below; the script fills in the `column` of the chosen run.

    `bands` of the seeds, and the one that contains a measurement with a `probability`.
    """
    markers = {"type": "scatter", "mode": "markers", "name": "measured"}
    traces = [
        *([] if probability is None else _uncertainty(index, probability)),
        *(band({"column": ["low", index]}, {"column": ["high", index]}) if bands else []),
        line("twin", TWIN, width=2.4, column=["predicted", index]),
        # After the line, so that both are visible where they agree.
        markers | {"marker": {"color": INK, "size": 3.5, "opacity": 0.5}, "column": ["measured", index]},
        line("measured - twin", RESIDUAL, width=0.8, column=["residual", index], yaxis="y2", showlegend=False)
        | {"mode": "lines+markers", "marker": {"color": RESIDUAL, "size": 3}},
    ]
    return figure(
        traces,
        396,
        xaxis=axis(label("time", units), anchor="y2"),
        yaxis=axis(label(name, units), domain=[0.36, 1]),
        yaxis2=axis("residual", domain=[0, 0.27], zerolinecolor=GREY),
    )


def _uncertainty(index: int, probability: float) -> list[dict[str, Any]]:
    """The band that contains a measurement with this probability, around the prediction and around the residual."""
    name, below = f"{100 * probability:.3g} % band", {"yaxis": "y2", "showlegend": False}
    return [
        *band({"column": ["lower", index]}, {"column": ["upper", index]}, name, UNCERTAIN),
        *band({"column": ["lower residual", index]}, {"column": ["upper residual", index]}, name, UNCERTAIN, **below),
    ]


def input_figure(names: Sequence[str], units: Mapping[str, str], interpolation: str) -> dict[str, Any]:
    """The inputs of a run, one below the other."""
    count = len(names)
    suffixes = ["", *(str(number) for number in range(2, count + 1))]
    traces, axes = [], {}
    for index, (name, suffix) in enumerate(zip(names, suffixes, strict=True)):
        top = 1 - index / count
        axes[f"yaxis{suffix}"] = axis(label(name, units), domain=[top - 0.86 / count, top])
        trace = line(label(name, units), GREY, column=["inputs", index], yaxis=f"y{suffix}")
        trace["line"]["shape"] = "hv" if interpolation == "hold" else "linear"
        traces.append(trace)
    axes["xaxis"] = axis(label("time", units), anchor=f"y{suffixes[-1]}")
    return figure(traces, 96 + 110 * count, showlegend=False, **axes)


def violation_figure(splits: Mapping[str, SplitPredictions], units: Mapping[str, str]) -> dict[str, Any]:
    """The largest relative violation at each sample, all runs of a split in one colour."""
    traces = []
    for split, each in splits.items():
        t: list[float | None] = []
        values: list[float | None] = []
        step = max(each.predictions.ts.size // MAX_VIOLATIONS, 1)
        for run, length in enumerate(each.predictions.length):
            largest = each.predictions.relative_violation[0, run, :length:step].max(axis=-1)
            t += [*json_numbers(each.predictions.ts[run, :length:step], 7), None]
            values += [*json_numbers(np.maximum(largest, LOG_FLOOR), 3), None]
        name, colour = SPLITS.get(split, split), SPLIT_COLOURS.get(split, GREY)
        traces.append(line(name, colour, width=1.0, x=t, y=values, opacity=0.7, connectgaps=False))
    return figure(
        traces,
        336,
        xaxis=axis(label("time", units)),
        yaxis=_log_axis("relative violation", traces),
        showlegend=True,
        hovermode="closest",
    )


def training_figure(history: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Training loss and score of every seed over the epochs; vertical lines between the stages."""
    chosen = spread_indices(len(history["loss"]), MAX_EPOCHS)
    curves = (("training", "loss", {"width": 1.0, "dash": "dot"}), ("score", "score", {}))
    traces = []
    for place, seed in enumerate(seeds):
        colour = COLOURS[(place + 1) % len(COLOURS)]
        for kind, key, style in curves:
            values = json_numbers(positive(np.asarray(history[key], float)[chosen, place]), 5)
            points = {"x": (1 + chosen).tolist(), "y": values, "showlegend": len(seeds) <= 5}
            traces.append(line(f"seed {seed}, {kind}", colour, **style, **points))
    starts = stage_starts(history)
    edges = [{"x0": start + 0.5, "x1": start + 0.5, "y0": 0, "y1": 1, "yref": "paper"} for start in starts[1:]]
    notes = [{"x": start + 1, "y": 1, "yref": "paper", "text": f"stage {i}"} for i, start in enumerate(starts, start=1)]
    edge_style = {"type": "line", "line": {"color": GREY, "width": 1, "dash": "dash"}}
    note_style = {"showarrow": False, "xanchor": "left", "yanchor": "top", "font": {"color": GREY, "size": 11}}
    return figure(
        traces,
        376,
        xaxis=axis("epoch"),
        yaxis=_log_axis("loss", traces),
        shapes=[edge | edge_style for edge in edges],
        annotations=[note | note_style for note in notes] if edges else [],
    )


def _log_axis(title: str, traces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A logarithmic axis with ticks at about six powers of ten, if the values span that many."""
    values = [value for trace in traces for value in trace["y"] if value is not None and value > 0]
    decades = np.log10(max(values) / min(values)) if values else 0.0
    ticks: dict[str, Any] = {"dtick": max(int(np.ceil(decades / 6)), 1)} if decades > 1.5 else {}
    if values and max(values) < ROUNDING:
        # Only rounding errors: a closer look at their variation would mislead.
        ticks = {"dtick": 1, "range": [np.log10(LOG_FLOOR) - 0.5, np.log10(ROUNDING)]}
    return axis(title, type="log", exponentformat="power", **ticks)
