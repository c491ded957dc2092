"""What a check found, for people and for machines."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Severity = Literal["ok", "note", "warning", "problem"]
SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "problem")


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that was looked at: its `kind`, how bad it is, what it is in `words`, and the numbers in `detail`.

    `ok`: as it should be; `note`: good to know; `warning`: likely to cost accuracy; `problem`: will not work as it is.
    """

    kind: str
    severity: Severity
    words: str
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Examination:
    """All findings in the order in which they were looked for, and figures by name."""

    findings: tuple[Finding, ...]
    figures: "Mapping[str, Figure]" = field(default_factory=dict)

    @property
    def worst(self) -> Severity:
        """The highest severity among the findings."""
        return SEVERITIES[max((SEVERITIES.index(each.severity) for each in self.findings), default=0)]

    def of(self, kind: str, *severities: str) -> tuple[Finding, ...]:
        """The findings of one kind, of these severities where some are given."""
        return tuple(
            each for each in self.findings if each.kind == kind and (not severities or each.severity in severities)
        )

    def as_dict(self) -> dict[str, Any]:
        """Everything but the figures as plain JSON; a number that is not finite becomes None."""
        listed = [
            {"kind": each.kind, "severity": each.severity, "words": each.words, "detail": plain(each.detail)}
            for each in self.findings
        ]
        counts = {name: sum(each.severity == name for each in self.findings) for name in SEVERITIES}
        return {"worst": self.worst, "counts": counts, "findings": listed}


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def listing(names: "list[str] | tuple[str, ...]", most: int = 6) -> str:
    """Names for a sentence: all of a few, or the first ones and how many there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
