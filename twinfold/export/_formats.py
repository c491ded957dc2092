"""Export to several formats at once; a new format is an entry in `EXPORTERS`."""

import os
from collections.abc import Sequence
from pathlib import Path

from twinfold.export._c.compiled import CompileError
from twinfold.export._c.export import export_c
from twinfold.export._fmu.export import export_fmu
from twinfold.export._onnx import export_onnx
from twinfold.export._reference import build_reference
from twinfold.export._report import ExportReport, NotExportable
from twinfold.export._spec import ExportSpec
from twinfold.export._stablehlo import export_stablehlo
from twinfold.io import unknown_name
from twinfold.model import Twin

EXPORTERS = {"c": export_c, "fmu": export_fmu, "onnx": export_onnx, "stablehlo": export_stablehlo}


def export_twin(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    to: Sequence[str] = ("c", "fmu", "onnx", "stablehlo"),
    samples: int = 10_000,
    horizon: int = 1000,
) -> list[ExportReport]:
    """Export a twin to several formats and compare each with the twin.

    **Arguments:**

    - `twin`: the fitted twin.
    - `spec`: names, step length and ranges.
    - `folder`: each format is written to a subfolder with its name.
    - `to`: any of `"c"`, `"fmu"`, `"onnx"`, `"stablehlo"`.
    - `samples`: the number of states from which one step is compared (fewer for ONNX and StableHLO, which are slower).
    - `horizon`: the number of steps of the simulation that is compared (C, FMU).

    **Returns:** an `ExportReport` for each format. The report of a failed export (a missing package, an unsupported
    primitive) has no files and gives the reason; the other formats are still written.

    **Example:**

    ```python
    twin = tw.Twin(lambda x, w: w - x)
    spec = tw.export.ExportSpec("lag", ["x"], ["u"], ["x"], dt=0.1, x0=[1.0], w_low=[-1], w_high=[1])
    for report in tw.export.export_twin(twin, spec, "exported", to=["c", "stablehlo"], samples=20, horizon=10):
        print("\\n".join(report.messages))
    ```
    """
    for kind in to:
        if kind not in EXPORTERS:
            raise ValueError(f"to: there is no export to {unknown_name(kind, EXPORTERS)}")
    reference = build_reference(twin, spec, samples=samples, horizon=horizon)
    reports = []
    for kind in to:
        try:
            reports.append(EXPORTERS[kind](twin, spec, Path(folder) / kind, reference=reference))
        except (NotExportable, ImportError, CompileError) as error:
            reports.append(ExportReport(kind, [], False, None, None, 0, [str(error)]))
    return reports
