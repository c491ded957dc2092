"""A lithium-ion cell: electrochemical equations, a network fitted beforehand, and a lumped thermal model.

The network stays as it is; capacity, resistance and the other scalars of your cell are fitted. What the network was
trained on, and how large its errors were on other cells, is in its data sheet: tw.systems.data_sheet("nasa_18650").
Inputs are the current (> 0 on discharge) and the temperature around the cell, outputs voltage and temperature.
"""

import twinfold as tw

STATES = ["q_b,p", "q_s,p", "q_b,n", "q_s,n", "V_o", "V_eta,p", "V_eta,n", "temperature"]
CHARGES = dict.fromkeys(STATES[:4], "C")
DROPS = dict.fromkeys(STATES[4:7], "V")
UNITS = {"time": "s", "temperature": "degC", "current": "A", "ambient": "degC"} | CHARGES | DROPS


def twin(cell: str = "nasa_18650", per_cell: bool = False) -> tw.Twin:
    """The twin, before its scalars are fitted; `per_cell` for several cells, named by the column data.group."""
    return tw.systems.fitted_cell(cell, per_cell=per_cell)


def capacity(twin: tw.Twin, p: dict) -> tw.typing.Scalar:
    """The health that `twinfold monitor` follows: the charge in Ah that the full cell gives at 2 A down to 2.7 V."""
    return tw.systems.capacity(twin, current=2.0, celsius=24.0, voltages=(2.7, 4.2), p=p)
