"""The benchmark systems by name, in the paper's order."""

import functools
from collections.abc import Callable

from twinfold.io import unknown_name
from twinfold.systems import System, two_body
from twinfold_studies.systems.lotka_volterra import lotka_volterra
from twinfold_studies.systems.mass_spring import mass_spring
from twinfold_studies.systems.nonlinear_spring import nonlinear_spring
from twinfold_studies.systems.rigid_body import rigid_body
from twinfold_studies.systems.robot_arm import robot_arm

SYSTEMS: dict[str, Callable[[], System]] = {
    "mass_spring": mass_spring,
    "lotka_volterra": lotka_volterra,
    "two_body": two_body,
    "nonlinear_spring": nonlinear_spring,
    "robot_arm": robot_arm,
    "rigid_body": rigid_body,
}


# Built once: what JAX compiled for a system is found again only for the same object.
@functools.cache
def system(name: str) -> System:
    """The system of this name with its default settings; a `ValueError` that lists them for another name."""
    if name not in SYSTEMS:
        raise ValueError(f"there is no system {unknown_name(name, SYSTEMS)}")
    return SYSTEMS[name]()
