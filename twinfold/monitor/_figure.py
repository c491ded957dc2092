"""The figure of a watch: the running score and its limit, window by window, and the largest change."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.plot import COLOURS, GREY, INK, subplots
from twinfold.plot._style import plain_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_scores(rows: Sequence[Mapping[str, Any]], false_alarm_rate: float) -> "Figure":
    """Draw scores, limit and alarms over the windows; below, the largest change and its feature.

    **Arguments:** `rows` of a watch; the stated `false_alarm_rate`.
    """
    number = np.arange(len(rows))
    alarm = np.array([row["alarm"] for row in rows], bool)
    columns = {name: np.array([row[name] for row in rows], float) for name in ("score", "running", "limit", "change")}
    with subplots(2, 1, width=9.5, height=2.6, sharex=True) as (figure, axes):
        top, below = axes
        top.plot(number, columns["score"], ".", color=GREY, markersize=4, label="single window")
        top.plot(number, columns["running"], color=COLOURS[1], label="running score")
        top.plot(
            number,
            columns["limit"],
            "--",
            color=INK,
            linewidth=1.2,
            label=f"limit ({false_alarm_rate:.2g} false alarms per window)",
        )
        top.plot(number[alarm], columns["running"][alarm], "o", color=COLOURS[4], markersize=4, label="alarm")
        absent = np.flatnonzero(np.isnan(columns["score"]))
        if len(absent):
            where = {"transform": top.get_xaxis_transform(), "color": COLOURS[4]}
            top.plot(absent, np.zeros(len(absent)), "x", markersize=6, label="not judged", **where)
        top.set_ylabel("score")
        largest = np.nanmax(columns["limit"], initial=1.0)
        if np.nanmax(columns["running"], initial=0.0) > 20 * largest:
            top.set_yscale("symlog", linthresh=largest)
        points = []
        changed = list(dict.fromkeys(row["changed"] for row in rows if row["changed"]))
        for index, name in enumerate(changed):
            mine = np.array([row["changed"] == name for row in rows])
            colour = COLOURS[index % len(COLOURS)]
            points += below.plot(number[mine], columns["change"][mine], "o", color=colour, markersize=3.5)
        below.axhline(0, color=GREY, linewidth=0.8)
        below.set_ylabel("largest change\n[healthy sd]")
        below.set_xlabel("window")
        for k in [k for k in range(1, len(rows)) if rows[k]["run"] != rows[k - 1]["run"]]:
            for axis in axes:
                axis.axvline(k - 0.5, color=GREY, linewidth=0.6, linestyle=":")
        place: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5), "fontsize": 8.5}
        top.legend(**place)
        # With its labels: a legend leaves out the label of a line that begins with an underscore.
        below.legend(points, [plain_label(name) for name in changed], **place)
    return figure
