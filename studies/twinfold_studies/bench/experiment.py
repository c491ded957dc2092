"""What an experiment is: its options, the jobs it requests, and the findings that it derives from their results."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twinfold_studies.bench.contenders import CONTENDERS
from twinfold_studies.bench.protocols import PROTOCOLS
from twinfold_studies.bench.queue import Request
from twinfold_studies.bench.store import Store


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a call; the experiment replaces empty ones by its defaults."""

    systems: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    seeds: int = 0
    protocols: tuple[str, ...] = ()
    quick: bool = False
    data: str = ""  # folder of measurements, for experiments that use them
    sets: tuple[str, ...] = ()  # of measurements, to which this call is limited; see `Experiment.sets`


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows with the same keys. The CSV file has all columns; the page shows `columns` (all, if empty)."""

    name: str
    title: str
    rows: Sequence[dict[str, Any]]
    columns: tuple[str, ...] = ()
    caption: str = ""
    digits: int = 2  # of a number on the page; the CSV file has all of them


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure, drawn on demand."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Findings:
    """The findings of an experiment: sentences, tables, figures, and the numbers of `summary.json`, if any."""

    sentences: Sequence[str]
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment.

    **Arguments:** `name`, `title` and `about`, a sentence for the list of experiments; `full` and `quick`, the default
    options; `requests(options)`, the jobs it needs; `analyse(store, options, log)`, its findings, for which it may
    compute and store further results (see `cached`); `models` and `protocols` that it accepts; `sets`, the names that
    may follow its own on the command line: a call that names some of them computes these, and its report has the others
    as far as they are stored; `timed`: it measures times, so that its results are never computed side by side.
    """

    name: str
    title: str
    about: str
    full: Options
    quick: Options
    requests: Callable[[Options], list[Request]]
    analyse: Callable[[Store, Options, Callable[[str], None]], Findings]
    models: tuple[str, ...] = tuple(CONTENDERS)
    protocols: tuple[str, ...] = tuple(PROTOCOLS)
    sets: tuple[str, ...] = ()
    timed: bool = False

    def with_defaults(self, options: Options) -> Options:
        """The options of a call, with the defaults of the experiment for those that are empty."""
        given = {name: value for name, value in vars(options).items() if value}
        # A call may name several experiments: each uses the names that it accepts.
        for name, known in (("models", self.models), ("protocols", self.protocols)):
            given[name] = tuple(each for each in given.get(name, ()) if each in known)
            if not given[name]:
                del given[name]
        return dataclasses.replace(self.quick if options.quick else self.full, **given)
