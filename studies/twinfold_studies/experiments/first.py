"""The first attempt of a new user beside ten designs, on public records and a synthetic one; the time it takes."""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from twinfold.report import format_number
from twinfold_studies.bench.cache import Skipped, cached, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.first.commands import time_commands
from twinfold_studies.first.fits import fit_design
from twinfold_studies.first.project import FIRST, PROJECTS, Project

QUICK_DESIGNS = (FIRST, "width 6", "l2 1e-3")
COLUMNS = ("record", "design", "chosen", "valid_error", "test_error", "test_rmse", "ratio", "seconds")
CAPTION = (
    "Errors: root mean square of measured minus predicted over the samples after the warm-up, each output divided by "
    "its standard deviation in the training record; test_rmse in the unit of the record, where it has one output. "
    "chosen: the design with the least validation error. ratio: test error over that of the best design on the test "
    "record. seconds: the fit alone, with compilation."
)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """A row for each design, a row for each record, and the time of the commands on the synthetic record."""
    projects = [PROJECTS["drive"]] if options.quick else list(PROJECTS.values())
    rows: list[dict[str, Any]] = []
    sentences, summary = [], {}
    for project in projects:
        with record_skips(store):
            found = _designs(project, store, options, log)
            rows += found
            sentences.append(_sentence(project, found))
            summary[f"ratio_{project.name}"] = next(row["ratio"] for row in found if row["design"] == FIRST)
    tables = [
        Table("designs", "Errors of all designs", rows, COLUMNS, CAPTION),
        Table("settings", "What each design changes", [_settings(*each) for each in _listed(projects)]),
    ]
    if not options.quick:
        with record_skips(store):
            log("first: time of the commands")
            timed = cached(store, "first-commands", ["drive"], lambda: time_commands(PROJECTS["drive"]))
            total = {key: sum(row[key] for row in timed) for key in ("wall_s", "cpu_s")}
            sentences.append(
                "new, check, fit, evaluate and report on the synthetic record, nothing compiled before: "
                f"{total['cpu_s']:.0f} s of machine time, {total['wall_s']:.0f} s on the clock (load of the machine "
                f"{timed[0]['load']:.1f})."
            )
            summary |= {f"commands_{key}": value for key, value in total.items()}
            tables.append(Table("commands", "Time of the commands on the synthetic record", timed))
    return Findings(sentences, tables, summary=summary)


def _designs(project: Project, store: Store, options: Options, log: Callable[[str], None]) -> list[dict[str, Any]]:
    """The rows of a record, in the order of its designs."""
    names = QUICK_DESIGNS if options.quick else tuple(project.designs)
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / project.name
        try:
            project.write(folder, options.data)
        except FileNotFoundError as error:
            raise Skipped(f"first-{project.name}", str(error)) from None
        made, system = _digest(folder), project.open(folder, FIRST).load_system()
        for name in names:
            log(f"first: {project.name}, {name}")
            settings = [made, project.warmup, project.designs[name], options.quick]
            with record_skips(store):  # the other designs are compared without it
                found[name] = cached(
                    store,
                    f"first-{project.name}",
                    settings,
                    lambda name=name: fit_design(project, folder, name, system, quick=options.quick),
                )
            if not all(change.startswith("loss.") for change in project.designs[name]):
                jax.clear_caches()  # dozens of compiled programs exceed what one process may map
    jax.clear_caches()
    if FIRST not in found:
        raise Skipped(f"first-{project.name}", "the first attempt is missing")
    return design_rows(project, found)


def _digest(folder: Path) -> str:
    """A fingerprint of all files of a project."""
    contents = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()]
    return hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]


def design_rows(project: Project, found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The errors of all designs of a record, which of them validation chooses, and their ratio to the best on test."""
    best = min(each["test_before"] for each in found.values())
    chosen = min(found, key=lambda name: found[name]["valid"])
    return [
        {
            "record": project.name,
            "design": name,
            "chosen": name == chosen,
            "valid_error": each["valid"],
            "test_error": each["test_before"],
            "test_rmse": each["test_before"] * each["scale"][0] if len(each["scale"]) == 1 else np.nan,
            "unit": project.unit,
            "ratio": each["test_before"] / best,
            "weights": each["weights"],
            "seconds": each["seconds"],
        }
        for name, each in found.items()
    ]


def _sentence(project: Project, rows: Sequence[dict[str, Any]]) -> str:
    first = next(row for row in rows if row["design"] == FIRST)
    best, chosen = min(rows, key=lambda row: row["test_error"]), next(row for row in rows if row["chosen"])
    return (
        f"{project.name} ({project.title}): the first attempt has {format_number(first['test_error'])} on the test "
        f"record, {first['ratio']:.2f} times the best of {len(rows)} designs ({best['design']}); the design that "
        f"validation chooses ({chosen['design']}) has {chosen['ratio']:.2f} times the best."
    )


def _listed(projects: Sequence[Project]) -> list[tuple[Project, str]]:
    return [(project, name) for project in projects for name in project.designs]


def _settings(project: Project, name: str) -> dict[str, str]:
    changes = ", ".join(project.designs[name]) or "the settings of `twinfold new`"
    return {"record": project.name, "design": name, "changes": changes}


FIRST_ATTEMPT = Experiment(
    "first",
    "The first attempt",
    "The settings of a new project beside ten designs, on public records and a synthetic one, and the time it takes.",
    full=Options(),
    quick=Options(),
    requests=lambda options: [],
    analyse=analyse,
    timed=True,
)
