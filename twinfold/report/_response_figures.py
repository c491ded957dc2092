"""Interactive figures of learned parts: in colour where training data support them, grey where they extrapolate.

Dashed lines are the ends of the region beyond which a part fades or holds its value."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, GREY, INK
from twinfold.report._figures import TWIN, axis, band, figure, label, line
from twinfold.report._learned_parts import LearnedPart, spread_indices
from twinfold.report._numbers import json_numbers
from twinfold.report._responses import Curve, Response, Surface

EXTRAPOLATION = "rgba(122, 127, 137, 0.16)"
SIGNED_SCALE = [[0, COLOURS[1]], [0.5, "#ffffff"], [1, COLOURS[4]]]
SPREAD_SCALE = [[0, "#ffffff"], [1, COLOURS[3]]]
VEIL_SCALE = [[0, "#a9aeb6"], [1, "#a9aeb6"]]
BINS = 40
MAX_MARKERS = 400


def response_figures(response: Response, output: int, units: Mapping[str, str]) -> list[dict[str, Any]]:
    """All figures of one output of a learned part: the surface, its spread over the seeds, the curves."""
    part, surface = response.part, response.surface
    drawn = [] if surface is None else [_surface_figure(part, surface, output, units, spread=False)]
    if surface is not None and surface.spread is not None:
        drawn.append(_surface_figure(part, surface, output, units, spread=True))
    return drawn + [_curve_figure(part, curve, output, units) for curve in response.curves]


def unsupported_intervals(x: np.ndarray, supported: np.ndarray) -> list[tuple[float, float]]:
    """The intervals between supported points, and those at the ends, where the points `x` are not supported."""
    edges = np.diff(np.concatenate([[True], supported, [True]]).astype(int))
    starts, stops = np.flatnonzero(edges < 0) - 1, np.flatnonzero(edges > 0)
    last = len(x) - 1
    return [(float(x[max(a, 0)]), float(x[min(b, last)])) for a, b in zip(starts, stops, strict=True)]


def _curve_figure(part: LearnedPart, curve: Curve, output: int, units: Mapping[str, str]) -> dict[str, Any]:
    x, values, supported = json_numbers(curve.x, 7), curve.values[:, output], curve.supported
    traces = []
    if curve.low is not None and curve.high is not None:
        low, high = ({"x": x, "y": json_numbers(each[:, output], 6)} for each in (curve.low, curve.high))
        traces += band(low, high)
    # Unsupported points and their supported neighbours, so that the two lines meet.
    outside = np.convolve(~supported, [True, True, True], mode="same")
    extrapolated, learned = (json_numbers(np.where(m, values, np.nan), 6) for m in (outside, supported))
    traces += [
        line("extrapolated", GREY, x=x, y=extrapolated, connectgaps=False, dash="dot", width=1.4),
        line("learned", TWIN, x=x, y=learned, connectgaps=False, width=2.4),
    ]
    counts, edges = np.histogram(part.samples[:, curve.input], bins=BINS)
    traces.append(
        {"type": "bar", "x": json_numbers((edges[1:] + edges[:-1]) / 2, 6), "y": counts.tolist(), "yaxis": "y2"}
        | {"name": "samples", "marker": {"color": GREY, "opacity": 0.55}, "showlegend": False}
        | {"width": float(edges[1] - edges[0])}
    )
    shapes = [
        {"type": "rect", "x0": a, "x1": b, "y0": 0, "y1": 1, "yref": "paper", "fillcolor": EXTRAPOLATION}
        | {"line": {"width": 0}, "layer": "below", "name": "extrapolation"}
        for a, b in unsupported_intervals(curve.x, supported)
    ]
    if part.region is not None:
        shapes += [
            {"type": "line", "x0": end, "x1": end, "y0": 0, "y1": 1, "yref": "paper", "name": "region"}
            | {"line": {"color": GREY, "width": 1, "dash": "dash"}}
            for end in part.region[:, curve.input].tolist()
            if curve.x[0] < end < curve.x[-1]
        ]
    return figure(
        traces,
        356,
        xaxis=axis(label(part.inputs[curve.input], units), anchor="y2", range=[x[0], x[-1]], zeroline=False),
        yaxis=axis(label(part.outputs[output], units), domain=[0.2, 1], zerolinecolor=GREY),
        yaxis2=axis("data", domain=[0, 0.14], showticklabels=False, showgrid=False),
        shapes=shapes,
        bargap=0,
    )


def _surface_figure(
    part: LearnedPart, surface: Surface, output: int, units: Mapping[str, str], *, spread: bool
) -> dict[str, Any]:
    source = surface.spread if spread and surface.spread is not None else surface.values
    z = source[:, :, output]
    # The colour scale is that of the supported points: extrapolated values can be arbitrarily large.
    size = np.abs(z[surface.supported])
    top = float(size.max()) if size.size and size.max() > 0 else 1.0
    grid = {"type": "heatmap", "x": json_numbers(surface.x, 6), "y": json_numbers(surface.y, 6)}
    names = [label(part.inputs[index], units) for index in surface.inputs]
    title = label(part.outputs[output], units)
    samples = part.samples[spread_indices(len(part.samples), MAX_MARKERS)][:, list(surface.inputs)]
    x, y = (json_numbers(column, 5) for column in samples.T)
    traces = [
        grid
        | {"name": "learned", "z": [json_numbers(row, 5) for row in z], "zmin": 0.0 if spread else -top, "zmax": top}
        | {"colorscale": SPREAD_SCALE if spread else SIGNED_SCALE}
        | {"colorbar": {"thickness": 10, "len": 0.9, "outlinewidth": 0, "tickfont": {"size": 11}}}
        | {"hovertemplate": f"{names[0]} %{{x:.4g}}<br>{names[1]} %{{y:.4g}}<br>%{{z:.4g}}<extra></extra>"},
        grid
        | {"name": "extrapolation", "z": [[None if each else 1 for each in row] for row in surface.supported.tolist()]}
        | {"colorscale": VEIL_SCALE, "opacity": 0.88, "showscale": False, "hoverinfo": "skip"},
        {"type": "scatter", "mode": "markers", "x": x, "y": y, "name": "samples", "hoverinfo": "skip"}
        | {"marker": {"color": INK, "size": 2.5, "opacity": 0.35}},
    ]
    text = f"± over seeds: {title}" if spread else title
    return figure(
        traces,
        376,
        xaxis=axis(names[0], range=[grid["x"][0], grid["x"][-1]], zeroline=False),
        yaxis=axis(names[1], range=[grid["y"][0], grid["y"][-1]], zeroline=False),
        title={"text": text, "font": {"size": 13}, "x": 0, "xref": "paper", "y": 0.97},
        showlegend=False,
        hovermode="closest",
    )
