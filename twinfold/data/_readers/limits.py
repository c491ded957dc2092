"""Limits for files that are larger inside than outside: a damaged or forged file must not exhaust the memory."""

from pathlib import Path

MAX_COLUMNS = 10_000
MAX_EXPANSION = 50  # times the size of the file; measurements rarely exceed 20
FREE_BYTES = 2**26  # of any file; pandas needs up to 20 times as much to read a text of this size


class TooLarge(ValueError):
    """The contents of a file exceed `limit` bytes."""

    def __init__(self, limit: int):
        ValueError.__init__(
            self,
            f"its contents exceed {limit >> 20} MiB and {MAX_EXPANSION} times its own size, unlike measurements; it "
            "may be damaged. If it is not, load it with another program and pass the table.",
        )


def max_unpacked_bytes(path: Path) -> int:
    """How many bytes the contents of a file may have."""
    return max(FREE_BYTES, MAX_EXPANSION * path.stat().st_size)


def check_column_count(count: int) -> None:
    """Raise a `ValueError` for a table of more than `MAX_COLUMNS` columns."""
    if count > MAX_COLUMNS:
        raise ValueError(f"the table has {count} columns; at most {MAX_COLUMNS} are read. Is it transposed?")
