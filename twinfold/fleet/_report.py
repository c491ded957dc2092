"""Pages about a fleet that open offline: one about all assets, and one for each, built by the browser on demand.

A page holds aggregates and a compact list of all assets, of which it shows a few at a time. The estimates of an asset
are in a file of its partition that the page of the asset loads: 100,000 assets are two pages and 200 files of data.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinfold._version import __version__
from twinfold.fleet._aggregate import Aggregate, _rounded, read_partition
from twinfold.fleet._fit import TABLES
from twinfold.fleet._results import read_about
from twinfold.io import write_text
from twinfold.report._page import render

PAGES = "report"


def report_fleet(out: str | Path, *, title: str = "", log: Callable[[str], None] = lambda line: None) -> Path:
    """Write the pages about a fleet: distributions, drift, alarms ranked, and a page for each asset.

    **Arguments:** `out`, the folder of `fit_fleet` and, for alarms, of `monitor_fleet`; `title` (default: the name of
    the folder); `log`, called with a line for each partition that cannot be read.

    **Returns:** the path of the page `index.html`; it needs no network and no server.

    **Example:**

    ```python
    tw.io.write_csv("plants/a.csv", [{"t": t, "x": np.exp(-0.5 * t)} for t in np.linspace(0, 2, 21)])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.7, positive=True)})
    tw.fleet.fit_fleet(twin, "plants", "results", outputs=["x"], lanes=4)
    tw.fleet.report_fleet("results").name  # "index.html"
    ```
    """
    out = Path(out).absolute()
    paths = sorted((out / TABLES).glob("*.parquet"))
    about = next((each for each in map(read_about, paths) if each is not None), None)
    if about is None:
        raise FileNotFoundError(f"{out / TABLES}: there are no results; run `twinfold fleet fit` first.")
    pages = out / PAGES
    aggregate, failures, judged = Aggregate(about["labels"], len(paths)), {}, False
    for number, path in enumerate(paths):
        try:
            table, alarms, of = read_partition(out, path)
            failures |= of.get("failures", {})
            aggregate.add(number, table, alarms)
            judged = judged or alarms is not None
            _write_data(pages / "data" / f"{number}.js", number, table, alarms)
        except (OSError, ValueError, KeyError) as error:
            log(f"{path.name}: {error}")
            failures[path.name] = str(error)
    rows = aggregate.rows()
    write_text(pages / "data" / "assets.js", f"fleetAssets({_json(rows)});\n")
    context = {
        "title": title or out.name,
        "kind": "Fleet",
        "version": __version__,
        "labels": about["labels"],
        "outputs": about["outputs"],
        "judged": judged,
        "assets": len(rows),
        "alarms": sum(row[4] for row in rows),
        "failed": sum(bool(row[6]) for row in rows),
        "failures": sorted(failures.items()),
        "histograms": aggregate.histograms(),
        "bands": aggregate.bands(),
    }
    for name in ("index", "asset"):
        write_text(pages / f"{name}.html", render(f"fleet_{name}.html", **context))
    return pages / "index.html"


def _write_data(path: Path, number: int, table: Any, alarms: Any) -> None:
    """The estimates of a partition as a script: a page that was opened from a file may load one, and nothing else."""
    columns = [name for name in table.columns if name not in ("asset", "digest") and not name.startswith("change:")]
    assets: dict[str, Any] = {}
    for asset, *values in table[["asset", *columns]].itertuples(index=False, name=None):
        plain = [_rounded(value) if isinstance(value, float) else value for value in values]
        assets.setdefault(str(asset), {"rows": []})["rows"].append(plain)
    if alarms is not None:
        names = [name for name in alarms.columns if name != "asset"]
        for asset, *values in alarms[["asset", *names]].itertuples(index=False, name=None):
            plain = [_rounded(value) if isinstance(value, float) else value for value in values]
            assets.setdefault(str(asset), {"rows": []})["alarm"] = dict(zip(names, plain, strict=True))
    write_text(path, f"fleetData({number}, {_json({'columns': columns, 'assets': assets})});\n")


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=lambda each: each.item())
