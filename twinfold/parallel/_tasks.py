"""Many independent tasks, one call: longest first, progress with the time left, and a result for each."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from twinfold.parallel._executor import AbstractExecutor, InProcess, Progress, TaskOutcome

Task = TypeVar("Task")
Value = TypeVar("Value")


@dataclass(frozen=True)
class TaskReport(Generic[Task, Value]):
    """The tasks that ended, in the order in which they were given; `interrupted` if others were not started or lost.

    **Example:**

    ```python
    tw.parallel.map_tasks(abs, [-1, 2]).interrupted  # False
    ```
    """

    outcomes: tuple[TaskOutcome[Task, Value], ...]
    interrupted: bool


def map_tasks(
    fn: Callable[[Task], Value],
    tasks: Sequence[Task],
    *,
    cost: Callable[[Task], float] = lambda task: 1.0,
    seconds: float | None = None,
    executor: AbstractExecutor | None = None,
    done: Callable[[TaskOutcome[Task, Value]], None] = lambda outcome: None,
    progress: bool | Progress = False,
) -> TaskReport[Task, Value]:
    """Apply a function to every task; one that fails does not stop the others.

    To resume, give the tasks that have no stored result yet: it is for `fn` to store one.

    **Arguments:** `fn`, a function of one task; `tasks`; `cost` of a task relative to others: the most expensive one is
    first; `seconds` after which no further task is started; `executor`, where tasks run: in this process (the default),
    or with `DaskExecutor` in many; `done`, called with each outcome when it is known; `progress`: whether to draw a
    progress bar, or a function of the fraction done and a line of text.

    **Returns:** a report with `outcomes` (`task`, `value`, `reason` of a failure, `seconds`) in the order of the tasks,
    and whether it was `interrupted`: Ctrl-C keeps the outcomes so far.

    **Example:**

    ```python
    report = tw.parallel.map_tasks(lambda x: 1 / x, [2, 0, 4])
    [outcome.value for outcome in report.outcomes]  # [0.5, None, 0.25]
    report.outcomes[1].reason  # "ZeroDivisionError: division by zero"
    ```
    """
    costs = [cost(task) for task in tasks]
    order = sorted(range(len(tasks)), key=lambda index: -costs[index])
    found: dict[int, TaskOutcome[Task, Value]] = {}
    partial: dict[int, float] = {}  # fractions of the tasks that are running
    interrupted, started, total = False, time.perf_counter(), math.fsum(costs)

    def may_start() -> bool:
        return seconds is None or time.perf_counter() - started <= seconds

    with progress_bar(len(tasks), progress) as show:

        def update(text: str = "") -> None:
            finished = math.fsum(costs[each] for each in found)
            finished += math.fsum(costs[each] * part for each, part in list(partial.items()) if each not in found)
            left = time_left(time.perf_counter() - started, finished, total) if finished else ""
            parts = (f"{len(found)} of {len(tasks)} tasks", left, text)
            show(finished / total if total else 0.0, ", ".join(part for part in parts if part))

        def of_task(index: int, fraction: float, text: str) -> None:
            partial[index] = min(max(fraction, 0.0), 1.0)
            update(text)

        update()
        runner = InProcess() if executor is None else executor
        with contextlib.closing(runner.run(fn, tasks, order, of_task, may_start)) as attempts:
            try:
                for index, outcome in attempts:
                    found[index] = outcome
                    done(outcome)
                    update()
                interrupted = len(found) < len(tasks)
            except KeyboardInterrupt:
                interrupted = True
    return TaskReport(tuple(found[index] for index in sorted(found)), interrupted)


def time_left(passed: float, finished: float, total: float) -> str:
    """How long the rest will take, if cost is proportional to time, after `passed` seconds."""
    seconds = passed * (total - finished) / finished if finished else float("inf")
    if seconds < 60:
        return f"{seconds:.0f} s left"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min left"
    return f"{seconds / 3600:.1f} h left" if seconds < float("inf") else "time left unknown"


@contextlib.contextmanager
def progress_bar(total: int, show: bool | Progress) -> Iterator[Progress]:
    """A function of the fraction done and a line of text that draws both, or `show` if that is such a function."""
    if callable(show):
        yield show
        return
    if not show or not total:
        yield lambda fraction, text: None
        return
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns: tuple[Any, ...] = (BarColumn(bar_width=20), TextColumn("{task.description}"))
    with Bar(*columns) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda fraction, text: bar.update(task, completed=fraction, description=text)
