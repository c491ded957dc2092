"""CSV files to pandas tables; each row has a line of the file, for messages."""

import contextlib
import csv
import gzip
import io
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from twinfold.data._readers.limits import MAX_COLUMNS, TooLarge, check_column_count, max_unpacked_bytes
from twinfold.data._readers.table import pandas_module

MAX_HEADER_BYTES = 2**21
# Cells of numbers that are empty, as pandas has them by default. A cell of text is empty only if nothing is in it.
EMPTY = ("", "NaN", "nan", "-NaN", "-nan", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NULL", "null",
         "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN")  # fmt: skip
NO_TABLE = "the file is not a comma-separated table"
# OverflowError: a number of thousands of digits.
DAMAGED = (OverflowError, EOFError, zlib.error, gzip.BadGzipFile, csv.Error)


def read_csv(path: Path, *, time: str, text_columns: Sequence[str]) -> Any:
    """The table in a comma-separated file; see `read_file`."""
    try:
        header = _read_header(path)
        check_column_count(len(header))
        _check_separator(header, time)
        return _parse(path, header, text_columns)
    except DAMAGED as error:
        raise ValueError(f"{path}: {NO_TABLE}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def csv_place(path: Path, row: int) -> str:
    """Where a row of the table is in the file: its line, as an editor counts them."""
    with contextlib.suppress(csv.Error), _opened_text(path) as text:  # an error: a cell of more than 131072 characters
        for index, (line, _) in enumerate(_records(text)):
            if index == row + 1:
                return f"line {line}"
    return f"row {row} after the header"


def _read_header(path: Path) -> list[str]:
    """The names of the columns. Only the beginning of the file is read, for it may have no end of line."""
    with _opened(path) as file:
        content = file.read(MAX_HEADER_BYTES + 1)
    lines = io.StringIO(content.decode("utf-8-sig", errors="replace"), newline="")
    try:
        _, header = next(_records(lines), (0, None))
    except csv.Error as error:  # a cell of more than 131072 characters
        raise ValueError(f"the file has no header: its first line has a {error}.") from None
    if header is None:
        raise ValueError("the file is empty; it must have a header and rows.")
    if len(content) > MAX_HEADER_BYTES and not lines.readline():
        raise ValueError(
            f"the file has no header: its first line is longer than {MAX_HEADER_BYTES >> 20} MiB (at most "
            f"{MAX_COLUMNS} columns are read)."
        )
    return header


def _check_separator(header: list[str], time: str) -> None:
    line = ",".join(header)
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        columns = [column.strip(' "') for column in line.split(separator)]
        if time not in header and (time in columns or len(columns) > len(header)):
            raise ValueError(
                f"the columns are separated by {name}; write the file with commas between the columns and points in "
                "the numbers, not with decimal commas."
            )


def _parse(path: Path, header: list[str], text_columns: Sequence[str]) -> Any:
    pd = pandas_module()
    options: dict[str, Any] = {"index_col": False, "skipinitialspace": True, "low_memory": False}
    # Up to 3.0, pandas may miss the last bit of a number unless asked; from 3.1 on the option is deprecated.
    if tuple(int(part) for part in pd.__version__.split(".")[:2]) < (3, 1):
        options["float_precision"] = "round_trip"
    # By position, with one more: pandas drops an empty column behind the last one.
    empty = {index: ("",) if name in text_columns else EMPTY for index, name in enumerate([*header, ""])}
    options |= {"keep_default_na": False, "na_values": empty, "dtype": dict.fromkeys(text_columns, str)}
    try:
        with warnings.catch_warnings(), _opened(path) as file:
            # pandas only warns when it drops cells of a row that is longer than the header.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(file, **options)
    except TooLarge:
        raise
    except (ValueError, pd.errors.ParserWarning) as error:
        reason = _long_row(path, len(header)) or str(error).strip()
        raise ValueError(f"{NO_TABLE}: {reason}") from None
    if len(header) != len(frame.columns):
        return frame
    # pandas renames the second of two columns with the same name; `check_columns` refuses both.
    return frame.set_axis([name or given for name, given in zip(header, frame.columns, strict=True)], axis=1)


def _long_row(path: Path, columns: int) -> str:
    """What is wrong with the first row that is longer than the header; "" if none is."""
    with contextlib.suppress(*DAMAGED), _opened_text(path) as text:
        for line, record in _records(text):
            if len(record) > columns + (record[-1] == ""):
                return (
                    f"line {line} has {len(record)} cells, the header {columns}. Write numbers with points, not with "
                    "decimal commas, and texts that contain commas in quotes."
                )
    return ""


def _records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The records that pandas reads, each with the number of its first line: blank lines are none."""
    text, line = "", 1
    reader = csv.reader((text := each for each in lines), skipinitialspace=True)
    for record in reader:
        if len(record) > 1 or text.strip(" \t\r\n"):
            yield line, record
        line = reader.line_num + 1


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, unpacked if its name ends in .gz."""
    if not path.name.lower().endswith(".gz"):
        with path.open("rb") as file:
            yield file
        return
    with gzip.open(path) as packed:
        bounded = _Bounded(packed, max_unpacked_bytes(path))
        yield io.BufferedReader(bounded, buffer_size=2**20)


@contextlib.contextmanager
def _opened_text(path: Path) -> Iterator[IO[str]]:
    with _opened(path) as file:
        yield io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")


class _Bounded(io.RawIOBase):
    """A stream that refuses to deliver more than `limit` bytes."""

    def __init__(self, stream: gzip.GzipFile, limit: int):
        self.stream, self.limit, self.count = stream, limit, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self.stream.read(len(buffer))
        self.count += len(content)
        if self.count > self.limit:
            raise TooLarge(self.limit)
        buffer[: len(content)] = content
        return len(content)
