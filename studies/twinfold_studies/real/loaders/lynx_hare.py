"""Pelts of lynx and hare that the Hudson's Bay Company bought from 1900 to 1920."""

from pathlib import Path

from twinfold_studies.real.table import Records, numbers, read_columns


def load(folder: Path) -> Records:
    """The record "pelts": t [years since 1900], lynx and hare [thousands]."""
    columns = read_columns(folder / "lynx_hare.csv")
    year = numbers(columns, "year")
    return {
        "pelts": {
            "t": year - year[0],
            "lynx": numbers(columns, "lynx_thousand_pelts"),
            "hare": numbers(columns, "hare_thousand_pelts"),
        }
    }
