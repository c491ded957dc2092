"""What two workers gain for training: a sweep of equal fits, and the seeds of one fit."""

import os
import statistics
import time
from typing import Any, Literal

import numpy as np

import twinfold as tw
from twinfold.parallel import DaskExecutor, map_tasks

SHORT = 10  # epochs of the fit whose time is subtracted: start-up and compilation
Name = Literal["2x16", "2x32", "2x64"]


def one_fit(task: tuple[int, int]) -> tuple[int, float, float]:
    """One of many equal fits: the process that made it, when it began and when it ended."""
    seed, epochs = task
    began = time.time()
    _fit("2x16", [seed], epochs)
    return os.getpid(), began, time.time()


def sweep_efficiency(fits: int, epochs: int) -> dict[str, float]:
    """The throughput of two workers relative to twice that of one, for equal fits.

    The first fit of each worker, which compiles, is left out.
    """
    rates = {}
    for workers in (1, 2):
        report = map_tasks(one_fit, [(seed, epochs) for seed in range(fits)], executor=DaskExecutor(workers))
        spans = sorted(outcome.value for outcome in report.outcomes if outcome.value is not None)
        warm = [span for index, span in enumerate(spans) if index and spans[index - 1][0] == span[0]]
        rates[workers] = len(warm) / (max(span[2] for span in warm) - min(span[1] for span in warm))
    return {"fits": fits, "one": rates[1], "two": rates[2], "efficiency": rates[2] / (2 * rates[1])}


def seeds_ratio(name: Name, seeds: int, epochs: int, rounds: int) -> dict[str, Any]:
    """The time of an epoch of many seeds over two workers, relative to as many times that of one seed.

    One seed has a process of its own with all cores. Each time is the difference of a long and a short fit, so that
    start-up and compilation cancel; the ratio is the median of some rounds.
    """
    many = list(range(seeds))
    _seconds(name, many, SHORT, 2)  # compiles
    ratios, times = [], []
    for _ in range(rounds):
        short, long = (_seconds(name, many, count, 2) for count in (SHORT, SHORT + epochs))
        (alone,) = map_tasks(_one_seed, [(name, epochs * seeds // 3)], executor=DaskExecutor(1)).outcomes
        if alone.value is None or long <= short:  # on a busy machine, or with too few epochs
            raise RuntimeError(f"seeds of {name}: {alone.reason or 'a longer fit took less time'}")
        times.append(((long - short) / epochs, alone.value))
        ratios.append((long - short) / epochs / (seeds * alone.value))
    return {
        "network": name,
        "seeds": seeds,
        "epoch_seconds": statistics.median(time for time, _ in times),
        "epoch_seconds_one_seed": statistics.median(time for _, time in times),
        "seeds_ratio": statistics.median(ratios),
        "smallest": min(ratios),
        "largest": max(ratios),
        "rounds": rounds,
    }


def _one_seed(task: tuple[Name, int]) -> float:
    """Seconds of an epoch of one seed in this process, once it is warm."""
    name, epochs = task
    _seconds(name, [0], SHORT, 1)
    short, long = (_seconds(name, [0], count, 1) for count in (SHORT, SHORT + epochs))
    return (long - short) / epochs


def _seconds(name: Name, seeds: list[int], epochs: int, workers: int) -> float:
    began = time.perf_counter()
    _fit(name, seeds, epochs, workers)
    return time.perf_counter() - began


def _fit(name: Name, seeds: list[int], epochs: int, workers: int = 1) -> None:
    """A network of two hidden layers learns circles: 2x16 from 10 short ones, others from 16 of 201 samples.

    2x32 is the default of `MLP`, 2x64 the network of `benchmarks/`.
    """
    width, runs, samples = {"2x16": (16, 10, 101), "2x32": (32, 16, 201), "2x64": (64, 16, 201)}[name]
    ts = np.linspace(0, 10, samples)
    data = tw.Dataset.from_arrays(ts, [np.stack([np.cos(ts + k), -np.sin(ts + k)], axis=1) for k in range(runs)])
    twin = tw.Twin(tw.BlackBox(tw.MLP(width=width, depth=2)))
    tw.fit(twin, data, seeds=seeds, method=tw.Adam(epochs), workers=workers, progress=False)
