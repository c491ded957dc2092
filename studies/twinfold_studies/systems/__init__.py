"""Benchmark systems: `system(name)` returns one of the six of the paper (`SYSTEMS`), with its reference solution.

The six, with `truth` for their reference trajectories and `misspecified` for wrong assumptions about them; systems with
many constraints (`chain`, `power_grid`), of higher index (`pendulum`, `double_pendulum`, `slider_crank`, `skate`), with
implicit algebraic equations (`circuit`), and stiff ones (`robertson`, `van_der_pol`).
"""

from twinfold_studies.systems.registry import SYSTEMS, describe, system

__all__ = ["SYSTEMS", "describe", "system"]
