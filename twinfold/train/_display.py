"""The progress bar of a fit: epoch, loss, step size, failed seeds, time left."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np


@contextlib.contextmanager
def progress_bar(total: int, label: str, show: bool | Callable[[float, str], None]) -> Iterator[Callable[..., None]]:
    """A function `report(stage, done, loss, rate, failed)` that draws the state of a fit, or passes it on.

    `show` may be a function of the fraction done and a line of text, for a display that others draw.
    """
    if callable(show):
        display = show

        def pass_on(stage: str, done: int, loss: np.ndarray, rate: np.ndarray, failed: int) -> None:
            display(done / total, f"{stage}, loss {np.median(loss):.1e}" + (f", {failed} failed" if failed else ""))

        yield pass_on
        return
    if not show:
        yield lambda *_, **__: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console()
    wide = console.width >= 110  # else there is no room for the name of the stage
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24 if wide else 10),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]} rate {task.fields[rate]} failed {task.fields[failed]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=total, loss="...", rate="...", failed="0")

        def report(stage: str, done: int, loss: np.ndarray, rate: np.ndarray, failed: int) -> None:
            bar.update(
                task,
                completed=done,
                description=f"{label} [{stage}]" if label and wide else label or stage,
                loss=f"{np.median(loss):.1e}",
                rate=f"{np.median(rate):.0e}",
                failed=str(failed),
            )

        yield report
