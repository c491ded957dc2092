"""Where a trained twin goes next: C99, an FMU, ONNX, StableHLO."""

from twinfold.export.c.export import export_c as export_c
from twinfold.export.c.interpret import NotExportable as NotExportable
from twinfold.export.exporting import export_twin as export_twin
from twinfold.export.fmu.export import export_fmu as export_fmu
from twinfold.export.onnx import export_onnx as export_onnx
from twinfold.export.report import ExportReport as ExportReport
from twinfold.export.spec import ExportSpec as ExportSpec
from twinfold.export.stablehlo import export_stablehlo as export_stablehlo
from twinfold.export.stablehlo import load_stablehlo as load_stablehlo
