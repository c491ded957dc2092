"""Export of a fitted twin to C99, FMI 2.0, ONNX and StableHLO; each export is compared with the twin.

Every exporter starts from the same step functions (`_step.py`) and is checked against the same reference
(`_reference.py`); a new format is an entry in `_formats.py`.
"""

from twinfold.export._c.export import export_c
from twinfold.export._fmu.export import export_fmu
from twinfold.export._formats import export_twin
from twinfold.export._onnx import export_onnx
from twinfold.export._report import ExportReport, NotExportable
from twinfold.export._spec import ExportSpec
from twinfold.export._stablehlo import export_stablehlo, load_stablehlo

__all__ = [
    "ExportReport",
    "ExportSpec",
    "NotExportable",
    "export_c",
    "export_fmu",
    "export_onnx",
    "export_stablehlo",
    "export_twin",
    "load_stablehlo",
]
