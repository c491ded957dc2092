"""The result of one check, for people and for machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Severity = Literal["ok", "note", "warning", "problem"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True, eq=False)
class Finding:
    """The result of one check: its `kind`, `severity` and `message`, and the numbers in `detail`.

    `ok`: as it should be; `note`: good to know; `warning`: likely to cost accuracy; `problem`: must be changed.

    **Example:**

    ```python
    finding = tw.check.Finding("gaps", "warning", "1 gap in the samples.", {"count": 1})
    finding.severity == "problem"  # False
    ```
    """

    kind: str
    severity: Severity
    message: str
    detail: Mapping[str, Any] = field(default_factory=dict)


def join_names(names: Sequence[str], limit: int = 6) -> str:
    """Return "a, b and 3 more": at most `limit` names, and the number of the others."""
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"
