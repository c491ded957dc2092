"""What moves a model: integrators, projections, the rollout, linear algebra, the Diffrax adapter."""

from twinfold.numerics._cell import Cell
from twinfold.numerics._constraint import AbstractConstraint, AbstractInequality, Unconstrained, violation_scale
from twinfold.numerics._diffrax.projected import Projected
from twinfold.numerics._integrate.base import AbstractIntegrator, IntegratorResult
from twinfold.numerics._integrate.bdf import BDF
from twinfold.numerics._integrate.diffrax_step import DiffraxStep
from twinfold.numerics._integrate.explicit import RK4, Euler, ExplicitRungeKutta, Heun, Midpoint
from twinfold.numerics._integrate.hold import Hold
from twinfold.numerics._integrate.radau import Radau
from twinfold.numerics._integrate.rattle import Rattle
from twinfold.numerics._project.adaptive import Adaptive
from twinfold.numerics._project.base import AbstractProjection, NoProjection, ProjectionResult
from twinfold.numerics._project.krylov import Krylov
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.select import select_projection
from twinfold.numerics._project.sparse import Sparse
from twinfold.numerics._project.tangent import Tangent
from twinfold.numerics._rollout import Trajectory, rollout
from twinfold.numerics._stability import unstable_step

__all__ = [
    "BDF",
    "RK4",
    "AbstractConstraint",
    "AbstractInequality",
    "AbstractIntegrator",
    "AbstractProjection",
    "Adaptive",
    "Cell",
    "DiffraxStep",
    "Euler",
    "ExplicitRungeKutta",
    "Heun",
    "Hold",
    "IntegratorResult",
    "Krylov",
    "Midpoint",
    "Newton",
    "NoProjection",
    "Projected",
    "ProjectionResult",
    "Radau",
    "Rattle",
    "Sparse",
    "Tangent",
    "Trajectory",
    "Unconstrained",
    "rollout",
    "select_projection",
    "unstable_step",
    "violation_scale",
]
