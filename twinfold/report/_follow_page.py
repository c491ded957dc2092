"""A page about plants that are followed: measured and predicted values with bands, innovations, parameters, alarms."""

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.follow._history import History, Standing
from twinfold.io import write_text
from twinfold.plot import COLOURS, GREY, INK
from twinfold.report._figures import RESIDUAL, TWIN, axis, band, figure, label, line
from twinfold.report._learned_parts import spread_indices
from twinfold.report._numbers import format_number, json_numbers
from twinfold.report._page import Table, render
from twinfold.report._twin_report import PLOTLY, plotly_script

MAX_POINTS = 2000  # of a line
MAX_ROWS = 500  # of the table of assets
WIDTH = 2.0  # standard deviations of the bands of states and parameters


def write_follow_page(
    folder: str | os.PathLike,
    history: History,
    *,
    title: str,
    outputs: Sequence[str],
    states: Sequence[str],
    parameters: Sequence[str],
    units: Mapping[str, str],
    probability: float,
    false_alarm_rate: float,
    window: int,
) -> Path:
    """Write index.html, which opens offline, and plotly's script beside it.

    **Arguments:** the `folder`; the `history` to show; names and units; the `probability` of the bands of outputs; rate
    and window of the alarms.
    """
    folder = Path(folder)
    if not (folder / PLOTLY).exists():
        write_text(folder / PLOTLY, plotly_script())
    figures = _figures(outputs, states, parameters, units, probability)
    order = sorted(history.shown, key=lambda name: not history.standings[name].alarms)
    runs = [{"name": name, **_columns(history, name, len(outputs), len(states), len(parameters))} for name in order]
    context = {
        "title": title,
        "kind": "twinfold follow",
        "summary": _summary(history),
        "assets": order,
        "omitted": len(history.standings) - len(order),
        "figures": figures if runs else {},
        "band": f"{probability:.0%}",
        "rate": format_number(false_alarm_rate),
        "window": window,
        "events": _event_table(history),
        "table": _asset_table(history.standings),
        "table_omitted": max(len(history.standings) - MAX_ROWS, 0),
        "written": datetime.datetime.now(datetime.UTC).isoformat(sep=" ", timespec="seconds"),
        "plotly": PLOTLY,
    }
    drawn = {key: each for group in context["figures"].values() for key, (_, each) in group.items()}
    data = {"runs": runs, "outputs": drawn, "figures": {}, "choices": {}}
    write_text(folder / "index.html", render("follow.html", **context, data=data))
    return folder / "index.html"


def _figures(
    outputs: Sequence[str], states: Sequence[str], parameters: Sequence[str], units: Mapping[str, str], band_of: float
) -> dict[str, dict[str, tuple[str, dict[str, Any]]]]:
    """The figures by section and key, each with its heading; the script fills in the columns of the chosen asset."""
    return {
        "Measurements": {
            f"output-{index}": (name, _output_figure(index, name, units, band_of)) for index, name in enumerate(outputs)
        },
        "Alarms": {"alarm": ("Score of the innovations", _alarm_figure(units))},
        "Parameters": {
            f"parameter-{index}": (name, _estimate_figure("parameters", index, name, units))
            for index, name in enumerate(parameters)
        },
        "States": {
            f"state-{index}": (name, _estimate_figure("states", index, name, units))
            for index, name in enumerate(states)
        },
    }


def _band(name: str, low: Any, high: Any) -> list[dict[str, Any]]:
    return band({"column": low}, {"column": high}, name)


def _output_figure(index: int, name: str, units: Mapping[str, str], probability: float) -> dict[str, Any]:
    dots = {"type": "scatter", "mode": "markers"}
    limit = {"yaxis": "y2", "showlegend": False, "width": 1.0, "dash": "dash", "hoverinfo": "skip"}
    traces = [
        *_band(f"{probability:.0%} band", ["low", index], ["high", index]),
        line("predicted", TWIN, column=["predicted", index]),
        dots | {"name": "measured", "marker": {"color": INK, "size": 3.5, "opacity": 0.6}, "column": ["used", index]},
        dots
        | {"name": "refused", "marker": {"color": RESIDUAL, "size": 7, "symbol": "x"}, "column": ["refused", index]},
        line("innovation", RESIDUAL, width=0.8, column=["innovation", index], yaxis="y2", showlegend=False)
        | {"mode": "lines+markers", "marker": {"color": RESIDUAL, "size": 3}},
        line("limit", GREY, column=["upper", index], **limit),
        line("limit", GREY, column=["lower", index], **limit),
    ]
    return figure(
        traces,
        396,
        xaxis=axis(label("time", units), anchor="y2"),
        yaxis=axis(label(name, units), domain=[0.38, 1]),
        yaxis2=axis("innovation", domain=[0, 0.28], zerolinecolor=GREY),
    )


def _alarm_figure(units: Mapping[str, str]) -> dict[str, Any]:
    traces = [
        line("score", TWIN, column=["score", 0]),
        line("limit", INK, width=1.2, dash="dash", column=["limit", 0]),
        {"type": "scatter", "mode": "markers", "name": "alarm", "column": ["alarm", 0]}
        | {"marker": {"color": COLOURS[4], "size": 5}},
    ]
    return figure(traces, 300, xaxis=axis(label("time", units)), yaxis=axis("score", rangemode="tozero"))


def _estimate_figure(kind: str, index: int, name: str, units: Mapping[str, str]) -> dict[str, Any]:
    traces = [
        *_band(f"± {WIDTH:g} std", [f"{kind} low", index], [f"{kind} high", index]),
        line("estimate", TWIN, column=[kind, index]),
    ]
    return figure(traces, 300, xaxis=axis(label("time", units)), yaxis=axis(label(name, units)))


def _columns(history: History, name: str, k: int, n: int, q: int) -> dict[str, Any]:
    """The numbers of one asset, by the names that the figures use."""
    rows = history.samples(name)
    rows = rows[spread_indices(len(rows), MAX_POINTS)]
    at = 1 + 6 * k
    outputs = rows[:, 1:at].reshape(-1, k, 6).transpose(2, 1, 0)
    states = rows[:, at : at + 2 * n].reshape(-1, n, 2).transpose(2, 1, 0)
    parameters = rows[:, at + 2 * n : at + 2 * (n + q)].reshape(-1, q, 2).transpose(2, 1, 0)
    score, limit = rows[:, at + 2 * (n + q) + 1], rows[:, at + 2 * (n + q) + 2]
    accepted, alarm = rows[:, -1 - k : -1].T > 0, rows[:, -1] > 0
    measured, predicted, low, high, innovation, _ = outputs
    found = {
        "used": np.where(accepted, measured, np.nan),
        "refused": np.where(accepted, np.nan, measured),
        "predicted": predicted,
        "low": low,
        "high": high,
        "innovation": innovation,
        "upper": high - predicted,
        "lower": low - predicted,
        "score": score[None],
        "limit": limit[None],
        "alarm": np.where(alarm, score, np.nan)[None],
    }
    for kind, (values, std) in (("states", states), ("parameters", parameters)):
        found |= {kind: values, f"{kind} low": values - WIDTH * std, f"{kind} high": values + WIDTH * std}
    columns = {key: [json_numbers(row, 6) for row in values] for key, values in found.items()}
    return {"t": json_numbers(rows[:, 0], 12), **columns}


def _summary(history: History) -> list[str]:
    standings = history.standings.values()
    now = [name for name, each in history.standings.items() if each.alarm]
    samples, refused = sum(each.samples for each in standings), sum(each.refused for each in standings)
    alarms = sum(each.alarms for each in standings)
    listed = ", ".join(now[:5]) + (f" and {len(now) - 5} more" if len(now) > 5 else "")
    return [
        f"{samples} samples of {len(standings)} assets; {refused} of them with a value that was refused.",
        f"Alarms now: {listed}." if now else "No alarm now.",
        f"{alarms} alarms were raised in all." if alarms != 1 else "One alarm was raised in all.",
    ]


def _event_table(history: History) -> Table | None:
    if not history.events:
        return None
    rows = [[name, f"{t:.9g}", *map(format_number, numbers)] for name, t, *numbers in reversed(history.events)]
    return Table(["asset", "time", "score", "limit"], rows)


def _asset_table(standings: Mapping[str, Standing]) -> Table:
    order = sorted(standings, key=lambda name: (not standings[name].alarm, not standings[name].alarms))[:MAX_ROWS]
    rows = []
    for name in order:
        each = standings[name]
        scores = [format_number(each.score), format_number(each.limit)]
        counts = [each.samples, each.refused, each.faults, each.alarms]
        rows.append([name, "ALARM" if each.alarm else "", *scores, f"{each.last:.9g}", *counts, each.message])
    columns = [
        "asset",
        "now",
        "score",
        "limit",
        "last time",
        "samples",
        "refused",
        "without estimate",
        "alarms",
        "last message",
    ]
    return Table(columns, rows)
