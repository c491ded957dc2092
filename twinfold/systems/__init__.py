"""Ready-made systems to start from."""

from twinfold.systems._battery.cell import battery
from twinfold.systems._battery.equations import Interaction, Relations, charged
from twinfold.systems._system import System
from twinfold.systems._two_body import two_body

__all__ = ["Interaction", "Relations", "System", "battery", "charged", "two_body"]
