"""The style of all figures: colours, line styles, panels, labels.

The colours are those of Okabe and Ito, which colour-blind readers can distinguish.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinfold.io import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
"""The colours of curves, in the order of the models."""

DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5)), (0, (3, 1.2)), (0, (1.2, 1)), "-.", ":")
"""The line styles of curves, in the order of the models."""

INK = "#1f2430"
"""The colour of text and of measured values."""

GREY = "#7a7f89"
"""The colour of axes and of secondary curves."""

PALE = "#f2f4f7"
"""The colour of shaded areas."""

LOG_FLOOR = 1e-16
"""Rounding in float64: smaller values are drawn here on a logarithmic axis."""

GRID = "#e3e6eb"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "lines.linewidth": 1.7,
    "legend.frameon": False,
    "figure.facecolor": "white",
}
GREEK = ("theta", "phi", "omega", "psi")


@contextlib.contextmanager
def subplots(
    rows: int, columns: int, *, width: float, height: float, sharex: bool = False, sharey: bool = False
) -> "Iterator[tuple[Figure, list[Axes]]]":
    """A new figure with a grid of axes, in twinfold's style inside the `with` block.

    **Arguments:** `rows` and `columns`; `width` of the figure and `height` of each row, in inches; `sharex`, `sharey`
    as in matplotlib.

    **Returns:** a context manager that gives the figure and its axes, row by row. **Raises:** `ImportError` without
    matplotlib.

    **Example:**

    ```python
    with tw.plot.subplots(1, 2, width=8.0, height=3.0) as (figure, (left, right)):
        left.plot([0, 1, 2], [0, 1, 4], color=tw.plot.COLOURS[1])
        right.plot([0, 1, 2], [0, 1, 8], color=tw.plot.COLOURS[2])
    tw.plot.save(figure, "powers.png")
    ```
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'twinfold[plot]'.") from error
    with rc_context(STYLE):
        figure = Figure(figsize=(width, height * rows + 0.6), layout="constrained")
        axes = figure.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
        yield figure, list(axes.ravel())


def save(figure: "Figure", path: str | Path, *, dpi: int = 150) -> None:
    """Write a figure in the format of the file extension (PNG without one).

    **Arguments:** `figure`; `path`; `dpi`, the resolution of a bitmap.

    **Example:**

    ```python
    with tw.plot.subplots(1, 1, width=4.0, height=3.0) as (figure, (axis,)):
        axis.plot([0, 1], [1, 0])
    tw.plot.save(figure, "line.pdf")
    ```
    """
    from matplotlib import rc_context

    with rc_context(STYLE), atomic_write(path) as file:
        figure.savefig(file, dpi=dpi, format=Path(path).suffix.lstrip(".") or "png")


def math_label(name: str) -> str:
    """A variable name in mathematical notation: a letter or Greek name, with its number as an index.

    **Arguments:** `name`; one that is neither (a word, a name with a unit) is returned unchanged.

    **Example:**

    ```python
    tw.plot.math_label("q1")  # '$q_{1}$'
    tw.plot.math_label("theta")  # '$\\theta$'
    tw.plot.math_label("speed [m/s]")  # 'speed [m/s]'
    ```
    """
    match = re.fullmatch(r"([a-zA-Z]+)_?(\d*)", name)
    if match is None or (len(match[1]) > 1 and match[1] not in GREEK):
        return name
    symbol = match[1] if len(match[1]) == 1 else f"\\{match[1]}"
    return f"${symbol}_{{{match[2]}}}$" if match[2] else f"${symbol}$"


def plain_label(text: str) -> str:
    """A label that shows a text as it is: between two dollar signs matplotlib expects a formula."""
    return text.replace("$", r"\$")


def add_legend(figure: "Figure", axis: "Axes", *, neutral: bool = False) -> None:
    """A legend above the figure; `neutral`: lines of the models in grey, since their colour differs by panel."""
    handles, labels = axis.get_legend_handles_labels()
    legend = figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 6), handlelength=2.6)
    for line, label in zip(legend.get_lines(), labels, strict=False):
        if neutral and label not in ("truth", "start"):
            line.set_color(GREY)
