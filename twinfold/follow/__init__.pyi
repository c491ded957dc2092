from ._alarms import InnovationAlarms as InnovationAlarms
from ._alarms import Judged as Judged
from ._fleet import Fleet as Fleet
from ._fleet import FleetOutput as FleetOutput
