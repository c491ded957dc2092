"""Wall times of compiled programs."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def best_time(run: Callable[[], T], repeats: int, *, max_seconds: float = float("inf")) -> tuple[T, float]:
    """The result of `run` and the shortest of several times in seconds, after a first call that compiles.

    **Arguments:** `run`; `repeats`, the number of timed calls; `max_seconds` after which no further call is made.
    """
    result = jax.block_until_ready(run())
    times: list[float] = []
    while len(times) < repeats and sum(times) < max_seconds:
        times.append(seconds_of(run))
    return result, min(times)


def seconds_of(run: Callable[[], Any]) -> float:
    """The time of one call in seconds."""
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def best_times(programs: dict[Any, Callable[[], Any]], repeats: int) -> dict[Any, float]:
    """The shortest time of each compiled program; they take turns, so that other load on the machine affects all."""
    best = dict.fromkeys(programs, float("inf"))
    for repeat in range(repeats):
        for key in programs if repeat % 2 else reversed(programs):
            best[key] = min(best[key], seconds_of(programs[key]))
    return best
