"""The two published parameter sets of the electrochemical battery model. Do not mix them.

`"paper"`: Daigle & Kulkarni (2013), tables 1 and 2, printed in the paper as NASA's. `"progpy"`: NASA's ProgPy. Charges
are in coulomb and concentrations in C/m3, so that D is in s/m3; the temperature is an input.
"""

from typing import Any

from twinfold.io import unknown_name

GAS = 8.314  # J/mol/K
FARADAY = 96487.0  # C/mol
KELVIN = 273.15  # at 0 degrees Celsius

# J/mol: of the resistance of the electrolyte, of diffusion and of the reactions; typical sizes, to be fitted where
# several temperatures were measured. Between 25 and 0 degrees Celsius these are factors of 1.9, 2.9 and 4.4.
ACTIVATION = {"E_R": 17e3, "E_D": 29e3, "E_k": 40e3}

_COMMON = {
    "D": 7e6,  # s/m3, diffusion between bulk and surface
    "v_s": 2e-6,  # m3, volume of the surface layer
    "U0_p": 4.03,  # V, reference potentials
    "U0_n": 0.01,
    "A_n": [86.19],  # J/mol, Redlich-Kister coefficients
    "x_n": 0.6,  # mole fraction of the negative electrode at full charge; x_p = 1 - x_n, empty is x_n = 0
    "offset": 0.0,  # added to the mole fraction at the start of a run
}
SETS: dict[str, dict[str, Any]] = {
    "paper": _COMMON
    | {
        "q_max": 1.32e4,  # C, mobile charge
        "R_o": 0.085,  # ohm
        "tau_o": 10.0,  # s, time constants of the voltage drops
        "tau_p": 90.0,
        "tau_n": 90.0,
        "S_p": 2e-4,  # m2, surface areas
        "S_n": 2e-4,
        "k_p": 2e4,  # A/m2, reaction rates
        "k_n": 2e4,
        "v_b": 2e-5,  # m3, volume of the bulk
        "A_p": [
            -33642.23,
            0.11,
            23506.89,
            -74679.26,
            14359.34,
            307849.79,
            85053.13,
            -1075148.06,
            2173.62,
            991586.68,
            283423.47,
            -163020.34,
            -470297.35,
        ],
    },
    "progpy": _COMMON
    | {
        "q_max": 7600 / 0.6,
        "R_o": 0.117215,
        "tau_o": 6.08671,
        "tau_p": 46.4311,
        "tau_n": 1001.38,
        "S_p": 3.0962e-4,
        "S_n": 4.37545e-4,
        "k_p": 248898.0,
        "k_n": 2120.96,
        "v_b": 1.8e-5,
        "A_p": [
            -31593.7,
            0.106747,
            24606.4,
            -78561.9,
            13317.9,
            307387.0,
            84916.1,
            -1.07469e6,
            2285.04,
            990894.0,
            283920.0,
            -161513.0,
            -469218.0,
        ],
    },
}


def published(name: str) -> dict[str, Any]:
    """A copy of a published set, or a `ValueError` that lists the sets."""
    if name not in SETS:
        raise ValueError(f"there is no battery parameter set {unknown_name(name, SETS)}")
    return dict(SETS[name])
