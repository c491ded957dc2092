"""Numerics that do not break: each part shows one thing that a good solver can do and a projection must keep."""

from collections.abc import Callable

from twinfold_studies.bench.experiment import Experiment, Findings, Options
from twinfold_studies.bench.kept import unless_left
from twinfold_studies.bench.store import Store
from twinfold_studies.numerics import adaptive, algebraic, degenerate, index, large, memory, orbit, stiff

PARTS = (orbit, stiff, adaptive, algebraic, index, large, memory, degenerate)


def find(store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
    """All parts, one under the other; one that fails is left out and named."""
    found: list[Findings] = []
    for part in PARTS:
        tell(f"numerics: {part.__name__.rpartition('.')[2]}")
        with unless_left(store):
            found.append(part.find(store, options.quick, tell))
    return Findings(
        [line for part in found for line in part.words],
        [table for part in found for table in part.tables],
        [picture for part in found for picture in part.pictures],
        {name: value for part in found for name, value in part.summary.items()},
    )


NUMERICS = Experiment(
    "numerics",
    "Numerics that do not break",
    "A projected adaptive solver, stiff and implicit integrators, projection that adapts, algebraic variables, higher "
    "index, large systems, memory of long horizons, and degenerate constraints.",
    full=Options(),
    quick=Options(),
    wanted=lambda options: [],
    find=find,
)
