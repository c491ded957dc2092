"""Where tasks run: the interface of all executors, and the one that runs them in this process."""

import abc
import time
from collections.abc import Callable, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

Task = TypeVar("Task")
Value = TypeVar("Value")
Progress: TypeAlias = Callable[[float, str], None]
TaskProgress: TypeAlias = Callable[[int, float, str], None]  # of the index of a task, its fraction done, and a line

INTERRUPTED = "interrupted"  # the reason of a task that was stopped on request
_progress: ContextVar[Progress] = ContextVar("progress", default=lambda fraction, text: None)


@dataclass(frozen=True)
class TaskOutcome(Generic[Task, Value]):
    """How a task ended: its value, or the reason why there is none; and the seconds it took.

    **Example:**

    ```python
    (outcome,) = tw.parallel.map_tasks(lambda x: 1 / x, [0]).outcomes
    outcome.value, outcome.reason  # None, "ZeroDivisionError: division by zero"
    ```
    """

    task: Task
    value: Value | None
    reason: str
    seconds: float


Outcomes: TypeAlias = Generator[tuple[int, TaskOutcome[Task, Value]], None, None]


class AbstractExecutor(abc.ABC):
    """Runs a function of many tasks; see `map_tasks`, which is how it is used.

    **Example:**

    ```python
    isinstance(tw.parallel.InProcess(), tw.parallel.AbstractExecutor)  # True
    ```
    """

    @abc.abstractmethod
    def run(
        self,
        fn: Callable[[Task], Value],
        tasks: Sequence[Task],
        order: Sequence[int],
        progress: TaskProgress,
        may_start: Callable[[], bool],
    ) -> Outcomes[Task, Value]:
        """Yield the index and the outcome of each task as it ends.

        **Arguments:** `fn`, a function of one task; `tasks`; `order`, the indices in the order in which they begin;
        `progress`, called with what tasks say about themselves through `report_progress`; `may_start`: once it
        is False, no further task is started.

        **Raises:** `KeyboardInterrupt` after Ctrl-C, once the tasks that end at once have been yielded.
        """


@dataclass(frozen=True)
class InProcess(AbstractExecutor):
    """One task after the other, in this process.

    **Example:**

    ```python
    tw.parallel.map_tasks(abs, [-1, 2], executor=tw.parallel.InProcess()).outcomes[0].value  # 1
    ```
    """

    def run(
        self,
        fn: Callable[[Task], Value],
        tasks: Sequence[Task],
        order: Sequence[int],
        progress: TaskProgress,
        may_start: Callable[[], bool],
    ) -> Outcomes[Task, Value]:
        for index in order:
            if not may_start():
                return
            token = _progress.set(lambda fraction, text, index=index: progress(index, fraction, text))
            try:
                outcome = attempt(fn, tasks[index])
            finally:
                _progress.reset(token)
            yield index, outcome


def report_progress(fraction: float, text: str = "") -> None:
    """Say, from inside a task, how much of it is done; elsewhere it does nothing.

    **Arguments:** `fraction` of the task that is done; `text` about it.

    **Raises:** `KeyboardInterrupt` where whoever started the tasks has stopped them: a task that can be stopped reports
    its progress now and then.

    **Example:**

    ```python
    def task(count):
        for step in range(count):
            tw.parallel.report_progress(step / count)
        return count


    tw.parallel.map_tasks(task, [10, 20]).outcomes[1].value  # 20
    ```
    """
    _progress.get()(fraction, text)


def attempt(fn: Callable[[Task], Value], task: Task) -> TaskOutcome[Task, Value]:
    """One task, whose failure is an outcome like any other."""
    started, value, reason = time.perf_counter(), None, ""
    try:
        value = fn(task)
    except Exception as error:  # whatever it is: it is reported, and the other tasks go on
        reason = reason_of(error)
    return TaskOutcome(task, value, reason, time.perf_counter() - started)


def reason_of(error: BaseException) -> str:
    """The first line of the message of an error, with its type unless it was raised for the user."""
    text = (str(error).splitlines() or [""])[0]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def set_progress(progress: Progress) -> Any:
    """Let `report_progress` of this thread call a function; what it returns undoes this, see `reset_progress`."""
    return _progress.set(progress)


def reset_progress(token: Any) -> None:
    """Undo `set_progress`."""
    _progress.reset(token)
