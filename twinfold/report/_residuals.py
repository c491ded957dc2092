"""The section on residuals of a report: is what the twin leaves over white, and does it still follow an input?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.identify import ResidualCorrelations, correlate_residual
from twinfold.plot import COLOURS, GREY, INK
from twinfold.report._figures import axis, figure, label, line
from twinfold.report._metrics import SPLITS
from twinfold.report._numbers import json_numbers
from twinfold.report._predictions import SplitPredictions

UNEQUAL = 0.01  # relative to the usual step: lags in samples mean nothing where steps differ by more
MAX_PANELS = 3  # inputs that are drawn for an output


@dataclass(frozen=True, eq=False)
class ResidualTest:
    """The correlations of the residual of each output, of one run; `skipped`: why there are none."""

    run: str
    split: str
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    correlations: tuple[ResidualCorrelations, ...] = ()
    skipped: str = ""


def examine_residuals(splits: Mapping[str, SplitPredictions]) -> ResidualTest | None:
    """Test the residual of the longest run that was held out; of a training run if none was. None without runs."""
    split = next((name for name in ("test", "valid", "train") if name in splits), None)
    if split is None:
        return None
    each = splits[split]
    run = int(np.argmax(each.predictions.length))
    source, length = each.data.runs[run], int(each.predictions.length[run])
    steps = np.diff(source.ts)
    if np.ptp(steps) > UNEQUAL * np.median(steps):
        return ResidualTest(source.name, split, skipped="its steps are not equal")
    found: dict[str, ResidualCorrelations] = {}
    for index, name in enumerate(each.data.output_names):
        try:
            # From the second sample on: at the first, the residual may be zero by construction.
            w = None if source.w is None else source.w[1:]
            found[name] = correlate_residual(each.residual[run, 1:length, index], w)
        except ValueError:
            continue
    if not found:
        return ResidualTest(source.name, split, skipped="it has too few measured values")
    return ResidualTest(source.name, split, tuple(found), each.data.input_names, tuple(found.values()))


def describe_residuals(test: ResidualTest) -> list[str]:
    """What the correlations say, in one plain sentence for each output."""
    run = f"the {SPLITS.get(test.split, test.split)} run '{test.run}'"
    if test.skipped:
        return [f"The residual of {run} was not tested: {test.skipped}."]
    return [_sentence(name, run, each, test.inputs) for name, each in zip(test.outputs, test.correlations, strict=True)]


def _sentence(output: str, run: str, found: ResidualCorrelations, inputs: Sequence[str]) -> str:
    start = f"On {run}, the residual of {output}"
    followed = " and ".join(inputs[index] for index in found.follows)
    leftover = (
        f"is correlated with {followed}, so the output still follows it in a way that the twin does not: a delay, a "
        "gain or dynamics of this input are missing"
    )
    if found.is_white:
        if followed:
            return f"{start} {leftover}."
        independent = " and not correlated with the inputs" if inputs else ""
        return (
            f"{start} is white{independent}, as far as 99 % confidence can tell: it shows nothing that the twin misses."
        )
    size = float(np.abs(found.auto.values).max())
    coloured = f"is not white (correlation up to {size:.2f} between samples, {found.auto.limit:.2f} by chance)"
    if followed:
        return f"{start} {coloured}, and {leftover}."
    cause = "dynamics are missing, the start is wrong, or disturbances act on the states"
    also = ", but no correlation with the inputs can be shown" if inputs else ""
    return f"{start} {coloured}{also}: {cause}."


def residual_figures(test: ResidualTest) -> dict[str, tuple[str, dict[str, Any]]]:
    """For each output by key, its name and a figure: correlation with itself, and with each input."""
    names = test.inputs[:MAX_PANELS]
    return {
        f"residual-{index}": (name, _figure(found, names))
        for index, (name, found) in enumerate(zip(test.outputs, test.correlations, strict=True))
    }


def _figure(found: ResidualCorrelations, inputs: Sequence[str]) -> dict[str, Any]:
    labels = [f"input {label(name, {})}" for name in inputs]
    panels = [("the residual itself", found.auto), *zip(labels, found.inputs, strict=False)]
    traces: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    width = 1 / len(panels)
    for index, (title, each) in enumerate(panels):
        suffix = "" if index == 0 else str(index + 1)
        places = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": index == 0}
        ends = [float(each.lags[0]) - 0.5, float(each.lags[-1]) + 0.5]
        shaded = {"x": [*ends, *ends[::-1]], "y": [each.band, each.band, -each.band, -each.band]}
        fill = {"fill": "toself", "fillcolor": "rgba(0, 114, 178, 0.14)", "hoverinfo": "skip"}
        traces.append(line("99 % at one lag", "rgba(0, 114, 178, 0)", width=0.0, **shaded, **fill, **places))
        outer = {"x": [*ends, None, *ends], "y": [each.limit, each.limit, None, -each.limit, -each.limit]}
        traces.append(line("99 % at all lags together", GREY, width=1.0, dash="dot", **outer, **places))
        outside = np.isin(each.lags, each.significant)
        colours = [COLOURS[4] if beyond else INK for beyond in outside]
        bars = {"x": each.lags.tolist(), "y": json_numbers(each.values, 4), "width": 0.5}
        traces.append({"type": "bar", "name": "correlation", "marker": {"color": colours}, **bars, **places})
        domain = [index * width + (0.04 if index else 0), (index + 1) * width - 0.02]
        layout[f"xaxis{suffix}"] = axis(f"lag [samples], with {title}", domain=domain, anchor=f"y{suffix}")
        layout[f"yaxis{suffix}"] = axis("correlation" if index == 0 else "", anchor=f"x{suffix}")
    return figure(traces, 330, hovermode="closest", bargap=0.4, **layout)
