"""Experiments that vary one setting: the amount of training data, or its noise."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.problems import HORIZONS, problem
from twinfold_studies.bench.queue import Request
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import available, lowest_mae, spread_row, title
from twinfold_studies.systems import SYSTEMS


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep over one field of a job.

    **Arguments:** `field` of the job; `name` of the column; `label` of the axis; `values`, and `quick` ones; `models`;
    `seeds`.
    """

    field: str
    name: str
    label: str
    values: tuple[float, ...]
    quick: tuple[float, ...]
    models: tuple[str, ...]
    seeds: int

    @property
    def full_options(self) -> Options:
        return Options(tuple(SYSTEMS), self.models, self.seeds, ("best",))

    @property
    def quick_options(self) -> Options:
        return Options(("mass_spring",), ("hrpinn", "phrpinn_robust"), 1, ("best",))

    def jobs(self, options: Options) -> list[tuple[float, Job]]:
        return [
            (value, dataclasses.replace(Job(system, model, protocol, quick=options.quick), **{self.field: value}))
            for protocol in options.protocols
            for system in options.systems
            for model in options.models
            for value in (self.quick if options.quick else self.values)
        ]

    def requests(self, options: Options) -> list[Request]:
        return [Request(job, options.seeds) for _, job in self.jobs(options)]

    def analyse(self, store: Store, options: Options, log: Callable[[str], None]) -> Findings:
        """A row for each system, model, value and horizon, with the 95 % interval of the mean over seeds."""
        del log
        rows = [
            spread_row(result, horizon, {self.name: value})
            for value, _, result in available(self.jobs(options), store, options.seeds)
            for horizon in HORIZONS
        ]
        pictures = [
            Picture(
                f"mae_{horizon}",
                f"MAE at the {'training' if horizon == 'train' else 'long'} horizon against {self.label}",
                "Mean over seeds, with its 95 % interval. A line that leaves its panel continues to the value in the "
                "table.",
                lambda horizon=horizon: self.draw(rows, horizon),
            )
            for horizon in HORIZONS
            if rows
        ]
        return Findings(self.summarise(rows), [Table("summary", f"Error against {self.label}", rows)], pictures)

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
        return curves(ready, self.label, "MAE", bands=shaded, log=(False, True))

    def summarise(self, rows: list[dict[str, Any]]) -> list[str]:
        """The most accurate model of each system, for each value."""
        sentences = []
        for value in dict.fromkeys(row[self.name] for row in rows):
            here = [r for r in rows if r[self.name] == value and r["horizon"] == "train"]
            listed = lowest_mae(here, lambda r: title(r["model"]))
            sentences.append(f"{self.name} = {value:g}, lowest mean MAE at the training horizon. {listed}.")
        return sentences


DATA = Sweep(
    field="fraction",
    name="fraction",
    label="fraction of the training data",
    values=(0.1, 0.25, 0.5, 1.0),
    quick=(0.5, 1.0),
    models=("pinn", "pnode_robust", "hrpinn", "phrpinn_robust"),
    seeds=10,
)
NOISE_LEVELS = Sweep(
    field="noise",
    name="noise",
    label="noise, in standard deviations of each state",
    values=(0.0, 0.01, 0.05, 0.1),
    quick=(0.0, 0.05),
    models=("node", "hrpinn", "phrpinn_fast", "phrpinn_robust"),
    seeds=10,
)
CONJECTURE2 = Experiment(
    "conjecture2",
    "Conjecture 2: how much data the physics replaces",
    "Test error against 10, 25, 50 and 100 % of the training trajectories.",
    DATA.full_options,
    DATA.quick_options,
    DATA.requests,
    DATA.analyse,
)
NOISE = Experiment(
    "noise",
    "Measurement noise",
    "Noise of 0, 1, 5 and 10 % on training and validation data; clean test data. Where there is noise, every model "
    "estimates the state at the start of each run, that of a test run from its first ten samples.",
    NOISE_LEVELS.full_options,
    NOISE_LEVELS.quick_options,
    NOISE_LEVELS.requests,
    NOISE_LEVELS.analyse,
)
