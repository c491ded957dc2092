"""Many tasks: each has an outcome, the most expensive is first, Ctrl-C and a time limit keep what is done."""

import itertools

import pytest

from twinfold.parallel import _tasks
from twinfold.parallel._tasks import map_tasks, time_left


def test_outcomes_are_in_the_order_of_the_tasks_and_failures_have_a_reason():
    seen = []

    def fn(task: int) -> float:
        seen.append(task)
        if task == 3:
            raise ValueError("three is not allowed\nsecond line")
        return 1 / task

    report = map_tasks(fn, [1, 0, 4, 3], cost=float)
    assert seen == [4, 3, 1, 0]
    assert [outcome.task for outcome in report.outcomes] == [1, 0, 4, 3]
    assert [outcome.value for outcome in report.outcomes] == [1.0, None, 0.25, None]
    reasons = [outcome.reason for outcome in report.outcomes]
    assert reasons == ["", "ZeroDivisionError: division by zero", "", "three is not allowed"]
    assert not report.interrupted


def test_ctrl_c_keeps_what_is_done():
    def fn(task: int) -> int:
        if task == 2:
            raise KeyboardInterrupt
        return task

    done = []
    report = map_tasks(fn, [0, 1, 2, 3], done=lambda outcome: done.append(outcome.value))
    assert report.interrupted
    assert [outcome.value for outcome in report.outcomes] == done == [0, 1]
    assert map_tasks(fn, []).outcomes == ()


@pytest.mark.parametrize(("seconds", "count"), [(2.5, 3), (100.0, 4), (3.5, 4)])
def test_after_the_time_limit_no_task_is_started(seconds, count, monkeypatch):
    clock, now = itertools.count(), [0.0]
    monkeypatch.setattr(_tasks.time, "perf_counter", lambda: now[0])

    def fn(task: int) -> int:
        now[0] += 1.0  # every task takes a second
        return next(clock)

    report = map_tasks(fn, [0, 1, 2, 3], seconds=seconds)
    assert len(report.outcomes) == count
    assert report.interrupted == (count < 4)
    assert [outcome.seconds for outcome in report.outcomes] == [1.0] * count


def test_the_time_left_follows_from_the_cost_of_what_is_done(monkeypatch):
    now, lines = [0.0], []
    monkeypatch.setattr(_tasks.time, "perf_counter", lambda: now[0])

    def fn(task: int) -> None:
        now[0] += 10.0 * task

    map_tasks(fn, [1, 3, 8], cost=float, progress=lambda fraction, text: lines.append((fraction, text)))
    assert lines == [
        (0.0, "0 of 3 tasks"),
        (8 / 12, "1 of 3 tasks, 40 s left"),
        (11 / 12, "2 of 3 tasks, 10 s left"),
        (1.0, "3 of 3 tasks, 0 s left"),
    ]
    assert [time_left(60.0, 1.0, total) for total in (3.0, 200.0)] == ["2 min left", "3.3 h left"]
    assert time_left(60.0, 0.0, 1.0) == "time left unknown"
