"""A load: a sequence of steps, written in words or read from a table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import ArrayLike

from twinfold.systems._load.steps import LoadStep
from twinfold.systems._load.words import parse_steps


@dataclass(frozen=True, eq=False)
class Load:
    """What a cell is subjected to, step by step; loads are joined by `+` and repeated by `*`.

    **Example:**

    ```python
    load = tw.systems.Load.parse('''
        Discharge at 1C until 2.8 V
        Rest for 10 minutes
        Charge at 0.5 A until 4.2 V
        Hold at 4.2 V until 50 mA
        repeat 2 times
    ''')
    len((load + tw.systems.Load.parse("Discharge at C/5 for 30 minutes") * 3).steps)  # 11
    ```
    """

    steps: tuple[LoadStep, ...]

    def __add__(self, other: "Load") -> "Load":
        return Load(self.steps + other.steps)

    def __mul__(self, times: int) -> "Load":
        return Load(self.steps * times)

    @staticmethod
    def parse(words: str | Sequence[str]) -> "Load":
        """Steps in words, one for each line, part between semicolons, or string of a list.

        **Raises:** `ValueError` that names the word that is not understood.
        """
        return Load(parse_steps(words if isinstance(words, str) else "\n".join(words)))

    @staticmethod
    def table(times: ArrayLike | Sequence, currents: ArrayLike | Sequence, *, until: str | None = None) -> "Load":
        """A drive cycle: currents in A, positive on discharge, each held from its time (in s) to the next.

        `until`, a voltage such as `"2.8 V"`, ends it early.
        """
        ts, values = np.asarray(times, float), np.asarray(currents, float)
        if ts.ndim != 1 or ts.shape != values.shape or len(ts) < 2:
            raise ValueError(f"load: {ts.shape} times and {values.shape} currents; give as many of each, at least two.")
        if not (np.isfinite(ts).all() and np.isfinite(values).all() and (np.diff(ts) > 0).all()):
            raise ValueError("load: times must increase, and times and currents must be finite.")
        limit = None
        if until is not None:
            limit = parse_steps(f"Discharge at 1 A until {until}")[0].until
        ending = "" if limit is None else f" until {limit}"
        step = LoadStep(f"Table of {len(ts)} currents{ending}", None, until=limit, duration=float(ts[-1] - ts[0]))
        return Load((replace(step, times=ts - ts[0], currents=values),))

    @staticmethod
    def from_csv(path: str | Path, *, time: str, current: str, until: str | None = None) -> "Load":
        """A drive cycle from two columns of a CSV file; see `table`."""
        with Path(path).open(encoding="utf-8-sig") as file:
            names = [name.strip().strip('"') for name in file.readline().split(",")]
            for argument, name in (("time", time), ("current", current)):
                if name not in names:
                    raise ValueError(f"{argument}={name!r}: {path} has the columns {', '.join(names)}.")
            columns = [names.index(time), names.index(current)]
            rows = np.loadtxt(file, delimiter=",", usecols=columns, ndmin=2)
        return Load.table(rows[:, 0], rows[:, 1], until=until)

    @staticmethod
    def cc_cv(current: str = "0.5C", voltage: str = "4.2 V", cutoff: str = "C/20") -> "Load":
        """A charge at constant current, then at constant voltage."""
        return Load.parse([f"Charge at {current} until {voltage}", f"Hold at {voltage} until {cutoff}"])

    @staticmethod
    def hppc(
        pulse: str = "1C",
        regeneration: str = "0.75C",
        *,
        lowest: str = "2.8 V",
        seconds: float | int = 10,
        pause: float | int = 40,
        levels: int = 9,
        rest: float | int = 3600,
    ) -> "Load":
        """Pulses at `levels` states of charge, a tenth of the capacity apart (hybrid pulse power characterisation).

        At each: a discharge pulse and a charge pulse of some `seconds` with a `pause` after the first, then a tenth of
        the capacity at C/3 and a `rest`, in seconds. Discharges end early at the voltage `lowest`.
        """
        return Load.parse(
            [
                f"Discharge at {pulse} for {seconds} s or until {lowest}",
                f"Rest for {pause} s",
                f"Charge at {regeneration} for {seconds} s",
                f"Discharge at C/3 for 18 minutes or until {lowest}",
                f"Rest for {rest} s",
            ]
        ) * levels  # fmt: skip
