"""The pelts of lynx and hare, and their predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, DASHES, INK, subplots
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Outcome

SHOWN = ("twin", "fitted physics", "black box", "constant")


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> list[Picture]:
    caption = "Dots: pelts. Lines: models fitted to what is left of the vertical line; of seeds, all of them."
    return [Picture("lynx_hare", "Lynx and hare", caption, lambda: courses(records["pelts"], outcomes))]


def courses(record: Mapping[str, Any], outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    with subplots(1, 2, width=10.0, height=3.2) as (figure, axes):
        for index, (axis, name) in enumerate(zip(axes, ("hare", "lynx"), strict=True)):
            axis.plot(1900 + record["t"], record[name], "o", color=INK, markersize=4)
            for number, model in enumerate(model for model in SHOWN if model in outcomes):
                for seed, found in enumerate(outcomes[model]):
                    course = np.exp(np.array(found["predicted"])[:, index])
                    style = {"color": COLOURS[number], "linestyle": DASHES[number], "alpha": 0.5 if seed else 1.0}
                    axis.plot(1900 + record["t"], course, label="" if seed else model, **style)
            axis.axvline(1913, color=INK, linewidth=0.5)
            axis.set_xticks(range(1900, 1921, 5))
            axis.set(title=name, xlabel="year", ylabel="thousands of pelts", ylim=(0, 120))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure
