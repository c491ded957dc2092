"""The hidden bottle, and the level of the tank."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, DASHES, INK, subplots
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.real.loaders.draining_tank import geometry
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Outcome

GRID = np.arange(3.0, 25.01, 1.0)


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> list[Picture]:
    """The area that was found, and the level of the replicate experiment."""
    pictures = []
    if "twin" in outcomes:
        caption = (
            "Area of the hidden bottle: measured with a tape, and found from the level of the draining tank (median "
        )
        caption += "over seeds, band of two standard deviations of the linearised posterior)."
        pictures.append(Picture("draining_tank_area", "The hidden bottle", caption, lambda: bottle(records, outcomes)))
    caption = "Level of the empty tank in the replicate experiment, predicted from its first 16 s."
    return [*pictures, Picture("draining_tank_level", "The empty tank", caption, lambda: levels(outcomes))]


def bottle(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    """Area over height on the left, the run with the bottle on the right."""
    found, truth = outcomes["twin"], records["bottle"]
    with subplots(1, 2, width=11.0, height=3.6) as (figure, (left, right)):
        area, band = (np.median([each[name] for each in found], axis=0) for name in ("area", "band"))
        left.fill_between(GRID, area - 2 * band, area + 2 * band, color=COLOURS[0], alpha=0.2, linewidth=0)
        left.plot(GRID, area, color=COLOURS[0], label="twin")
        for index, name in enumerate(("fitted physics", "black box"), start=1):
            if name in outcomes:
                other = np.median([each["area"] for each in outcomes[name]], axis=0)
                left.plot(GRID, other, color=COLOURS[index], linestyle=DASHES[index], label=name)
        left.plot(truth["level"], truth["area"], "o", color=INK, markersize=3.5, label="measured")
        left.plot(truth["level"], geometry(records).area(truth["level"]), color="0.6", label="tank")
        left.set_ylim(-5, 140)
        left.set_xlabel("height [cm]")
        left.set_ylabel("area [cm$^2$]")
        left.legend(fontsize=8)
        right.plot(found[0]["t"], found[0]["level"], "o", color=INK, markersize=2.5, label="levels passed")
        right.plot(found[0]["t"], found[0]["fitted"], color=COLOURS[0], label="twin")
        right.set_xlabel("time [s]")
        right.set_ylabel("level with bottle [cm]")
        right.legend(fontsize=8)
    return figure


def levels(outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    """Predictions on the left, their errors on the right."""
    shown = {
        name: found[0]["replicate"]
        for name, found in outcomes.items()
        if name != "persistence" and "replicate" in found[0]
    }
    with subplots(1, 2, width=11.0, height=3.6) as (figure, (left, right)):
        first = next(iter(shown.values()))
        left.plot(first["t"], first["level"], color=INK, linewidth=2.2, label="measured")
        for index, (name, run) in enumerate(shown.items()):
            style = {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)]}
            left.plot(run["t"], run["predicted"], label=name, linewidth=1.3, **style)
            error = np.array(run["predicted"]) - np.array(run["level"])
            right.plot(run["t"], error, linewidth=1.0, **style)
        left.set_ylim(0, 28)
        right.set_ylim(-1.2, 1.2)
        for axis, label in ((left, "level [cm]"), (right, "error [cm]")):
            axis.set_xlabel("time [s]")
            axis.set_ylabel(label)
        left.legend(fontsize=8)
    return figure
