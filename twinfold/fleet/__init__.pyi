from ._estimate import AssetEstimates as AssetEstimates
from ._estimate import estimate_assets as estimate_assets
from ._fit import FleetFit as FleetFit
from ._fit import fit_fleet as fit_fleet
from ._monitor import FleetAlarms as FleetAlarms
from ._monitor import monitor_fleet as monitor_fleet
from ._read import read_fleet as read_fleet
from ._report import report_fleet as report_fleet
