"""Experiments that vary one thing: the amount of training data, or the noise on it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.problems import HORIZONS, problem
from twinfold_studies.bench.queue import Wanted
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import computed, lowest, spread_row, title
from twinfold_studies.systems.registry import SYSTEMS


@dataclasses.dataclass(frozen=True)
class Sweep:
    """`field` of a job takes each of `values`; `name` of the column and `across`, the label of the axis."""

    field: str
    name: str
    across: str
    values: tuple[float, ...]
    quick: tuple[float, ...]
    models: tuple[str, ...]
    seeds: int

    @property
    def full(self) -> Options:
        return Options(tuple(SYSTEMS), self.models, self.seeds, ("best",))

    @property
    def few(self) -> Options:
        return Options(("mass_spring",), ("hrpinn", "phrpinn_robust"), 1, ("best",))

    def jobs(self, options: Options) -> list[tuple[float, Job]]:
        return [
            (value, dataclasses.replace(Job(system, model, protocol, quick=options.quick), **{self.field: value}))
            for protocol in options.protocols
            for system in options.systems
            for model in options.models
            for value in (self.quick if options.quick else self.values)
        ]

    def wanted(self, options: Options) -> list[Wanted]:
        return [Wanted(job, options.seeds) for _, job in self.jobs(options)]

    def find(self, store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
        """A row for each system, model, value and horizon, with the 95 % interval of the mean over seeds."""
        del tell
        rows = [
            spread_row(cell, horizon, {self.name: value})
            for value, _, cell in computed(self.jobs(options), store, options.seeds)
            for horizon in HORIZONS
        ]
        pictures = [
            Picture(
                f"mae_{horizon}",
                f"MAE at the {'training' if horizon == 'train' else 'long'} horizon against {self.across}",
                "Mean over seeds, with its 95 % interval. A line that leaves its panel goes on to what the table says.",
                lambda horizon=horizon: self.draw(rows, horizon),
            )
            for horizon in HORIZONS
            if rows
        ]
        return Findings(self.words(rows), [Table("summary", f"Error against {self.across}", rows)], pictures)

    def draw(self, rows: list[dict[str, Any]], horizon: str) -> Any:
        panels: dict[str, dict] = {}
        bands: dict[str, dict] = {}
        for row in rows:
            if row["horizon"] == horizon:
                key = problem(row["system"]).title, title(row["model"])
                panels.setdefault(key[0], {}).setdefault(key[1], []).append((row[self.name], row["mae_mean"]))
                bands.setdefault(key[0], {}).setdefault(key[1], []).append((row["mae_low"], row["mae_high"]))
        ready = {t: {m: tuple(np.array(points).T) for m, points in each.items()} for t, each in panels.items()}
        shaded = {t: {m: tuple(np.array(points).T) for m, points in each.items()} for t, each in bands.items()}
        return curves(ready, self.across, "MAE", bands=shaded, log=(False, True))

    def words(self, rows: list[dict[str, Any]]) -> list[str]:
        """For each value, on how many systems each model is the best."""
        said = []
        for value in dict.fromkeys(row[self.name] for row in rows):
            here = [r for r in rows if r[self.name] == value and r["horizon"] == "train"]
            listed = lowest(here, lambda r: title(r["model"]))
            said.append(f"{self.name} = {value:g}, lowest mean MAE at the training horizon. {listed}.")
        return said


DATA = Sweep(
    field="fraction",
    name="fraction",
    across="fraction of the training data",
    values=(0.1, 0.25, 0.5, 1.0),
    quick=(0.5, 1.0),
    models=("pinn", "pnode_robust", "hrpinn", "phrpinn_robust"),
    seeds=10,
)
NOISE_LEVELS = Sweep(
    field="noise",
    name="noise",
    across="noise, in units of each state's spread",
    values=(0.0, 0.01, 0.05, 0.1),
    quick=(0.0, 0.05),
    models=("node", "hrpinn", "phrpinn_fast", "phrpinn_robust"),
    seeds=10,
)
CONJECTURE2 = Experiment(
    "conjecture2",
    "Conjecture 2: how much data physics replaces",
    "Test error against 10, 25, 50 and 100 % of the training trajectories.",
    DATA.full,
    DATA.few,
    DATA.wanted,
    DATA.find,
)
NOISE = Experiment(
    "noise",
    "Measurement noise",
    "Noise of 0, 1, 5 and 10 % on training and validation data (initial states, and so levels, included); clean tests.",
    NOISE_LEVELS.full,
    NOISE_LEVELS.few,
    NOISE_LEVELS.wanted,
    NOISE_LEVELS.find,
)
