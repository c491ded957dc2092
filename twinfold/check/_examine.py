"""Everything that can be said of a system and its data before any training, each check by itself.

A check that cannot be made becomes a finding; it never stops the others.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence

from twinfold.check import _channels as channels
from twinfold.check import _figures as figures
from twinfold.check import _identify as identify
from twinfold.check import _invariant as invariant
from twinfold.check import _manifold as manifold
from twinfold.check import _physics as physics
from twinfold.check._finding import Examination, Finding
from twinfold.check._subject import BlockedError, Subject, subject_of
from twinfold.data import Dataset
from twinfold.model import Twin

CHECKS: tuple[tuple[str, Callable[[Subject], list[Finding]]], ...] = (
    ("shapes", channels.shapes),
    ("sampling", channels.sampling),
    ("missing", channels.missing),
    ("outliers", channels.outliers),
    ("noise", channels.noise),
    ("constant", channels.idle),
    ("physics", physics.runs),
    ("inputs", physics.inputs),
    ("sizes", physics.sizes),
    ("stability", physics.stability),
    ("initial", manifold.initial),
    ("rank", manifold.rank),
    ("invariant", invariant.holds),
    ("identify", identify.identifiable),
)


def examine(
    twin: Twin,
    data: Dataset,
    *,
    states: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
    seed: int = 0,
    plots: bool = True,
) -> Examination:
    """Look at a twin and its data before any training.

    **Arguments:** `twin`, as it was written (what it has learned is not looked at); `data`; `states`, the names of the
    states; `units` of states, outputs, inputs and of "t", by name; `seed` of the weights that the networks are drawn
    with where their derivatives are looked at; `plots=False` leaves the figures out (these need matplotlib).

    **Returns:** an `Examination`; see `show` to print it.
    """
    subject = subject_of(twin, data, states, units, seed)
    findings: list[Finding] = []
    drawn: dict = {}
    with warnings.catch_warnings():
        # Whatever a part would warn of is said in a finding.
        warnings.simplefilter("ignore")
        for kind, check in CHECKS:
            findings += _contained(kind, check, subject)
        if plots:
            drawn, failed = figures.all_of(subject, findings)
            findings += failed
    return Examination(tuple(findings), drawn)


def _contained(kind: str, check: Callable[[Subject], list[Finding]], subject: Subject) -> list[Finding]:
    try:
        return check(subject)
    except BlockedError:
        return [Finding(kind, "note", "Not looked at, since the twin does not run on these data (see physics).")]
    except Exception as error:
        words = f"This could not be checked: {type(error).__name__}: {error}"
        return [Finding(kind, "warning", words, {"error": type(error).__name__})]
