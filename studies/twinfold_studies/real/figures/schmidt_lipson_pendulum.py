"""The free run of the pendulum, its energy, and the friction that was learned."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, DASHES, INK, subplots
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Outcome

SPEEDS = np.linspace(-1.5, 1.5, 61)
SHOWN = ("twin", "fitted physics", "black box", "HNN")


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> list[Picture]:
    """Free run and energy over the test part; the law of friction."""
    caption = "Free run over the test part from its first state: angle, and energy 2.4 (1 - cos q) + p^2 (first seed). "
    caption += "Right: friction, with a band of two standard deviations of the linearised posterior."
    title = "Schmidt and Lipson's pendulum"
    return [Picture("schmidt_lipson_pendulum", title, caption, lambda: free_run(records, outcomes))]


def free_run(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    """Angle, energy, friction."""
    record = records["swing"]
    with subplots(1, 3, width=14.0, height=3.4) as (figure, (left, middle, right)):
        shown = {name: outcomes[name][0] for name in SHOWN if name in outcomes}
        start = next(iter(outcomes.values()))[0]["t"][0]
        seen = record["t"] >= start
        recorded = 2.4 * (1 - np.cos(record["theta"])) + record["omega"] ** 2
        left.plot(record["t"][seen], record["theta"][seen], ".", color=INK, label="measured")
        middle.plot(record["t"][seen], recorded[seen], ".", color=INK)
        for index, (name, found) in enumerate(shown.items()):
            style = {"color": COLOURS[index], "linestyle": DASHES[index], "linewidth": 1.3}
            left.plot(found["t"], found["angle"], label=name, **style)
            middle.plot(found["t"], found["energy"], **style)
            if "law" in found:
                right.plot(SPEEDS, found["law"], **style)
        if "band" in shown.get("twin", {}):
            law, band = np.array(shown["twin"]["law"]), np.array(shown["twin"]["band"])
            right.fill_between(SPEEDS, law - 2 * band, law + 2 * band, color=COLOURS[0], alpha=0.2, linewidth=0)
        for axis, x_label, y_label in (
            (left, "time", "angle [rad]"),
            (middle, "time", "energy"),
            (right, "velocity", "friction"),
        ):
            axis.set_xlabel(x_label)
            axis.set_ylabel(y_label)
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=1 + len(shown))
    return figure
