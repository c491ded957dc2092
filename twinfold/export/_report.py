"""What an export has written, and how far it is from the twin."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ExportReport:
    """The outcome of one export.

    `checked`: whether the numerical check was run and passed; the differences are relative, of one step from the same
    state and of a free run (None where they were not measured); `words` say it all in sentences, to be printed.
    """

    kind: str
    files: list[Path]
    checked: bool
    largest_difference: float | None
    free_running_difference: float | None
    size_bytes: int
    words: list[str] = field(default_factory=list)
