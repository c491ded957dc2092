"""The temperature in the test cell, and its predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

from twinfold.plot import COLOURS, DASHES, INK, subplots
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Outcome

SHOWN = ("twin", "fitted physics", "black box", "linear state space")


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> list[Picture]:
    caption = "Dots: measured. Lines: free runs over what no model was fitted to; of seeds, all of them."
    return [Picture("building_thermal", "Test cell", caption, lambda: courses(records["cell"], outcomes))]


def courses(record: Mapping[str, Any], outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    with subplots(1, 1, width=8.0, height=3.4) as (figure, axes):
        axis = axes[0]
        axis.plot(record["t"], record["T_in"], ".", color=INK, markersize=4)
        for number, model in enumerate(model for model in SHOWN if model in outcomes):
            for seed, found in enumerate(outcomes[model]):
                t = record["t"][len(record["t"]) - len(found["predicted"]) :]
                style = {"color": COLOURS[number], "linestyle": DASHES[number], "alpha": 0.5 if seed else 1.0}
                axis.plot(t, found["predicted"], label="" if seed else model, **style)
        axis.set(xlabel="time [h]", ylabel="temperature indoors [degC]", ylim=(26, 42))
        figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure
