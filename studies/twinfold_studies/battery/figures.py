"""Pictures of the battery: courses of the voltage, and what was learned in place of V_INT."""

from typing import TYPE_CHECKING, Any

import numpy as np

from twinfold.plot import COLOURS, DASHES, GREY, INK, STYLE, grid_of, matplotlib_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"physics_fitted": "physics, fitted", "hrpinn": "HRPINN"}


def voltage_courses(cells: dict[str, Any]) -> "Figure":
    """For each cell the measured points with the predicted courses, and below what is left of them."""
    with matplotlib_of().rc_context(STYLE):
        figure, axes = grid_of(2, len(cells), width=max(3.2 * len(cells), 6.0), height=2.5)
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


def learned_interaction(found: dict[str, Any]) -> "Figure":
    """The expansion, the learned curve of each seed, and the range of mole fractions that the data reach."""
    with matplotlib_of().rc_context(STYLE):
        figure, axes = grid_of(1, 2, width=9.0, height=3.2)
        x, known, learned = (np.array(found[name]) for name in ("x", "expansion", "learned"))
        for axis, shift, label in ((axes[0], 0.0, "V_INT / V"), (axes[1], known, "learned minus expansion / V")):
            for index, curve in enumerate(learned):
                axis.plot(x, curve - shift, color=COLOURS[1], alpha=0.5, label="learned" if index == 0 else None)
            axis.plot(x, known - shift, color=INK, linestyle=DASHES[1], label="expansion")
            for low, high in ((x[0], found["range"][0]), (found["range"][1], x[-1])):
                if high > low:
                    axis.axvspan(low, high, color=GREY, alpha=0.25, linewidth=0)
            axis.set_xlabel("mole fraction of the positive electrode's surface")
            axis.set_ylabel(label)
        axes[0].legend(fontsize=8)
    return figure
