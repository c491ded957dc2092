"""Numerical properties: each part tests one property of good solvers that projection must preserve."""

from collections.abc import Callable

from twinfold_studies.bench.cache import record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options
from twinfold_studies.bench.store import Store
from twinfold_studies.numerics import adaptive, algebraic, degenerate, index, large, memory, orbit, row_order, stiff

PARTS = (orbit, stiff, adaptive, algebraic, index, large, memory, degenerate, row_order)


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """The findings of all parts; those that fail are skipped and listed."""
    findings: list[Findings] = []
    for part in PARTS:
        log(f"numerics: {part.__name__.rpartition('.')[2]}")
        with record_skips(store):
            findings.append(part.analyse(store, options.quick, log))
    return Findings(
        [line for part in findings for line in part.sentences],
        [table for part in findings for table in part.tables],
        [picture for part in findings for picture in part.pictures],
        {name: value for part in findings for name, value in part.summary.items()},
    )


NUMERICS = Experiment(
    "numerics",
    "Numerical properties",
    "A projected adaptive solver, stiff and implicit integrators, adaptive projection, algebraic variables, higher "
    "index, large systems, memory of long horizons, and degenerate constraints.",
    full=Options(),
    quick=Options(),
    requests=lambda options: [],
    analyse=analyse,
    timed=True,
)
