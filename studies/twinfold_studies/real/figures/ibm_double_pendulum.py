"""Errors by horizon, predicted positions of the tip, and the learned friction with its band."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from twinfold.plot import COLOURS, DASHES, INK, subplots
from twinfold_studies.bench.experiment import Picture
from twinfold_studies.real.figures.double_pendulum import friction
from twinfold_studies.real.pendulum_video import free_runs, official, outputs
from twinfold_studies.real.table import Records
from twinfold_studies.real.task import Outcome

FRAME = 2.5  # ms
FROM = 7  # index of the horizon of 20 ms
RATES = np.linspace(-25, 25, 51).tolist()  # rad/s
SEEN = {"official": 4, "free": 40}
TITLES = {"official": "4 frames in, 200 out", "free": "2 s free runs, 40 frames in"}
TIP = ("twin", "twin, unprojected", "black box")


def draw(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> list[Picture]:
    found = [
        Picture(
            "ibm_double_pendulum_error",
            "Double pendulum: error by horizon",
            "RMSE of elbow and tip over all sequences, median over seeds. The pendulum is 208 px long."
            + compared(outcomes),
            lambda: errors(outcomes),
        ),
        Picture(
            "ibm_double_pendulum_tip",
            "Double pendulum: the tip",
            "Position of the tip in two official sequences and two free runs; dots: measured.",
            lambda: tips(records, outcomes),
        ),
    ]
    if "twin" in outcomes:
        found.append(
            Picture(
                "ibm_double_pendulum_friction",
                "Double pendulum: friction of the joints",
                "Resisting torque while the other joint is at rest, over the inertia of the first rod: median of the "
                "seeds, and two standard deviations of one of them; grey: the range over the seeds.",
                lambda: friction(outcomes["twin"], RATES, "1/s^2"),
            )
        )
    return found


def compared(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """The least ratio of each error to that of the twin over all horizons from 20 ms on, as sentences."""
    if "twin" not in outcomes:
        return ""
    sentences = []
    for task, title in TITLES.items():
        names, twin = [name for name in outcomes if name != "twin"], curve(outcomes["twin"], task)
        ratios = [float(np.min((curve(outcomes[name], task) / twin)[FROM:])) for name in names]
        listed = ", ".join(f"{name} {ratio:.3f}" for name, ratio in zip(names, ratios, strict=True))
        sentences.append(f" {title}: least error from 20 ms on, over that of the twin: {listed}.")
    return "".join(sentences)


def curve(found: Sequence[Outcome], task: str) -> np.ndarray:
    """The error at each frame, median over seeds."""
    return np.median([each["curves"][task] for each in found], axis=0)


def errors(outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    with subplots(1, 2, width=11.0, height=3.6) as (figure, axes):
        for axis, task in zip(axes, TITLES, strict=True):
            for number, (name, found) in enumerate(outcomes.items()):
                error = curve(found, task)
                style = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // 2 % len(DASHES)]}
                axis.plot(FRAME * np.arange(1, len(error) + 1), error, label=name, **style)
            axis.set(title=TITLES[task], xlabel="horizon [ms]", ylabel="RMSE [px]", xscale="log", yscale="log")
            axis.set_ylim(0.2, 400)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    return figure


def tips(records: Records, outcomes: Mapping[str, Sequence[Outcome]]) -> Any:
    frames = {"official": official(records, "test"), "free": free_runs(records, ("run-5",), 840)}
    with subplots(2, 2, width=11.0, height=2.6) as (figure, axes):
        for index, axis in enumerate(axes):
            task, which = ("official", "free")[index // 2], (0, 3)[index % 2]
            name, each = list(frames[task].items())[which]
            t = FRAME / 1000 * np.arange(len(each))
            axis.plot(t, outputs(each, SEEN[task])[:, 2], ".", color=INK, markersize=2, label="measured")
            for number, model in enumerate(TIP):
                if model in outcomes and which < len(outcomes[model][0]["shown"][task]):
                    tip = np.array(outcomes[model][0]["shown"][task][which])[:, 2]
                    axis.plot(t, tip, label=model, color=COLOURS[number], linestyle=DASHES[number])
            axis.axvline(t[SEEN[task] - 1], color=INK, linewidth=0.5)
            axis.set(title=name, xlabel="time [s]", ylabel="tip, down [rods]", ylim=(-2, 2))
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure
