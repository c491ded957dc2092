"""Fair timings on a noisy machine: contenders take turns, round after round, and ratios are taken within a round."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.worker import LeftOut, Ready, Worker

REST = 0.1  # idle threads of the last contender (OpenMP's spin for a while) must not disturb the next


@dataclass(frozen=True)
class Timing:
    """A contender's compile time, the seconds of its steps in each round (empty: it sat out), its peak memory."""

    ready: Ready
    rounds: list[list[float]]
    peak_mb: float

    @property
    def best(self) -> float:
        return min(min(steps) for steps in self.rounds if steps)

    @property
    def median(self) -> float:
        return float(np.median([second for steps in self.rounds for second in steps]))


def run_rounds(
    dtype: str, contenders: dict[str, tuple], rounds: int, slow: dict[str, int], say: Callable[[str], None]
) -> tuple[dict[str, Timing], dict[str, str]]:
    """All contenders compiled one after the other, then timed in turns; and those left out, with the reason.

    `contenders`: module, function and arguments of each. `slow`: rounds after which a slow one sits out.
    `say` is told what happens.
    """
    workers: dict[str, Worker] = {}
    ready: dict[str, Ready] = {}
    left_out: dict[str, str] = {}
    for name, what in contenders.items():
        say(f"compiling {name}, {dtype}")
        worker = Worker(dtype, *what)
        try:
            ready[name] = worker.receive()
            workers[name] = worker
        except LeftOut as reason:
            left_out[name] = str(reason)
    seconds: dict[str, list[list[float]]] = {name: [] for name in workers}
    for index in range(rounds):
        say(f"round {index + 1} of {rounds}, {dtype}")
        # There and back again: nobody always follows the same one.
        order = list(workers) if index % 2 == 0 else list(workers)[::-1]
        for name in order:
            if index < slow.get(name, rounds):
                time.sleep(REST)
                seconds[name].append(workers[name].turn())
            else:
                seconds[name].append([])
    peaks = {name: worker.close() for name, worker in workers.items()}
    return {name: Timing(ready[name], seconds[name], peaks[name]) for name in workers}, left_out


@dataclass(frozen=True)
class Ratio:
    """`slow` over `fast`, times `scale`: of the best times, and the median of the rounds' own ratios."""

    best: float
    median: float


def ratio(above: Timing, below: Timing, scale: float = 1.0) -> Ratio:
    """Time of `above` over time of `below`."""
    pairs = [(a, b) for a, b in zip(above.rounds, below.rounds, strict=True) if a and b]
    each = [np.median(a) / np.median(b) for a, b in pairs]
    return Ratio(scale * above.best / below.best, scale * float(np.median(each)))
