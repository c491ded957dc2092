"""Any Diffrax solver as one step of the cell: for stiff fields, or an order that the own tableaus do not have."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax.numpy as jnp

from twinfold._types import Parameters, Scalar, Signal, State
from twinfold.integrate.base import AbstractIntegrator, Predicted, check_substeps, repeat_steps
from twinfold.result import RESULTS


class DiffraxStep(AbstractIntegrator):
    """One (or `substeps`) steps of a Diffrax ODE solver between two samples, without error control.

    The solver starts afresh in each step, so that a stage shared with the previous step is evaluated at the
    projected state.
    """

    solver: diffrax.AbstractSolver
    substeps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_substeps(self.substeps)
        if not isinstance(self.solver, diffrax.AbstractSolver):
            raise ValueError(f"DiffraxStep(solver={self.solver!r}): give a Diffrax solver, for example Tsit5().")
        if self.solver.term_structure is not diffrax.AbstractTerm:
            raise ValueError(
                f"DiffraxStep(solver={type(self.solver).__name__}()): the solver splits the field into several terms; "
                "only solvers of a single ODE term can be a step."
            )

    def step(self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters) -> Predicted:
        solver = _ready(self.solver, x.dtype)
        term = diffrax.ODETerm(lambda t, x, p: field(t, x, w(t), p))
        h = dt / self.substeps

        def one(t: Scalar, carry: tuple[State, RESULTS]) -> tuple[State, RESULTS]:
            x, result = carry
            state = solver.init(term, t, t + h, x, p)
            x, _, _, _, outcome = solver.step(term, t, t + h, x, p, state, made_jump=False)
            return x, RESULTS.where(outcome == diffrax.RESULTS.successful, result, RESULTS.solver)

        x1, result = repeat_steps(one, (x, RESULTS.successful), t, dt, self.substeps)
        return Predicted(x1, result)


def _ready(solver: diffrax.AbstractSolver, dtype: Any) -> diffrax.AbstractSolver:
    """The solver with what `diffeqsolve` would have filled in: stages in a loop with both derivatives, tolerances."""
    if getattr(solver, "scan_kind", "bounded") is None:
        solver = eqx.tree_at(lambda solver: solver.scan_kind, solver, "bounded", is_leaf=lambda node: node is None)
    finder = getattr(solver, "root_finder", None)
    if finder is not None and not isinstance(getattr(finder, "rtol", 0.0), float):
        tolerance = 1e-2 * float(jnp.finfo(dtype).eps) ** 0.5
        finder = diffrax.VeryChord(rtol=tolerance, atol=tolerance)
        solver = eqx.tree_at(lambda solver: solver.root_finder, solver, finder)
    return solver
