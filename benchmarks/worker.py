"""A contender in a process of its own, so that peaks of memory do not mix; it works only while it is asked to.

This module is imported by the parent too and must stay light: on Linux a child's peak starts at its parent's size.
"""

import importlib
import multiprocessing
import os
import resource
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks.work import make_work

TURN = 0.25  # seconds of work in one turn, unless a single step takes longer


@dataclass(frozen=True)
class Ready:
    """What a contender has to say once it is compiled."""

    compile_seconds: float | None
    loss: float
    gradient: np.ndarray | None
    notes: str


class LeftOut(Exception):
    """The contender cannot run here; the message says why."""


class Worker:
    """`module.function(work, *arguments)` in its own process."""

    def __init__(self, dtype: str, module: str, function: str, *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, dtype, module, function, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def receive(self) -> Any:
        """The next message. `LeftOut` where a package is missing; any other trouble is an error."""
        try:
            kind, value = self._pipe.recv()
        except EOFError:
            raise RuntimeError("a contender's process ended unexpectedly; see its output above.") from None
        if kind == "missing":
            raise LeftOut(value)
        return value

    def turn(self) -> list[float]:
        """Seconds of each step in a turn."""
        self._pipe.send("turn")
        return self.receive()

    def close(self) -> float:
        """Ends the process; its peak memory in MiB."""
        self._pipe.send("close")
        peak = self.receive()
        self._process.join()
        return peak


def _serve(pipe: Connection, dtype: str, module: str, function: str, arguments: tuple) -> None:
    # Before JAX is imported; a cache of compiled programs would make compile times meaningless.
    os.environ["JAX_ENABLE_X64"] = "1" if dtype == "float64" else "0"
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "0"
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        call = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        pipe.send(("missing", f"{error.name} is not installed"))
        return
    out = call(make_work(dtype), *arguments)
    if not hasattr(out, "step"):
        pipe.send(("value", out))
        return
    pipe.send(("value", Ready(out.compile_seconds, out.loss, out.gradient, out.notes)))
    while pipe.recv() == "turn":
        seconds: list[float] = []
        while not seconds or (sum(seconds) < TURN and len(seconds) < 50):
            began = time.perf_counter()
            out.step()
            seconds.append(time.perf_counter() - began)
        pipe.send(("value", seconds))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pipe.send(("value", peak / (1024**2 if sys.platform == "darwin" else 1024)))
