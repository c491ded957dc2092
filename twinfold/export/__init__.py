"""Where a trained twin runs next: C99, FMI 2.0, ONNX, StableHLO. Each export is compared with the twin."""

from twinfold.export._c.export import export_c
from twinfold.export._c.interpret import NotExportable
from twinfold.export._exporting import export_twin
from twinfold.export._fmu.export import export_fmu
from twinfold.export._onnx import export_onnx
from twinfold.export._report import ExportReport
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
