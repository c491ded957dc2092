"""The course of the five species."""

from collections.abc import Mapping, Sequence
from typing import Any

from twinfold.plot import COLOURS, DASHES, INK, subplots
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.real.loaders.alpha_pinene import SPECIES
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Outcome

SHOWN = ("twin", "black box")


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> list[Picture]:
    """Measured and fitted courses."""
    caption = "Dots: measured weights. Lines: models fitted to all of them, from the fixed start."
    shown = {name: outcomes[name][0] for name in SHOWN if name in outcomes}
    return [Picture("alpha_pinene", "Alpha-pinene", caption, lambda: courses(records["batch"], shown))]


def courses(record: Mapping[str, Any], shown: Mapping[str, Outcome]) -> Any:
    """One panel for each species."""
    with subplots(2, 3, width=11.0, height=2.5) as (figure, axes):
        for index, (axis, name) in enumerate(zip(axes, SPECIES, strict=False)):
            axis.plot(record["t"] / 1000, record[name], "o", color=INK, markersize=4)
            for number, (label, found) in enumerate(shown.items()):
                course = [row[index] for row in found["y"]]
                style = {"color": COLOURS[number], "linestyle": DASHES[number]}
                axis.plot([t / 1000 for t in found["t"]], course, label=label, **style)
            axis.set_title(name.replace("_", "-"))
            axis.set_xlabel("time [1000 min]")
            axis.set_ylabel("weight [%]")
        axes[-1].set_visible(False)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(shown))
    return figure
