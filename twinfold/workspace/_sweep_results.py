"""The results of a sweep as a table, a picture and a few sentences."""

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from twinfold import plot
from twinfold.io import write_csv, write_json
from twinfold.plot._style import plain_label
from twinfold.workspace._sweep import Sweep, SweepRow, format_settings, format_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE, JSON, FIGURE = "sweep.csv", "sweep.json", "sweep.png"
DEFAULT = "default settings"
MAX_COLUMNS = 3  # of panels
LOG_RANGE = 10  # ratio of errors from which on the axis is logarithmic
TIE = 0.01  # relative: errors that differ by less are equal in practice


def write_sweep(sweep: Sweep) -> None:
    """Write the table (CSV and JSON) and, if a fit succeeded, the picture into the folder of a sweep."""
    rows = [_cells(row) for row in sweep.rows]
    write_csv(sweep.folder / TABLE, [row | {"errors": " ".join(map(repr, row["errors"]))} for row in rows])
    write_json(sweep.folder / JSON, rows)
    if any(math.isfinite(row.error) for row in sweep.rows):
        plot.save(plot_sweep(sweep.rows), sweep.folder / FIGURE)


def print_sweep(sweep: Sweep, console: Console) -> None:
    """Print one row for each combination of settings, the best first."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in sweep.rows[0].settings:
        table.add_column(Text(name), justify="right")
    for name in ("held-out error", "spread", "seconds", ""):
        table.add_column(name, justify="right" if name else "left")
    for row in sweep.rows:
        values = (Text(format_value(value)) for value in row.settings.values())
        numbers = (f"{each:.3g}" if math.isfinite(each) else "-" for each in (row.error, row.spread, row.seconds))
        table.add_row(*values, *numbers, Text(row.reason or (DEFAULT if row.is_default else "")))
    console.print(table)


def conclusions(sweep: Sweep, overrides: Sequence[str] = ()) -> list[str]:
    """What the sweep says: the best settings, how sure that is, and the command that uses them.

    **Arguments:** `sweep`; `overrides`, the settings that were given for all fits.
    """
    done = [row for row in sweep.rows if math.isfinite(row.error)]
    if not done:
        return ["No fit succeeded; the reasons are in the table."]
    best, *others = done
    name = f" ({DEFAULT})" if best.is_default else ""
    lines = [f"Best: {format_settings(best.settings)}{name}, held-out error {best.error:.3g}."]
    lines += [_comparison(best, other, "The next") for other in others[:1]]
    lines += [_comparison(best, other, "The default") for other in others[1:] if other.is_default]
    chosen = {} if best.is_default else best.settings
    texts = [*overrides, *(f"{name}={format_value(value)}" for name, value in chosen.items())]
    lines.append(f"To use it: {shlex.join(['twinfold', 'fit', *(word for text in texts for word in ('--set', text))])}")
    return lines


def plot_sweep(rows: Sequence[SweepRow]) -> "Figure":
    """One panel for each setting: the error at each of its values, and the least one over the other settings."""
    done = [row for row in rows if math.isfinite(row.error)]
    names = list(rows[0].settings)
    columns = min(len(names), MAX_COLUMNS)
    lines = math.ceil(len(names) / columns)
    with plot.subplots(lines, columns, width=4.2 * columns, height=3.2, sharey=True) as (figure, axes):
        for axis, name in zip(axes, names, strict=False):
            _draw_setting(axis, name, done)
        for axis in axes[len(names) :]:
            axis.set_visible(False)
        axes[0].set_ylabel("held-out error [standard deviations]")
        if max(row.error for row in done) > LOG_RANGE * min(row.error for row in done) > 0:
            axes[0].set_yscale("log")
    return figure


def _draw_setting(axis: Any, name: str, rows: Sequence[SweepRow]) -> None:
    by_text = {format_value(row.settings[name]): row.settings[name] for row in rows}
    texts = sorted(by_text, key=lambda text: _order(by_text[text]))
    places = {text: place for place, text in enumerate(texts)}
    least = [min(row.error for row in rows if format_value(row.settings[name]) == text) for text in texts]
    axis.plot(range(len(texts)), least, color=plot.COLOURS[1])
    for row in rows:
        x, finite = places[format_value(row.settings[name])], [each for each in row.errors if math.isfinite(each)]
        style = {"color": plot.COLOURS[4], "zorder": 4} if row.is_default else {"color": plot.GREY, "alpha": 0.6}
        axis.plot([x, x], [min(finite), max(finite)], linewidth=1.0, **style)
        axis.plot(x, row.error, "D" if row.is_default else "o", markersize=5, **style)
        if row.is_default:
            axis.annotate("default", (x, row.error), xytext=(6, 4), textcoords="offset points", fontsize=8)
    axis.set_xticks(range(len(texts)), [plain_label(text) for text in texts])
    axis.set_xlabel(plain_label(name))


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then everything else by name."""
    number = isinstance(value, int | float)
    return not number, float(value) if number else 0.0, str(value)


def _comparison(best: SweepRow, other: SweepRow, name: str) -> str:
    """Whether the difference of two rows is larger than the spread over seeds."""
    difference, spread = other.error - best.error, math.sqrt((best.spread**2 + other.spread**2) / 2)
    found = f"{name} ({DEFAULT if other.is_default else format_settings(other.settings)}) has {other.error:.3g}"
    if math.isnan(spread):
        return f"{found}. With one seed the spread over seeds is unknown: repeat with --set fit.seeds=3."
    if difference < TIE * best.error:
        return f"{found}: the difference is less than {TIE:.0%}."
    if difference > spread:
        return f"{found}: the difference is larger than the spread over seeds ({spread:.2g})."
    return f"{found}: the difference is not larger than the spread over seeds ({spread:.2g}), so it may be chance."


def _cells(row: SweepRow) -> dict[str, Any]:
    results = {"error": row.error, "spread": row.spread, "errors": row.errors, "seconds": row.seconds}
    about = {"default": row.is_default, "reason": row.reason, "folder": row.folder.name}
    return row.settings | results | about
