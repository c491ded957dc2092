"""Samples from lines of text: CSV with a header, or JSON lines. Every line becomes a sample or a complaint.

The first line decides: one that begins with a brace is JSON, otherwise lines are left out until there is a header with
the column of times.
"""

import csv
import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from twinfold.data._readers.csv_file import EMPTY
from twinfold.follow._lines import MAX_LINE, Line
from twinfold.io._names import MAX_NAME_LENGTH, check_name

ASSET = "plant"  # the name of the only one
MAX_NOTES = 50  # unknown columns that are named


class Sample(NamedTuple):
    """A sample of one asset; NaN where a value is missing."""

    line: int
    asset: str
    t: float
    w: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class SampleLayout:
    """Which columns a sample has, as in [data] of a configuration.

    `assets`: columns that may name the asset; the first that is there does. `columns`: for a name used here, that of
    its column; `scale`, `offset`: a value becomes value * scale + offset; `missing`: values that mark a missing one.
    """

    time: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    assets: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    scale: Mapping[str, float] = field(default_factory=dict)
    offset: Mapping[str, float] = field(default_factory=dict)
    missing: Sequence[float | int | str] = ()

    def column(self, name: str) -> str:
        """The column of a name."""
        return self.columns.get(name, name)


class SampleReader:
    """Samples, line by line. `notes` collects what is worth a message and is no fault of one line."""

    def __init__(self, layout: SampleLayout):
        self.layout = layout
        self.notes: list[str] = []
        self._header: list[str] | None = None
        self._places: dict[str, int] = {}
        self._json: bool | None = None
        self._unknown: set[str] = set()
        self._known = {layout.column(name) for name in (layout.time, *layout.inputs, *layout.outputs, *layout.assets)}
        self._absent = {str(each).strip() for each in layout.missing} | set(EMPTY)
        self._absent_numbers = {float(each) for each in layout.missing if not isinstance(each, str)}
        self._time = layout.column(layout.time)

    @property
    def begun(self) -> bool:
        """Whether it is known what the lines are."""
        return self._json is not None

    def begin(self, line: Line) -> str:
        """Take a line before the first sample; a complaint if it is neither a header nor JSON."""
        text, complaint = self._text(line)
        if complaint or not text.strip():
            return complaint
        if text.lstrip().startswith("{"):
            self._json = True
            return ""
        return self._read_header(text)

    def read(self, line: Line) -> tuple[Sample | None, str]:
        """The sample in a line, and a complaint: without a sample, the line was left out; with one, a part of it."""
        text, complaint = self._text(line)
        if complaint or not text.strip():
            return None, complaint
        return self._from_json(line.number, text) if self._json else self._from_csv(line.number, text)

    def _text(self, line: Line) -> tuple[str, str]:
        if line.too_long:
            return "", f"longer than {MAX_LINE} bytes: left out"
        try:
            text = line.content.decode("utf-8-sig" if line.number == 1 else "utf-8")
        except UnicodeDecodeError:
            return "", "not text in UTF-8: left out"
        return ("", "it contains NUL: left out") if "\0" in text else (text, "")

    def _read_header(self, text: str) -> str:
        names = [name.strip() for name in _cells(text)]
        if self._time not in names:
            return f"no header with the column {self._time!r} of the times: left out"
        lacking = [name for name in self.layout.inputs if self.layout.column(name) not in names]
        if lacking:
            raise ValueError(f"The header has no column for the input {', '.join(lacking)}; it has {_shown(names)}.")
        twice = sorted({name for name in names if names.count(name) > 1 and name in self._known})
        if twice:
            raise ValueError(f"The header has two columns {_shown(twice)}; remove or rename one.")
        if absent := [name for name in self.layout.outputs if self.layout.column(name) not in names]:
            self.notes.append(f"There is no column for {_shown(absent)}: nothing is measured there.")
        self._note_unknown(names)
        self._header, self._json = names, False
        self._places = {name: place for place, name in enumerate(names)}
        return ""

    def _from_csv(self, number: int, text: str) -> tuple[Sample | None, str]:
        assert self._header is not None
        cells = _cells(text)
        if len(cells) != len(self._header):
            return None, f"{len(cells)} cells, the header has {len(self._header)}: left out"
        if cells[self._places[self._time]].strip() == self._time:
            return None, ""  # the header again, as of a logger that was restarted
        return self._sample(number, {name: cells[place] for name, place in self._places.items() if name in self._known})

    def _from_json(self, number: int, text: str) -> tuple[Sample | None, str]:
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            return None, f"not JSON ({str(error)[:80]}): left out"
        if not isinstance(table, dict):
            return None, "not a JSON object: left out"
        self._note_unknown(table)
        return self._sample(number, table)

    def _sample(self, number: int, cells: Mapping[str, Any]) -> tuple[Sample | None, str]:
        layout, complaints = self.layout, []
        asset = next((cells[name] for name in map(layout.column, layout.assets) if name in cells), ASSET)
        if isinstance(asset, bool) or not isinstance(asset, str | int | float):
            return None, "the name of the asset is not a text: left out"
        try:
            name = check_name(str(asset).strip() if len(str(asset)) <= 2 * MAX_NAME_LENGTH else "x" * 1000, "asset")
        except ValueError:
            return None, "the name of the asset is empty, too long, or has control characters: left out"
        t = self._number(layout.time, cells.get(self._time), complaints, time=True)
        if complaints or math.isnan(t):
            return None, f"{complaints[0] if complaints else 'the time is missing'}: left out"
        w, y = (
            tuple(self._number(each, cells.get(layout.column(each)), complaints) for each in names)
            for names in (layout.inputs, layout.outputs)
        )
        return Sample(number, name, t, w, y), f"{'; '.join(complaints)}: taken as missing" if complaints else ""

    def _number(self, name: str, cell: Any, complaints: list[str], *, time: bool = False) -> float:
        """A value in the units of the twin; NaN, with a complaint, where there is none."""
        if cell is None:
            return math.nan
        try:
            if isinstance(cell, str):
                text = cell.strip()
                if text in self._absent:
                    return math.nan
                value = _timestamp(text) if time and ":" in text else float(text if "_" not in text else "?")
            elif isinstance(cell, bool) or not isinstance(cell, int | float):
                raise ValueError(cell)
            else:
                value = float(cell)
        except (ValueError, OverflowError):
            complaints.append(f"{name}: {_shown([str(cell)])} is not a {'time' if time else 'number'}")
            return math.nan
        if not math.isfinite(value) or value in self._absent_numbers:
            return math.nan
        return value * self.layout.scale.get(name, 1.0) + self.layout.offset.get(name, 0.0)

    def _note_unknown(self, names: Any) -> None:
        new = [name for name in names if name not in self._known and name not in self._unknown]
        if new and len(self._unknown) < MAX_NOTES:
            self._unknown |= set(new[:MAX_NOTES])
            self.notes.append(f"Columns that are not used: {_shown(new)}.")


def _cells(text: str) -> list[str]:
    return next(csv.reader([text]), []) if '"' in text else text.split(",")


def _timestamp(text: str) -> float:
    """Seconds since 1970 of a date and time; in UTC unless it says otherwise."""
    moment = datetime.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _shown(names: Sequence[str]) -> str:
    """Names from outside as a terminal can show them, and not too many."""
    shown = [ascii(name)[1:-1][:40] for name in names[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
