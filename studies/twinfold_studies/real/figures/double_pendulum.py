"""Free runs of double pendulums in angles, and the learned friction of their joints with its band."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import twinfold as tw
from twinfold.plot import COLOURS, DASHES, INK, subplots
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.real.free_runs import SEEN
from twinfold_studies.real.task import Outcome

SHOWN = ("twin", "fitted physics", "black box")


def draw_runs(
    name: str, title: str, runs: Sequence[tw.Run], outcomes: Mapping[str, Sequence[Outcome]], unit: str = "1/s^2"
) -> list[Picture]:
    """Predictions of the first free runs, and the friction of both joints where there is a twin."""
    found = [
        Picture(
            f"{name}_runs",
            f"{title}: free runs",
            "The second angle in four free runs; dots: measured. The start is estimated from what is left of the line.",
            lambda: courses(runs, outcomes),
        )
    ]
    if "twin" in outcomes and "friction" in outcomes["twin"][0]:
        found.append(
            Picture(
                f"{name}_friction",
                f"{title}: friction of the joints",
                "Resisting torque while the other joint is at rest: median of the seeds, and two standard deviations "
                "of one of them; grey: the range over the seeds.",
                lambda: friction(outcomes["twin"], outcomes["twin"][0]["rates"], unit),
            )
        )
    return found


def courses(runs: Sequence[tw.Run], outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    with subplots(2, 2, width=11.0, height=2.6) as (figure, axes):
        for axis, index in zip(axes, np.linspace(0, len(runs) - 1, 4).astype(int), strict=True):
            run = runs[index]
            axis.plot(run.ts, run.y[:, 1], ".", color=INK, markersize=3, label="measured")
            for number, model in enumerate(model for model in SHOWN if model in outcomes):
                course = np.array(outcomes[model][0]["predicted"][index])[:, 1]
                axis.plot(run.ts, course, label=model, color=COLOURS[number], linestyle=DASHES[number])
            low, high = np.nanmin(run.y[:, 1]), np.nanmax(run.y[:, 1])
            margin = 0.5 * (high - low) + 0.05
            axis.axvline(run.ts[SEEN - 1], color=INK, linewidth=0.5)
            axis.set(title=run.name, xlabel="time [s]", ylabel="angle 2 [rad]", ylim=(low - margin, high + margin))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


def friction(found: Sequence[Outcome], rates: Sequence[float], unit: str) -> Any:
    """The law of each joint over seeds, with the band of the first one."""
    laws = np.array([each["friction"] for each in found])
    with subplots(1, 2, width=9.0, height=3.0) as (figure, axes):
        for joint, axis in enumerate(axes):
            middle, band = np.median(laws, 0)[:, joint], 2 * np.array(found[0]["band"])[:, joint]
            axis.fill_between(rates, laws[..., joint].min(0), laws[..., joint].max(0), color=INK, alpha=0.2)
            axis.fill_between(rates, middle - band, middle + band, color=COLOURS[0], alpha=0.3)
            axis.plot(rates, middle, color=COLOURS[0])
            axis.set(title=f"joint {joint + 1}", xlabel="rate [rad/s]", ylabel=f"torque [{unit}]")
    return figure
