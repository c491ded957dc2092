"""Thermal isomerisation of alpha-pinene at 189.5 degC (Fuguitt and Hawkins 1947): five species at nine times.

The sum of the five is 100 % up to 0.4. Box, Hunter, MacGregor and Erjavec (Technometrics 15, 1973) note that pyronene
was not measured by itself, and that the sum was partly imposed.
"""

from pathlib import Path

from twinfold_studies.real.table import Records, numbers, read_columns

SPECIES = ("alpha_pinene", "dipentene", "alloocimene", "pyronene", "dimer")


def load(folder: Path) -> Records:
    """The record "batch": t [min] and the weight of each of `SPECIES` [%]; its first row is the initial state."""
    columns = read_columns(folder / "alpha_pinene.csv")
    names = {name: f"y{index}_{name}_pct" for index, name in enumerate(SPECIES, start=1)}
    return {"batch": {"t": numbers(columns, "t_min")} | {name: numbers(columns, key) for name, key in names.items()}}
