"""The results of a fleet as one table."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from twinfold.fleet._results import read_table

if TYPE_CHECKING:
    import pandas as pd


def read_fleet(out: str | Path, kind: Literal["fit", "monitor"] = "fit") -> "pd.DataFrame":
    """The rows of all partitions, sorted by asset and period.

    **Arguments:** `out`, the folder of the results; `kind`: the estimates, or the alarms.

    **Returns:** a table. Of the estimates: `asset`, `period`, `from`, `to`, `samples`, `score` (the residual relative
    to the spread of the outputs), `value:NAME` and `error:NAME` of each parameter, `rms:OUTPUT` and `mean:OUTPUT` of
    the residual, `reason` of a failure.

    **Raises:** `FileNotFoundError` if there are none.

    **Example:**

    ```python
    tw.io.write_csv("plants/a.csv", [{"t": t, "x": np.exp(-0.5 * t)} for t in np.linspace(0, 2, 21)])
    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.7, positive=True)})
    tw.fleet.fit_fleet(twin, "plants", "results", outputs=["x"], lanes=4)
    tw.fleet.read_fleet("results")["asset"].tolist()  # ["a"]
    ```
    """
    import pandas as pd

    paths = sorted((Path(out) / kind).glob("*.parquet"))
    if not paths:
        raise FileNotFoundError(f"{Path(out) / kind}: there are no results; run `twinfold fleet {kind}` first.")
    table = pd.concat([read_table(path) for path in paths], ignore_index=True)
    return table.sort_values(["asset", "period"], kind="stable", ignore_index=True)
