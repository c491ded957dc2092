from ._battery.cell import battery as battery
from ._battery.circuit import circuit as circuit
from ._battery.equations import Interaction as Interaction
from ._battery.equations import Relations as Relations
from ._battery.equations import charged as charged
from ._battery.open_circuit import OpenCircuit as OpenCircuit
from ._system import System as System
from ._two_body import two_body as two_body
