"""What a study of a public data set declares: how it is read, what is measured, and the models that are compared."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinfold_studies.bench.experiment import Picture

# Of one fit, as it is stored: "metrics", the value of each metric by its key, and whatever the figures need, as lists.
Outcome = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Metric:
    """A quantity of `summary.csv`: the `task` it belongs to, its `name` and `unit`.

    `published`: the best comparable value in print, if there is one, and where it is from (`source`).
    """

    task: str
    name: str
    unit: str
    published: float | None = None
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of a data set.

    **Arguments:** `name`; `fit(data, design, seed, quick)`, its `Outcome` on the test record; `designs`, settings by
    name, among which `validate(data, design, quick)` chooses: the one with the least value, which may depend on the
    training record alone; `seeded`: whether the outcome depends on the seed; `note` of its rows.
    """

    name: str
    fit: Callable[[Any, Any, int, bool], Outcome]
    designs: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"": None})
    validate: Callable[[Any, Any, bool], float] | None = None
    seeded: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        if not self.designs:
            raise ValueError(f"{self.name}: give at least one design")
        if len(self.designs) > 1 and self.validate is None:
            raise ValueError(f"{self.name}: {len(self.designs)} designs need a function `validate` that chooses")


@dataclasses.dataclass(frozen=True)
class Task:
    """The study of a data set.

    **Arguments:** `name` on the command line; `dataset`, the name of its folder; `title`; `load(folder)`, its records;
    `metrics` by key; `models` in the order of the table; `draw(data, outcomes)`, its figures, where `outcomes` has a
    list over seeds for each model that could be computed.
    """

    name: str
    dataset: str
    title: str
    load: Callable[[Path], Any]
    metrics: Mapping[str, Metric]
    models: Sequence[Model]
    draw: Callable[[Any, Mapping[str, Sequence[Outcome]]], Sequence[Picture]] = lambda data, outcomes: ()
