"""The interactive figures of a report, as plain dictionaries that plotly's script draws in the browser."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, GREY, INK, SMALLEST
from twinfold.report._shown import Shown, plain

TWIN, LEFT = COLOURS[1], COLOURS[4]
BAND = "rgba(0, 114, 178, 0.18)"
LINE = "#e3e6eb"
SPLITS = {"train": COLOURS[1], "valid": COLOURS[2], "test": COLOURS[4]}
ROUNDING = 1e-12  # violations below are drawn on one scale
EPOCHS = 1500  # points of a training curve


def label(name: str, units: Mapping[str, str]) -> str:
    """A name with its unit, safe where plotly would read tags."""
    unit = units.get(name, "")
    return html.escape(f"{name} [{unit}]" if unit else name, quote=False)


def layout(height: int, **more: Any) -> dict[str, Any]:
    """What all figures have in common."""
    return {
        "height": height,
        "autosize": True,
        "margin": {"l": 62, "r": 10, "t": 34, "b": 44},
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", "size": 12, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "#ffffff",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "x unified",
        **more,
    }


def axis(title: str, **more: Any) -> dict[str, Any]:
    """One axis."""
    lines = {"gridcolor": LINE, "linecolor": GREY, "zerolinecolor": LINE, "automargin": True}
    return {"title": {"text": title, "standoff": 8}, **lines, **more}


def log_axis(title: str, values: Sequence[float | None]) -> dict[str, Any]:
    """A logarithmic axis with a tick at powers of ten, six or so, where the values span that many."""
    finite = [value for value in values if value is not None and value > 0]
    decades = np.log10(max(finite) / min(finite)) if finite else 0.0
    ticks: dict[str, Any] = {"dtick": max(int(np.ceil(decades / 6)), 1)} if decades > 1.5 else {}
    if finite and max(finite) < ROUNDING:
        # Nothing but rounding: its ups and downs are not worth a closer look.
        ticks = {"dtick": 1, "range": [np.log10(SMALLEST) - 0.5, np.log10(ROUNDING)]}
    return axis(title, type="log", exponentformat="power", **ticks)


def line(name: str, colour: str, **more: Any) -> dict[str, Any]:
    """A line, without its points."""
    style = {"color": colour, "width": 1.8, **more.pop("line", {})}
    return {"type": "scatter", "mode": "lines", "name": name, "line": style, **more}


def output(index: int, name: str, units: Mapping[str, str], *, bands: bool) -> dict[str, Any]:
    """One output of a run over time, measured minus predicted under it; the page fills in the `column` of the run."""
    edge = {"showlegend": False, "hoverinfo": "skip", "line": {"width": 0}}
    band = [
        line("", BAND, column=["low", index], **edge),
        line("all seeds", BAND, column=["high", index], fill="tonexty", fillcolor=BAND)
        | {"line": {"width": 0}, "hoverinfo": "skip"},
    ]
    points = {"color": INK, "size": 3.5, "opacity": 0.5}
    traces = [
        *(band if bands else []),
        line("twin", TWIN, column=["predicted", index], line={"width": 2.4}),
        # Over the line: where the two agree, both are seen.
        {"type": "scatter", "mode": "markers", "name": "measured", "marker": points, "column": ["measured", index]},
        {
            **line("measured - twin", LEFT, column=["left", index], yaxis="y2", showlegend=False),
            "mode": "lines+markers",
            "line": {"color": LEFT, "width": 0.8},
            "marker": {"color": LEFT, "size": 3},
        },
    ]
    axes = {
        "xaxis": axis(_time(units), anchor="y2"),
        "yaxis": axis(label(name, units), domain=[0.36, 1]),
        "yaxis2": axis("difference", domain=[0, 0.27], zerolinecolor=GREY),
    }
    return {"data": traces, "layout": layout(380, **axes)}


def inputs(names: Sequence[str], units: Mapping[str, str], between: str) -> dict[str, Any]:
    """The inputs of a run, one under the other."""
    shape = {"line": {"shape": "hv" if between == "hold" else "linear"}}
    count = len(names)
    traces, axes = [], {}
    for index, name in enumerate(names):
        which = "" if index == 0 else str(index + 1)
        top = 1 - index / count
        axes[f"yaxis{which}"] = axis(label(name, units), domain=[top - 0.86 / count, top])
        traces.append(line(label(name, units), GREY, column=["inputs", index], yaxis=f"y{which}", **shape))
    last = "y" if count == 1 else f"y{count}"
    return {
        "data": traces,
        "layout": layout(60 + 110 * count, xaxis=axis(_time(units), anchor=last), showlegend=False, **axes)
        | {"margin": {"l": 62, "r": 10, "t": 8, "b": 44}},
    }


def violation(shown: Mapping[str, Shown], units: Mapping[str, str]) -> dict[str, Any]:
    """The largest relative violation at each sample, all runs of a split in one colour."""
    traces = []
    for split, each in shown.items():
        t: list[float | None] = []
        values: list[float | None] = []
        step = max(each.predictions.ts.size // 20_000, 1)
        for run, length in enumerate(each.predictions.length):
            largest = each.predictions.relative[0, run, :length].max(axis=-1)
            t += [*plain(each.predictions.ts[run, :length:step], 7), None]
            values += [*plain(np.maximum(largest, SMALLEST)[::step], 3), None]
        traces.append(
            line(split, SPLITS.get(split, GREY), x=t, y=values, opacity=0.7, line={"width": 1}, connectgaps=False)
        )
    axes = {
        "xaxis": axis(_time(units)),
        "yaxis": log_axis("relative violation", [value for each in traces for value in each["y"]]),
    }
    return {"data": traces, "layout": layout(320, **axes, showlegend=True) | {"hovermode": "closest"}}


def training(history: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """Loss and validation score of every seed over the epochs; dotted lines between the stages."""
    loss, score = np.asarray(history["loss"], float), np.asarray(history["score"], float)
    epochs = 1 + np.arange(len(loss))
    keep = np.unique(np.linspace(0, len(loss) - 1, min(EPOCHS, len(loss))).astype(int))
    traces = []
    for place, seed in enumerate(seeds):
        colour = COLOURS[(place + 1) % len(COLOURS)]
        for kind, values, style in (("training", loss, {"width": 1, "dash": "dot"}), ("score", score, {})):
            positive = np.where(values[keep, place] > 0, values[keep, place], np.nan)
            shown = {"x": epochs[keep].tolist(), "y": plain(positive, 5), "showlegend": len(seeds) <= 5}
            traces.append(line(f"seed {seed}, {kind}", colour, line=style, **shown))
    stage = np.asarray(history["stage"])
    stage = stage[:, 0] if stage.ndim == 2 else stage
    edges = (np.flatnonzero(np.diff(stage)) + 1).tolist()
    shapes = [
        {"type": "line", "x0": at + 0.5, "x1": at + 0.5, "y0": 0, "y1": 1, "yref": "paper"}
        | {"line": {"color": GREY, "width": 1, "dash": "dash"}}
        for at in edges
    ]
    notes = [
        {"x": at + 1, "y": 1, "yref": "paper", "text": f"stage {index + 1}", "showarrow": False}
        | {"xanchor": "left", "yanchor": "top", "font": {"color": GREY, "size": 11}}
        for index, at in enumerate([0, *edges])
    ]
    axes = {"xaxis": axis("epoch"), "yaxis": log_axis("loss", [value for each in traces for value in each["y"]])}
    return {"data": traces, "layout": layout(360, **axes, shapes=shapes, annotations=notes if edges else [])}


def _time(units: Mapping[str, str]) -> str:
    return label("time", units)
