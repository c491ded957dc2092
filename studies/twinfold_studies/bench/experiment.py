"""What an experiment is, and how it becomes a folder: cells computed, tables, figures and one page."""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinfold import plot
from twinfold.io import open_folder, write_csv, write_lines, write_text
from twinfold.report import figure, grid, heading, number, page, pairs, text
from twinfold_studies.bench.contenders import CONTENDERS
from twinfold_studies.bench.kept import LATE, unless_left
from twinfold_studies.bench.protocols import PARAMETERS, PROTOCOLS, QUICK, describe_stages
from twinfold_studies.bench.queue import Outcome, Wanted, run_queue
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import metric_lines


@dataclasses.dataclass(frozen=True)
class Options:
    """What a call asks for; an experiment puts its own default where something is empty."""

    systems: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    seeds: int = 0
    protocols: tuple[str, ...] = ()
    quick: bool = False
    data: str = ""  # where measurements are, for experiments that use some


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows with the same keys, as CSV and Markdown; `shown` are the columns that people read (all, if empty)."""

    name: str
    title: str
    rows: Sequence[dict[str, Any]]
    shown: tuple[str, ...] = ()
    caption: str = ""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure, drawn when it is needed."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Findings:
    """What an experiment found: sentences, tables, pictures, and the numbers of `summary.json` where it has one."""

    words: Sequence[str]
    tables: Sequence[Table]
    pictures: Sequence[Picture] = ()
    summary: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """`full` and `quick` are its default options; `wanted` names its cells; `find` turns them into tables and pictures.

    `find(store, options, tell)` may compute and keep results of its own beside the cells, in `store.folder`.
    """

    name: str
    title: str
    about: str
    full: Options
    quick: Options
    wanted: Callable[[Options], list[Wanted]]
    find: Callable[[Store, Options, Callable[[str], None]], Findings]
    models: tuple[str, ...] = tuple(CONTENDERS)  # what it knows
    protocols: tuple[str, ...] = tuple(PROTOCOLS)

    def settle(self, options: Options) -> Options:
        """The options of a call, with the experiment's own where they say nothing."""
        given = {name: value for name, value in vars(options).items() if value}
        # Among several experiments each takes the names that it knows.
        for name, known in (("models", self.models), ("protocols", self.protocols)):
            given[name] = tuple(each for each in given.get(name, ()) if each in known)
            if not given[name]:
                del given[name]
        return dataclasses.replace(self.quick if options.quick else self.full, **given)


def described(options: Options) -> dict[str, Any]:
    """All that decides the numbers, in words."""
    chosen = QUICK if options.quick else PROTOCOLS
    stages = {name: describe_stages(each) for name, each in chosen.items() if name in (options.protocols or chosen)}
    # Where the measurements lie is no part of what was asked.
    asked = {name: value for name, value in dataclasses.asdict(options).items() if name != "data"}
    return asked | {"parameters": PARAMETERS, "stages": stages}


def run_experiment(
    experiment: Experiment,
    options: Options,
    out: Path,
    *,
    command: str,
    resume: bool,
    workers: int,
    seconds: float | None,
    tell: Callable[[str], None],
    show: bool = True,
) -> tuple[Path, Outcome]:
    """Compute what is missing, then write `out/NAME/`: tables, figures, report.html."""
    options = experiment.settle(options)
    folder = out / experiment.name
    open_folder(folder, described(options), command, force=False, resume=resume)
    wanted = experiment.wanted(options)
    until = None if seconds is None else time.monotonic() + seconds
    outcome = run_queue(wanted, out, workers=workers, seconds=seconds, tell=tell, show=show)
    store = Store(out, until)
    findings = Findings([], [])
    with unless_left(store):  # what an experiment cannot do without; it deals with the rest itself
        findings = experiment.find(store, options, tell)
    missing = [each for each in wanted if store.cell(each.job, each.seeds) is None]
    failures = [(each.job.key, store.failure(each.job) or _so_far(each, store)) for each in missing] + store.left
    outcome.interrupted = outcome.interrupted or any(reason == LATE for _, reason in store.left)
    outcome.failed |= {name: reason for name, reason in store.left if reason != LATE}
    lines = metric_lines((each.job for each in wanted), store, max((each.seeds for each in wanted), default=1))
    write_lines(folder / "metrics.jsonl.gz", lines)
    write_report(experiment, findings, folder, failures)
    return folder / "report.html", outcome


def _so_far(wanted: Wanted, store: Store) -> str:
    """Why a cell is not whole, where nothing failed."""
    cell = store.cell(wanted.job, wanted.seeds, fewer=True)
    found = "not computed yet" if cell is None else f"{len(cell.seeds)} of {wanted.seeds} seeds so far"
    return f"{found}: the same command with --resume goes on"


def write_report(experiment: Experiment, findings: Findings, folder: Path, failures: list[tuple[str, str]]) -> None:
    """Tables as CSV and Markdown, figures as PNG and PDF, and the page that shows them all."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    parts = [heading(f"twinfold bench {experiment.name}", experiment.title, findings.words)]
    markdown = [f"# {experiment.title}", "", experiment.about, "", *(f"- {line}" for line in findings.words), ""]
    for table in findings.tables:
        write_csv(folder / f"{table.name}.csv", table.rows)
        columns, cells = _cells(table)
        parts.append(f"<h2>{text(table.title)}</h2>{grid(columns, cells)}<p class='soft'>{text(table.caption)}</p>")
        markdown += [f"## {table.title}", "", *_markdown(columns, cells), "", table.caption, ""]
    for picture in findings.pictures:
        drawn = picture.draw()
        for kind in ("png", "pdf"):
            plot.save(drawn, folder / f"{picture.name}.{kind}")
        parts.append(figure(f"{picture.name}.png", picture.title, picture.caption))
        markdown += [f"![{picture.title}]({picture.name}.png)", "", picture.caption, ""]
    if findings.summary:
        write_text(folder / "summary.json", json.dumps(dict(findings.summary), indent=2) + "\n")
    if failures:
        parts.append("<h2>Missing</h2>" + pairs(failures))
        markdown += ["## Missing", "", *(f"- {name}: {why}" for name, why in failures), ""]
    parts += [
        "<h2>Settings</h2>",
        pairs([(name, str(value)) for name, value in config["settings"].items()]),
        "<h2>Versions and command</h2>",
        pairs(list(config["versions"].items())),
        f"<pre>{text(config['command'])}</pre>",
    ]
    write_text(folder / "tables.md", "\n".join(markdown).rstrip() + "\n")
    write_text(folder / "report.html", page(f"twinfold bench {experiment.name}", parts))


def _cells(table: Table) -> tuple[list[str], list[list[str]]]:
    columns = list(table.shown or (table.rows[0] if table.rows else ()))
    return columns, [[_shown(row.get(column)) for column in columns] for row in table.rows]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return number(value) if value >= 0 or not math.isfinite(value) else f"-{number(-value)}"
    return "" if value is None else str(value)


def _markdown(columns: list[str], cells: list[list[str]]) -> list[str]:
    return [
        "| " + " | ".join(columns) + " |",
        "|" + " --- |" * len(columns),
        *("| " + " | ".join(row) + " |" for row in cells),
    ]
