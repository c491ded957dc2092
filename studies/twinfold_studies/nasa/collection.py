"""Discharges of several cells, and a record of what was skipped."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from twinfold.io import unknown_name
from twinfold_studies.nasa.discharge import Discharge, Kind, location
from twinfold_studies.nasa.log import Log, Unusable, to_discharge
from twinfold_studies.nasa.quality import FLAGS

OnError = Literal["skip", "raise"]

DUPLICATE = "the cell was already read from another file"


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A file, cell or cycle that was not read, and the reason."""

    file: str
    cell: str
    cycle: int | None
    reason: str

    def __str__(self) -> str:
        return f"{location(self.file, self.cell, self.cycle)}: {self.reason}"


@dataclasses.dataclass(frozen=True, eq=False)
class Collection:
    """Discharges ordered by cell, kind and index; see `load`."""

    discharges: tuple[Discharge, ...]
    skipped: tuple[Skipped, ...] = ()

    def __len__(self) -> int:
        """Number of discharges."""
        return len(self.discharges)

    def __iter__(self) -> Iterator[Discharge]:
        return iter(self.discharges)

    def __getitem__(self, name: str) -> Discharge:
        """The discharge with this name ("B0005/0")."""
        if name in self._by_name:
            return self._by_name[name]
        raise KeyError(f"there is no discharge '{name}'; the cells are: {', '.join(self.cells) or 'none'}")

    @functools.cached_property
    def _by_name(self) -> dict[str, Discharge]:
        return {discharge.name: discharge for discharge in self.discharges}

    @property
    def cells(self) -> tuple[str, ...]:
        """The names of the cells, in order."""
        return tuple(self.by_cell())

    def by_cell(self) -> dict[str, list[Discharge]]:
        """The discharges of each cell, in order."""
        groups: dict[str, list[Discharge]] = {}
        for discharge in self.discharges:
            groups.setdefault(discharge.cell, []).append(discharge)
        return groups

    def select(
        self,
        *,
        cells: Sequence[str] | None = None,
        kind: Kind | None = None,
        flags: Sequence[str] | None = None,
        clean: bool = False,
        allow: Sequence[str] = (),
        first: int | None = None,
    ) -> "Collection":
        """The discharges that meet all conditions.

        **Arguments:** `cells`: of one of these; `kind`; `flags`: with at least one of these; `clean`: without flags,
        except remarks and those in `allow`; `first`: among the first discharges of their cell and kind, counting those
        that could not be read.
        """
        _check_names(cells, self.cells, "cells", "cell")
        _check_names(flags, FLAGS, "flags", "flag")
        _check_names(allow, FLAGS, "allow", "flag")
        chosen = tuple(
            discharge
            for discharge in self.discharges
            if (cells is None or discharge.cell in cells)
            and (kind is None or discharge.kind == kind)
            and (flags is None or any(discharge.has(name) for name in flags))
            and (not clean or all(flag.remark or flag.name in allow for flag in discharge.flags))
            and (first is None or discharge.index < first)
        )
        return dataclasses.replace(self, discharges=chosen)

    def counts(self) -> dict[str, int]:
        """The number of discharges with each flag, in the order of `FLAGS`, without zeros."""
        counted = Counter(flag.name for discharge in self.discharges for flag in discharge.flags)
        return {name: counted[name] for name in FLAGS if counted[name]}

    def table(self) -> list[dict[str, Any]]:
        """A row for each discharge: numbers, flags and reasons."""
        return [
            {
                "cell": discharge.cell,
                "kind": discharge.kind,
                "index": discharge.index,
                "start": "" if discharge.start is None else discharge.start.isoformat(sep=" ", timespec="seconds"),
                "ambient_C": discharge.ambient,
                "load_A": discharge.load_current,
                "published_Ah": discharge.published,
                "integrated_Ah": discharge.charge,
                "rest_V": discharge.rest_voltage,
                "end_V": discharge.end_voltage,
                "rows": len(discharge.time),
                "first": discharge.first,
                "last": discharge.last,
                "clean": discharge.clean,
                "flags": " ".join(flag.name for flag in discharge.flags),
                "reasons": "; ".join(f"{flag.name}: {flag.reason}" for flag in discharge.flags),
                "notes": "; ".join(discharge.notes),
                "file": discharge.file,
                "cycle": "" if discharge.cycle is None else discharge.cycle,
            }
            for discharge in self.discharges
        ]


@dataclasses.dataclass(eq=False)
class Builder:
    """Collects what the readers find; `on_error`: whether to skip unusable input or to raise."""

    on_error: OnError = "skip"
    repair: bool = True
    discharges: list[Discharge] = dataclasses.field(default_factory=list)
    skipped: list[Skipped] = dataclasses.field(default_factory=list)

    def add(self, log: Log) -> None:
        """Check a log and add its discharge, or refuse it."""
        try:
            self.discharges.append(to_discharge(log, repair=self.repair))
        except Unusable as error:
            which = f"{log.kind} {log.index}: " if log.cycle is None else ""
            self.refuse(log.file, log.cell, log.cycle, f"{which}{error}")

    def refuse(self, file: str, cell: str, cycle: int | None, reason: str) -> None:
        """Record unusable input, or raise a `ValueError`."""
        self.skip(file, cell, cycle, reason)
        if self.on_error == "raise":
            raise ValueError(f'{self.skipped[-1]}. Pass on_error="skip" to continue without it.')

    def skip(self, file: str, cell: str, cycle: int | None, reason: str) -> None:
        """Record input that need not be read."""
        self.skipped.append(Skipped(file, cell, cycle, reason))

    def has(self, cell: str, kinds: Sequence[Kind]) -> bool:
        """Whether there are discharges of the cell, of all these kinds."""
        return {each.kind for each in self.discharges if each.cell == cell} >= set(kinds)


def _check_names(names: Sequence[str] | None, known: Sequence[str], argument: str, kind: str) -> None:
    if isinstance(names, str):
        raise ValueError(f"{argument}={names!r}: pass a list.")
    for name in names or ():
        if name not in known:
            raise ValueError(f"{argument}: there is no {kind} {unknown_name(name, known)}")
