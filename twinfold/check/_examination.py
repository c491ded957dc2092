"""All checks of a twin and its data before any training.

A check that fails to run becomes a finding; it does not stop the others.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from twinfold.check._channels import (
    check_constant,
    check_missing,
    check_noise,
    check_outliers,
    check_sampling,
    check_shapes,
)
from twinfold.check._figures import draw_figures
from twinfold.check._finding import SEVERITIES, Finding, Severity
from twinfold.check._identifiability import check_identifiability
from twinfold.check._invariant import check_invariants
from twinfold.check._manifold import check_initial_states, check_rank
from twinfold.check._physics import check_inputs, check_simulation, check_stability, check_state_sizes
from twinfold.check._saturation import check_saturation
from twinfold.check._subject import BlockedError, Subject
from twinfold.check._timing import check_timing
from twinfold.data import Dataset
from twinfold.io import json_safe
from twinfold.model import Twin

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

CHECKS: tuple[tuple[str, Callable[[Subject], list[Finding]]], ...] = (
    ("shapes", check_shapes),
    ("sampling", check_sampling),
    ("missing", check_missing),
    ("outliers", check_outliers),
    ("noise", check_noise),
    ("saturation", check_saturation),
    ("constant", check_constant),
    ("physics", check_simulation),
    ("inputs", check_inputs),
    ("timing", check_timing),
    ("sizes", check_state_sizes),
    ("stability", check_stability),
    ("initial", check_initial_states),
    ("rank", check_rank),
    ("invariant", check_invariants),
    ("identify", check_identifiability),
)
STYLES: dict[Severity, str] = {"ok": "green", "note": "cyan", "warning": "yellow", "problem": "bold red"}


@dataclass(frozen=True, eq=False)
class Examination:
    """The findings in the order of the checks, and figures by name.

    **Example:**

    ```python
    finding = tw.check.Finding("gaps", "warning", "1 gap in the samples.", {"count": 1})
    examination = tw.check.Examination((finding,))
    examination.worst  # "warning"
    examination.select("gaps")[0].detail["count"]  # 1
    examination.show()
    ```
    """

    findings: tuple[Finding, ...]
    figures: "Mapping[str, Figure]" = field(default_factory=dict)

    @property
    def worst(self) -> Severity:
        """The highest severity among the findings."""
        return SEVERITIES[max((SEVERITIES.index(each.severity) for each in self.findings), default=0)]

    @property
    def counts(self) -> dict[Severity, int]:
        """The number of findings of each severity."""
        return {name: sum(each.severity == name for each in self.findings) for name in SEVERITIES}

    @property
    def serious(self) -> tuple[Finding, ...]:
        """The warnings and problems."""
        return tuple(each for each in self.findings if each.severity in ("warning", "problem"))

    def select(self, kind: str, *severities: str) -> tuple[Finding, ...]:
        """Return the findings of one kind, of these severities if any are given."""
        return tuple(
            each for each in self.findings if each.kind == kind and (not severities or each.severity in severities)
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the figures as plain JSON; non-finite numbers become None."""
        return {
            "worst": self.worst,
            "counts": self.counts,
            "findings": [json_safe(vars(each)) for each in self.findings],
        }

    def show(self, console: "Console | None" = None) -> None:
        """Print every finding, and the number of each severity."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console() if console is None else console
        table = Table(box=None, show_header=False, padding=(0, 1))
        for wrap in (False, False, True):
            table.add_column(no_wrap=not wrap, overflow="fold" if wrap else "ellipsis")
        for each in self.findings:
            table.add_row(Text(each.severity, STYLES[each.severity]), Text(each.kind, "bold"), Text(each.message))
        console.print(table)
        counts = [
            f"{count} {name}{'s' if count > 1 else ''}" for name, count in self.counts.items() if count and name != "ok"
        ]
        console.print(Text(", ".join(counts) or "No problems found.", STYLES[self.worst]))


def examine(
    twin: Twin,
    data: Dataset,
    *,
    states: Sequence[str] | None = None,
    units: Mapping[str, str] | None = None,
    seed: int = 0,
    plots: bool = True,
) -> Examination:
    """Check a twin and its data before any training.

    **Arguments:** `twin`, as written (learned weights are not used); `data`; `states`, the names of the states; `units`
    of states, outputs, inputs and of "t", by name; `seed` of the weights that the networks are drawn with where their
    derivatives are checked; `plots=False` draws no figures (they need matplotlib).

    **Returns:** an `Examination`.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, np.exp(-0.7 * ts)[None, :, None])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})
    examination = tw.check.examine(twin, data, plots=False)
    [finding.message for finding in examination.findings if finding.severity == "problem"]  # []
    ```
    """
    subject = Subject(twin, data, None if states is None else tuple(states), dict(units or {}), seed)
    findings: list[Finding] = []
    figures: dict[str, Figure] = {}
    with warnings.catch_warnings():
        # The findings report whatever a part would warn of.
        warnings.simplefilter("ignore")
        for kind, check in CHECKS:
            findings += _run_check(kind, check, subject)
        if plots:
            figures, failed = draw_figures(subject, findings)
            findings += failed
    return Examination(tuple(findings), figures)


def _run_check(kind: str, check: Callable[[Subject], list[Finding]], subject: Subject) -> list[Finding]:
    try:
        return check(subject)
    except BlockedError:
        return [Finding(kind, "note", "Not checked, since the twin does not run on these data (see physics).")]
    except Exception as error:
        message = f"This check failed: {type(error).__name__}: {error}"
        return [Finding(kind, "warning", message, {"error": type(error).__name__})]
