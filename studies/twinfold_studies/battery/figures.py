"""Figures of the battery: voltage over time, and the learned V_INT."""

from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.plot import COLOURS, DASHES, GREY, INK, subplots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"physics_fitted": "physics, fitted", "hrpinn": "HRPINN"}


def voltage_curves(cells: dict[str, Any]) -> "Figure":
    """Measured and predicted voltage of each cell, and the errors below."""
    with subplots(2, len(cells), width=max(3.2 * len(cells), 6.0), height=2.5) as (figure, axes):
        for column, (name, cell) in enumerate(cells.items()):
            above, below = axes[column], axes[column + len(cells)]
            minutes, measured = np.array(cell["t"]) / 60, np.array(cell["measured"])
            above.plot(minutes, measured, ".", color=GREY, markersize=2.5, label="measured")
            for index, (model, title) in enumerate(TITLES.items()):
                style = {"color": COLOURS[index], "linestyle": DASHES[index], "linewidth": 1.3}
                above.plot(minutes, cell[model], label=title, **style)
                below.plot(minutes, 1e3 * (np.array(cell[model]) - measured), **style)
            below.axhline(0.0, color=INK, linewidth=0.8)
            above.set_title(f"{name} ({cell['group']})")
            below.set_xlabel("minutes")
            if column == 0:
                above.set_ylabel("voltage / V")
                below.set_ylabel("error / mV")
                above.legend(fontsize=8, loc="lower left")
    return figure


def interaction_curves(interaction: dict[str, Any]) -> "Figure":
    """The published expansion and the learned curve of each seed; grey outside the range of the data."""
    with subplots(1, 2, width=9.0, height=3.2) as (figure, axes):
        x, expansion, learned = (np.array(interaction[name]) for name in ("x", "expansion", "learned"))
        for axis, shift, label in ((axes[0], 0.0, "V_INT / V"), (axes[1], expansion, "learned minus expansion / V")):
            for index, curve in enumerate(learned):
                axis.plot(x, curve - shift, color=COLOURS[1], alpha=0.5, label="learned" if index == 0 else None)
            axis.plot(x, expansion - shift, color=INK, linestyle=DASHES[1], label="expansion")
            for low, high in ((x[0], interaction["range"][0]), (interaction["range"][1], x[-1])):
                if high > low:
                    axis.axvspan(low, high, color=GREY, alpha=0.25, linewidth=0)
            axis.set_xlabel("mole fraction of the positive electrode's surface")
            axis.set_ylabel(label)
        axes[0].legend(fontsize=8)
    return figure
