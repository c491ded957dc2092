"""Many independent tasks, one call: longest first, progress with the time left, and a result for each.

Where tasks run is the business of an engine, a generator that yields attempts as they end. There is one, in this
process.
"""

import contextlib
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

Task = TypeVar("Task")
Value = TypeVar("Value")


@dataclass(frozen=True)
class TaskOutcome(Generic[Task, Value]):
    """How a task ended: its value, or the reason why there is none; and the seconds it took."""

    task: Task
    value: Value | None
    reason: str
    seconds: float


@dataclass(frozen=True)
class TaskReport(Generic[Task, Value]):
    """The tasks that ended, in the order in which they were given; `interrupted` if others were not started or lost."""

    outcomes: tuple[TaskOutcome[Task, Value], ...]
    interrupted: bool


Progress: TypeAlias = Callable[[float, str], None]


def map_tasks(
    fn: Callable[[Task], Value],
    tasks: Sequence[Task],
    *,
    cost: Callable[[Task], float] = lambda task: 1.0,
    seconds: float | None = None,
    done: Callable[[TaskOutcome[Task, Value]], None] = lambda outcome: None,
    progress: bool | Progress = False,
) -> TaskReport[Task, Value]:
    """Apply a function to every task; one that fails does not stop the others.

    To resume, give the tasks that have no stored result yet: it is for `fn` to store one.

    **Arguments:** `fn`, a function of one task; `tasks`; `cost` of a task relative to others: the most expensive one is
    first; `seconds` after which no further task is started; `done`, called with each outcome when it is known;
    `progress`: whether to draw a progress bar, or a function of the fraction done and a line of text.

    **Returns:** a report with `outcomes` (`task`, `value`, `reason` of a failure, `seconds`) in the order of the tasks,
    and whether it was `interrupted`: Ctrl-C keeps the outcomes so far.

    **Example:**

    ```python
    report = tw.workspace.map_tasks(lambda x: 1 / x, [2, 0, 4])
    [outcome.value for outcome in report.outcomes]  # [0.5, None, 0.25]
    report.outcomes[1].reason  # "ZeroDivisionError: division by zero"
    ```
    """
    costs = [cost(task) for task in tasks]
    order = sorted(range(len(tasks)), key=lambda index: -costs[index])
    found: dict[int, TaskOutcome[Task, Value]] = {}
    interrupted, started = False, time.perf_counter()
    with progress_bar(len(tasks), progress) as show, contextlib.closing(_in_process(fn, tasks, order)) as attempts:
        show(0.0, f"0 of {len(tasks)} tasks")
        try:
            for index, outcome in attempts:
                found[index] = outcome
                done(outcome)
                passed, finished = time.perf_counter() - started, math.fsum(costs[each] for each in found)
                left = time_left(passed, finished, math.fsum(costs))
                show(finished / math.fsum(costs), f"{len(found)} of {len(tasks)} tasks, {left}")
                if seconds is not None and passed > seconds:
                    interrupted = len(found) < len(tasks)
                    break
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


def reason_of(error: BaseException) -> str:
    """The first line of the message of an error, with its type unless it was raised for the user."""
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def attempt(fn: Callable[[Task], Value], task: Task) -> TaskOutcome[Task, Value]:
    """One task, whose failure is an outcome like any other."""
    started, value, reason = time.perf_counter(), None, ""
    try:
        value = fn(task)
    except Exception as error:  # whatever it is: it is reported, and the other tasks go on
        reason = reason_of(error)
    return TaskOutcome(task, value, reason, time.perf_counter() - started)


def _in_process(
    fn: Callable[[Task], Value], tasks: Sequence[Task], order: Sequence[int]
) -> Generator[tuple[int, TaskOutcome[Task, Value]], None, None]:
    """The engine of this process: one task after the other."""
    for index in order:
        yield index, attempt(fn, tasks[index])


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
