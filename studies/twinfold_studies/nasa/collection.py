"""Discharges of several cells, to select from, with the record of what was left out and why."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from twinfold.io import unknown_name
from twinfold_studies.nasa.discharge import Discharge, Kind, place
from twinfold_studies.nasa.log import Log, Unusable, to_discharge
from twinfold_studies.nasa.quality import FLAGS

OnError = Literal["skip", "raise"]

READ_ALREADY = "the cell was read from another file already"


@dataclasses.dataclass(frozen=True)
class Skipped:
    """What was not read: a file, a cell or a cycle, and the reason."""

    file: str
    cell: str
    cycle: int | None
    reason: str

    def __str__(self) -> str:
        return f"{place(self.file, self.cell, self.cycle)}: {self.reason}"


@dataclasses.dataclass(frozen=True, eq=False)
class Collection:
    """Discharges in the order of cell, kind and index; see `load`."""

    discharges: tuple[Discharge, ...]
    skipped: tuple[Skipped, ...] = ()

    def __len__(self) -> int:
        """Number of discharges."""
        return len(self.discharges)

    def __iter__(self) -> Iterator[Discharge]:
        return iter(self.discharges)

    def __getitem__(self, name: str) -> Discharge:
        """The discharge of this name ("B0005/0")."""
        if name in self._by_name:
            return self._by_name[name]
        raise KeyError(f"there is no discharge '{name}'; the cells are: {', '.join(self.cells) or 'none'}")

    @functools.cached_property
    def _by_name(self) -> dict[str, Discharge]:
        return {discharge.name: discharge for discharge in self.discharges}

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells, in their order."""
        return tuple(self.by_cell())

    def by_cell(self) -> dict[str, list[Discharge]]:
        """The discharges of each cell, in their order."""
        found: dict[str, list[Discharge]] = {}
        for discharge in self.discharges:
            found.setdefault(discharge.cell, []).append(discharge)
        return found

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
        """The discharges that meet every condition given.

        **Arguments:** `cells`, of one of these; `kind`; `flags`, with at least one of these; `clean`, without any flag
        but remarks and those that `allow` names; `first`, those among the first so many of their cell and kind,
        counting what could not be read.
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
        """How many discharges carry each flag, in the order of `FLAGS`, without those that none carries."""
        counted = Counter(flag.name for discharge in self.discharges for flag in discharge.flags)
        return {name: counted[name] for name in FLAGS if counted[name]}

    def table(self) -> list[dict[str, Any]]:
        """One row for each discharge: its numbers, flags and their reasons."""
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
class Tray:
    """Where the readers put what they find; `on_error` says what becomes of what cannot be used."""

    on_error: OnError = "skip"
    repair: bool = True
    discharges: list[Discharge] = dataclasses.field(default_factory=list)
    skipped: list[Skipped] = dataclasses.field(default_factory=list)

    def add(self, log: Log) -> None:
        """Check a log and keep its discharge, or refuse it."""
        try:
            self.discharges.append(to_discharge(log, repair=self.repair))
        except Unusable as error:
            which = f"{log.kind} {log.index}: " if log.cycle is None else ""
            self.refuse(log.file, log.cell, log.cycle, f"{which}{error}")

    def refuse(self, file: str, cell: str, cycle: int | None, reason: str) -> None:
        """Record what cannot be used, or raise a `ValueError`."""
        self.leave(file, cell, cycle, reason)
        if self.on_error == "raise":
            raise ValueError(f'{self.skipped[-1]}. Pass on_error="skip" to go on without it.')

    def leave(self, file: str, cell: str, cycle: int | None, reason: str) -> None:
        """Record what nobody needs to read."""
        self.skipped.append(Skipped(file, cell, cycle, reason))

    def holds(self, cell: str, kinds: Sequence[Kind]) -> bool:
        """Whether discharges of the cell are there already, of every one of these kinds."""
        return {each.kind for each in self.discharges if each.cell == cell} >= set(kinds)


def _check_names(names: Sequence[str] | None, known: Sequence[str], argument: str, what: str) -> None:
    if isinstance(names, str):
        raise ValueError(f"{argument}={names!r}: give a list.")
    for name in names or ():
        if name not in known:
            raise ValueError(f"{argument}: there is no {what} {unknown_name(name, known)}")
