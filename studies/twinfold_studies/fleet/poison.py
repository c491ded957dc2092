"""A fleet with broken partitions: each is reported by its name, and the rest is as if they were not there."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from twinfold.fleet import fit_fleet, read_fleet
from twinfold_studies.fleet.cells import SCALARS, cell_twin
from twinfold_studies.fleet.speed import COLUMNS, write_once


def poisoned(folder: Path, cells: int, of_file: int, **lengths: int) -> dict[str, Any]:
    """Fit a fleet whose partitions are a truncated one, one without a column, one of NaN, and some good ones."""
    source, bad, out, clean = (folder / name for name in ("sound", "poisoned", "out-poisoned", "out-sound"))
    write_once(source, cells, of_file=of_file, **lengths)
    for each in (bad, out, clean):
        shutil.rmtree(each, ignore_errors=True)
    shutil.copytree(source, bad)
    first = sorted(source.iterdir())[0]
    whole, table = first.read_bytes(), pd.read_parquet(first)
    (bad / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    renamed = table.assign(cell="schema " + table["cell"]).rename(columns={"voltage": "volts"})
    renamed.to_parquet(bad / "schema.parquet", index=False)
    table.assign(cell="nan " + table["cell"], voltage=float("nan")).to_parquet(bad / "nan.parquet", index=False)
    options: dict[str, Any] = {"parameters": SCALARS, **COLUMNS}
    fit_fleet(cell_twin(), source, clean, **options)
    done = fit_fleet(cell_twin(), bad, out, **options)
    rows = read_fleet(out)
    named = {
        "truncated": [reason for name, reason in done.failures.items() if "truncated.parquet" in name],
        "schema": _reasons(rows, "schema "),
        "nan": _reasons(rows, "nan "),
    }
    sound = read_fleet(clean)
    rest = rows[rows["asset"].isin(sound["asset"])].reset_index(drop=True)
    same = len(rest) == len(sound) and rest.astype(sound.dtypes).equals(sound)  # a failed asset has no whole numbers
    reasons = {kind: found[0] if found and all(found) else "" for kind, found in named.items()}
    return reasons | {"named": sum(bool(reason) for reason in reasons.values()), "rest_is_the_same": same}


def _reasons(rows: pd.DataFrame, prefix: str) -> list[str]:
    return rows.loc[rows["asset"].str.startswith(prefix), "reason"].tolist()
