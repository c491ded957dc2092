"""The benchmark systems by name, in the order of the paper."""

import functools
import re
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


# Cached, because JAX reuses a compiled program only for the same object.
@functools.cache
def system(name: str) -> System:
    """The system with this name and its default settings. **Raises:** `ValueError` that lists the names."""
    if name not in SYSTEMS:
        raise ValueError(f"there is no system {unknown_name(name, SYSTEMS)}")
    return SYSTEMS[name]()


def describe(name: str) -> tuple[str, list[str]]:
    """The description of a system and its equations, line by line, from the docstring of its factory."""
    lines = (SYSTEMS[name].__doc__ or "").splitlines()
    equations = [" ".join(line.split()) for line in lines if line.startswith(8 * " ")]
    # Parentheses about an argument of the factory do not concern the default settings.
    description = re.sub(r"\s*\([^)]*`[^)]*\)", "", lines[0]) if lines else ""
    return description, equations
