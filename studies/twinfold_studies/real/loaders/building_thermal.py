"""A test cell under the sun (S. Rouchier): temperature indoors, every 30 minutes for 90 hours."""

from pathlib import Path

from twinfold_studies.real.table import Records, numbers, read_columns

HOUR, KILO = 3600.0, 1000.0


def load(folder: Path) -> Records:
    """The record "cell": t [h], T_out [degC], heat [kW], sun [kW/m^2], T_in [degC]."""
    columns = read_columns(folder / "rouchier_testcell.csv")
    return {
        "cell": {
            "t": numbers(columns, "t_s") / HOUR,
            "T_out": numbers(columns, "T_out_C"),
            "heat": numbers(columns, "Q_heat_W") / KILO,
            "sun": numbers(columns, "I_sol_W_m2") / KILO,
            "T_in": numbers(columns, "T_in_C"),
        }
    }
