"""One entry for all forms of export."""

import os
from collections.abc import Sequence
from pathlib import Path

from twinfold.export._c.compiled import CompileError
from twinfold.export._c.export import export_c
from twinfold.export._c.interpret import NotExportable
from twinfold.export._fmu.export import export_fmu
from twinfold.export._onnx import export_onnx
from twinfold.export._reference import reference_of
from twinfold.export._report import ExportReport
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
    states: int = 10_000,
    horizon: int = 1000,
) -> list[ExportReport]:
    """Write a twin in several forms, each into a folder of its own, and compare each with the twin.

    **Arguments:** `twin`, fitted; `spec`: names, step and ranges; `folder`; `to`: any of `"c"`, `"fmu"`, `"onnx"`,
    `"stablehlo"`; `states` from which one step is compared (fewer where a form is slow); `horizon` of the free run.

    **Returns:** an `ExportReport` for each form; print its `words`. A form that cannot be written (an extra that is not
    installed, a primitive that it lacks) has no files and says why; the others do not suffer from it.
    """
    for kind in to:
        if kind not in EXPORTERS:
            raise ValueError(f"to: there is no export to {unknown_name(kind, EXPORTERS)}")
    reference = reference_of(twin, spec, states=states, horizon=horizon)
    reports = []
    for kind in to:
        try:
            reports.append(EXPORTERS[kind](twin, spec, Path(folder) / kind, reference=reference))
        except (NotExportable, ImportError, CompileError) as error:
            reports.append(ExportReport(kind, [], False, None, None, 0, [str(error)]))
    return reports
