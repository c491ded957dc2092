"""Curves and heat maps of what was learned: coloured where data are near, grey where it is extrapolation."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, GREY
from twinfold.report._figures import BAND, LINE, TWIN, axis, label, layout, line
from twinfold.report._learned import Curve, Learned, Surface
from twinfold.report._shown import plain

BEYOND = "rgba(122, 127, 137, 0.16)"
SIGNED = [[0, COLOURS[1]], [0.5, "#ffffff"], [1, COLOURS[4]]]
SPREAD = [[0, "#ffffff"], [1, COLOURS[3]]]
VEIL = [[0, "#a9aeb6"], [1, "#a9aeb6"]]
BINS = 40
DOTS = 400


def figures(found: Learned, output: int, units: Mapping[str, str]) -> list[dict[str, Any]]:
    """All figures of one output of a learned part: the surface and its spread over seeds, then the curves."""
    drawn = []
    if found.surface is not None:
        drawn.append(_surface(found, found.surface, output, units, spread=False))
        if found.surface.spread is not None:
            drawn.append(_surface(found, found.surface, output, units, spread=True))
    return drawn + [_curve(found, curve, output, units) for curve in found.curves]


def stretches(at: np.ndarray, known: np.ndarray) -> list[tuple[float, float]]:
    """Where the places `at` are not known, from one known place to the next."""
    found, start = [], None if known[0] else 0
    for index in range(1, len(at)):
        if known[index - 1] and not known[index]:
            start = index - 1
        elif start is not None and known[index]:
            found.append((float(at[start]), float(at[index])))
            start = None
    return found if start is None else [*found, (float(at[start]), float(at[-1]))]


def _curve(found: Learned, curve: Curve, output: int, units: Mapping[str, str]) -> dict[str, Any]:
    part, x = found.part, plain(curve.at, 7)
    values = curve.values[:, output]
    traces = []
    if curve.low is not None and curve.high is not None:
        band = {"hoverinfo": "skip", "x": x}
        low, high = (plain(each[:, output], 6) for each in (curve.low, curve.high))
        traces.append(line("", BAND, y=low, showlegend=False, **band) | {"line": {"width": 0}})
        traces.append(line("all seeds", BAND, y=high, fill="tonexty", fillcolor=BAND, **band) | {"line": {"width": 0}})
    outside = np.where(_touching(curve.known), values, np.nan)
    dotted = {"dash": "dot", "width": 1.4}
    traces.append(line("extrapolated", GREY, x=x, y=plain(outside, 6), line=dotted, connectgaps=False))
    inside = plain(np.where(curve.known, values, np.nan), 6)
    traces.append(line("learned", TWIN, x=x, y=inside, line={"width": 2.4}, connectgaps=False))
    counts, edges = np.histogram(part.seen[:, curve.input], bins=BINS)
    bars = {"color": GREY, "opacity": 0.55}
    traces.append(
        {"type": "bar", "x": plain((edges[1:] + edges[:-1]) / 2, 6), "y": counts.tolist(), "yaxis": "y2"}
        | {"name": "samples", "marker": bars, "showlegend": False, "width": float(edges[1] - edges[0])}
    )
    shapes = [
        {"type": "rect", "x0": a, "x1": b, "y0": 0, "y1": 1, "yref": "paper", "fillcolor": BEYOND, "line": {"width": 0}}
        | {"layer": "below", "name": "extrapolation"}
        for a, b in stretches(curve.at, curve.known)
    ]
    axes = {
        "xaxis": axis(label(part.sees[curve.input], units), anchor="y2", range=[x[0], x[-1]], zeroline=False),
        "yaxis": axis(label(part.gives[output], units), domain=[0.2, 1], zerolinecolor=GREY),
        "yaxis2": axis("data", domain=[0, 0.14], showticklabels=False, showgrid=False),
    }
    return {"data": traces, "layout": layout(340, **axes, shapes=shapes, bargap=0)}


def _touching(known: np.ndarray) -> np.ndarray:
    """Unknown places and their known neighbours, so that the lines meet."""
    unknown = ~known
    return unknown | np.append(unknown[1:], False) | np.append(False, unknown[:-1])


def _surface(
    found: Learned, surface: Surface, output: int, units: Mapping[str, str], *, spread: bool
) -> dict[str, Any]:
    part = found.part
    first, second = surface.inputs
    source = surface.spread if spread and surface.spread is not None else surface.values
    z = source[:, :, output]
    # The colours are for where data are: an extrapolation may be as large as it likes.
    known = np.abs(z[surface.known])
    top = float(known.max()) if known.size and known.max() > 0 else 1.0
    x, y = plain(surface.x, 6), plain(surface.y, 6)
    names = [label(part.sees[index], units) for index in surface.inputs]
    title = label(part.gives[output], units)
    bar = {"thickness": 10, "len": 0.9, "outlinewidth": 0, "tickfont": {"size": 11}}
    hover = f"{names[0]} %{{x:.4g}}<br>{names[1]} %{{y:.4g}}<br>%{{z:.4g}}<extra></extra>"
    scale = {"colorscale": SPREAD if spread else SIGNED, "zmin": 0.0 if spread else -top, "zmax": top}
    dots = part.seen[np.unique(np.linspace(0, len(part.seen) - 1, min(DOTS, len(part.seen))).astype(int))]
    traces = [
        {"type": "heatmap", "x": x, "y": y, "z": [plain(row, 5) for row in z], "name": "learned"}
        | {**scale, "colorbar": bar, "hovertemplate": hover},
        {"type": "heatmap", "x": x, "y": y, "z": [[None if k else 1 for k in row] for row in surface.known.tolist()]}
        | {"name": "extrapolation", "colorscale": VEIL, "opacity": 0.88, "showscale": False, "hoverinfo": "skip"},
        {"type": "scatter", "mode": "markers", "x": plain(dots[:, first], 5), "y": plain(dots[:, second], 5)}
        | {"name": "samples", "hoverinfo": "skip", "marker": {"color": "#1f2430", "size": 2.5, "opacity": 0.35}},
    ]
    above = f"± over seeds: {title}" if spread else title
    axes = {
        "xaxis": axis(names[0], range=[x[0], x[-1]], gridcolor=LINE, zeroline=False),
        "yaxis": axis(names[1], range=[y[0], y[-1]], gridcolor=LINE, zeroline=False),
        "title": {"text": above, "font": {"size": 13}, "x": 0, "xref": "paper", "y": 0.97},
    }
    return {"data": traces, "layout": layout(360, **axes, showlegend=False) | {"hovermode": "closest"}}
