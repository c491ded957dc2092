from ._battery.cell import battery as battery
from ._battery.equations import Interaction as Interaction
from ._battery.equations import Relations as Relations
from ._battery.equations import charged as charged
from ._system import System as System
from ._two_body import two_body as two_body
