"""The free run of the EMPS drive, and its law of friction."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, DASHES, INK, subplots
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Outcome

SPEEDS = np.linspace(-0.13, 0.13, 105)
SHOWN = ("twin", "twin without drift", "fitted physics", "physics", "black box")


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> list[Picture]:
    """Position and error over the test record; friction over speed."""
    caption = "Free run over the official test record from its first 20 samples: position, and error (first seed)."
    pictures = [Picture("emps_free_run", "EMPS, free run", caption, lambda: free_run(records, outcomes))]
    if "twin" in outcomes:
        caption = (
            "Friction over speed in the middle of the stroke, without the offset: that of the twin with a band of two "
        )
        caption += "standard deviations of the linearised posterior, and of the physics. Right: what the network adds."
        pictures.append(Picture("emps_friction", "EMPS, law of friction", caption, lambda: friction(outcomes)))
    return pictures


def free_run(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    """Position on the left, error on the right."""
    record = records["test"]
    with subplots(1, 2, width=12.0, height=3.6) as (figure, (left, right)):
        left.plot(record["t"], 1000 * record["position"], color=INK, linewidth=2.2, label="measured")
        for index, name in enumerate(name for name in SHOWN if name in outcomes):
            found = outcomes[name][0]
            style = {"color": COLOURS[index], "linestyle": DASHES[index % len(DASHES)], "linewidth": 1.3}
            measured = np.interp(found["t"], record["t"], record["position"])
            left.plot(found["t"], 1000 * np.array(found["position"]), label=name, **style)
            right.plot(found["t"], 1000 * (np.array(found["position"]) - measured), **style)
        left.set_ylim(-50, 320)
        right.set_ylim(-20, 20)
        for axis, label in ((left, "position [mm]"), (right, "error [mm]")):
            axis.set_xlabel("time [s]")
            axis.set_ylabel(label)
        figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return figure


def friction(outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    """The law on the left; on the right, less the straight lines of the fitted physics."""
    found = outcomes["twin"]
    law, band = (np.median([each[name] for each in found], axis=0) for name in ("law", "band"))
    others = {name: np.array(outcomes[name][0]["law"]) for name in ("fitted physics", "physics") if name in outcomes}
    with subplots(1, 2, width=11.0, height=3.6) as (figure, (left, right)):
        reference = next(iter(others.values()), np.zeros_like(law))
        for axis, base in ((left, np.zeros_like(law)), (right, reference)):
            axis.fill_between(SPEEDS, law - 2 * band - base, law + 2 * band - base, color=COLOURS[0], alpha=0.25, lw=0)
            axis.plot(SPEEDS, law - base, color=COLOURS[0], label="twin")
            for index, (name, other) in enumerate(others.items(), start=1):
                axis.plot(SPEEDS, other - base, color=COLOURS[index], linestyle=DASHES[index], label=name)
            axis.set_xlabel("speed [m/s]")
        left.set_ylabel("friction [N]")
        right.set_ylabel("less that of the fitted physics [N]")
        left.legend(fontsize=8)
    return figure
