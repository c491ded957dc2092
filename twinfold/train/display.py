"""What one sees of a fit while it runs: epoch, loss, step size, failed seeds, time left."""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np


@contextlib.contextmanager
def progress_bar(total: int, label: str, show: bool) -> Iterator[Callable[..., None]]:
    """A function `report(stage, done, loss, rate, failed)` that draws the state of a fit, or does nothing."""
    if not show:
        yield lambda *_, **__: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  rate {task.fields[rate]}  failed seeds {task.fields[failed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bar:
        task = bar.add_task(label, total=total, loss="...", rate="...", failed="0")

        def report(stage: str, done: int, loss: np.ndarray, rate: np.ndarray, failed: int) -> None:
            bar.update(
                task,
                completed=done,
                description=f"{label} [{stage}]" if label else stage,
                loss=f"{np.median(loss):.3e}",
                rate=f"{np.median(rate):.1e}",
                failed=str(failed),
            )

        yield report
