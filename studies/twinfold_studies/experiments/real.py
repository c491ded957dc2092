"""Public measurements: the twin beside fitted physics, black boxes, linear and NARX models, and what is published."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from twinfold.report import format_number
from twinfold_studies.bench.cache import Skipped, cached, record_skips, stored
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.real.location import find_real
from twinfold_studies.real.registry import TASKS
from twinfold_studies.real.sources import folder_fingerprint, function_fingerprint
from twinfold_studies.real.task import Model, Outcome, Task

SEEDS, DIGITS = 5, 4
CAPTION = (
    "value: median over the seeds. published: the best comparable value in print. note: how the design was chosen, on "
    "the training record alone; designs.csv has the validation error of each, seeds.csv the value of each seed."
)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """The rows of all sets that are asked for, and of the others as far as they are computed."""
    rows: list[dict[str, Any]] = []
    designs: list[dict[str, Any]] = []
    seeds: list[dict[str, Any]] = []
    sentences: list[str] = []
    pictures: list[Picture] = []
    for task in TASKS.values():
        wanted = task.name in (options.sets or TASKS)
        with record_skips(store) if wanted else contextlib.suppress(Skipped):
            study = Study(task, store, options, log if wanted else None)
            rows += (found := study.rows())
            designs += study.designs
            seeds += study.seeds()
            sentences += describe(found)
            pictures += task.draw(study.data, study.outcomes) if study.outcomes else ()
            jax.clear_caches()  # dozens of compiled programs exceed what one process may map
    tables = [Table("summary", "Public measurements", rows, caption=CAPTION, digits=DIGITS)]
    if designs:
        tables.append(
            Table("designs", "Designs, and their validation errors within the training record", designs, digits=DIGITS)
        )
    tables.append(Table("seeds", "All seeds", seeds, digits=DIGITS))
    return Findings(sentences, tables, pictures)


class Study:
    """The outcomes of a task, computed as far as they are not stored; without a `log`, only what is stored."""

    def __init__(self, task: Task, store: Store, options: Options, log: Callable[[str], None] | None = None):
        self.task, self.store, self.options, self.log = task, store, options, log
        try:
            folder = find_real(task.dataset, options.data)
        except FileNotFoundError as error:
            raise Skipped(f"real-{task.name}", str(error)) from None
        self.files, self.data = folder_fingerprint(folder), task.load(folder)
        self.designs: list[dict[str, Any]] = []
        self.chosen: dict[str, str] = {}
        self.outcomes: dict[str, list[Outcome]] = {}
        for model in task.models:
            # The other models are compared without it. What a call does not ask for is not missing.
            with contextlib.suppress(Skipped) if log is None else record_skips(store):
                self._fit(model)

    def _fit(self, model: Model) -> None:
        design = self._choose(model)
        for seed in range(self.options.seeds or SEEDS if model.seeded else 1):
            found = self._cell(
                f"{model.name}, seed {seed}" if model.seeded else model.name,
                [model.name, model.designs[design], seed],
                model.fit,
                lambda seed=seed: model.fit(self.data, model.designs[design], seed, self.options.quick),
            )
            self.outcomes.setdefault(model.name, []).append(found)
        self.chosen[model.name] = design

    def _choose(self, model: Model) -> str:
        """The design with the least validation error; all of them are listed."""
        if model.validate is None:
            return next(iter(model.designs))
        names = list(model.designs)[:2] if self.options.quick else list(model.designs)
        errors = {}
        for name in names:
            errors[name] = self._cell(
                f"{model.name}, design '{name}'",
                [model.name, "validate", model.designs[name]],
                model.validate,
                lambda name=name: _validated(model, self.data, name, self.options.quick),
            )
        chosen = min(errors, key=lambda name: errors[name])
        self.designs += [
            {
                "dataset": self.task.dataset,
                "task": self.task.name,
                "model": model.name,
                "design": name,
                "validation": errors[name],
                "chosen": name == chosen,
            }
            for name in names
        ]
        return chosen

    def _cell(self, label: str, settings: Any, function: Callable[..., Any], compute: Callable[[], Any]) -> Any:
        settings = [settings, self.files, function_fingerprint(function), self.options.quick]
        name = f"real-{self.task.name}"
        if self.log is None:
            if (found := stored(self.store, name, settings)) is None:
                raise Skipped(f"{name}: {label}", "not computed")
            return found
        self.log(f"real: {self.task.name}, {label}")
        try:
            return cached(self.store, name, settings, compute)
        except Skipped as error:
            raise Skipped(f"{name}: {label}", error.reason) from error

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `summary.csv`."""
        models = {model.name: model for model in self.task.models}
        return [
            {
                "dataset": self.task.dataset,
                "task": metric.task,
                "model": name,
                "metric": metric.name,
                "unit": metric.unit,
                "value": float(np.median(values)),
                "seeds": len(values),
                "published": math.nan if metric.published is None else metric.published,
                "source": metric.source,
                "note": self._note(models[name]),
            }
            for key, metric in self.task.metrics.items()
            for name, values in self._values(key)
        ]

    def seeds(self) -> list[dict[str, Any]]:
        """The value of every seed."""
        return [
            {
                "dataset": self.task.dataset,
                "task": metric.task,
                "model": name,
                "metric": metric.name,
                "seed": seed,
                "value": value,
            }
            for key, metric in self.task.metrics.items()
            for name, values in self._values(key)
            for seed, value in enumerate(values)
        ]

    def _values(self, key: str) -> list[tuple[str, list[float]]]:
        return [
            (name, [each["metrics"][key] for each in found])
            for name, found in self.outcomes.items()
            if key in found[0]["metrics"]
        ]

    def _note(self, model: Model) -> str:
        tried = sum(row["model"] == model.name for row in self.designs)
        choice = f"design '{self.chosen.get(model.name)}' of {tried} tried" if tried else ""
        return "; ".join(part for part in (model.note, choice) if part)


def _validated(model: Model, data: Any, design: str, quick: bool) -> float:
    assert model.validate is not None
    value = float(model.validate(data, model.designs[design], quick))
    return value if math.isfinite(value) else math.inf


def describe(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each metric: the models from the least value to the greatest, and the published one."""
    sentences = []
    for task, metric in dict.fromkeys((row["task"], row["metric"]) for row in rows):
        found = [row for row in rows if (row["task"], row["metric"]) == (task, metric)]
        found = sorted(found, key=lambda row: row["value"])
        listed = ", ".join(f"{row['model']} {format_number(row['value'], DIGITS)}" for row in found)
        first = found[0]
        printed = "" if math.isnan(first["published"]) else f"; published {format_number(first['published'], DIGITS)}"
        unit = f" [{first['unit']}]" if first["unit"] else ""
        sentences.append(f"{first['dataset']}, {task}: {metric}{unit}: {listed}{printed}.")
    return sentences


REAL = Experiment(
    "real",
    "Public measurements",
    "Twins of measured systems beside fitted physics, a black box, linear and NARX models, and what is published; "
    "`twinfold bench real NAME ...` for some of the sets.",
    full=Options(seeds=SEEDS),
    quick=Options(seeds=1),
    requests=lambda options: [],
    analyse=analyse,
    sets=tuple(TASKS),
)
