"""Any Diffrax solver as one step of the cell: for stiff fields, or an order that the own tableaus do not have."""

from collections.abc import Callable

import diffrax
import equinox as eqx

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
        term = diffrax.ODETerm(lambda t, x, p: field(t, x, w(t), p))
        h = dt / self.substeps

        def one(t: Scalar, carry: tuple[State, RESULTS]) -> tuple[State, RESULTS]:
            x, result = carry
            state = self.solver.init(term, t, t + h, x, p)
            x, _, _, _, outcome = self.solver.step(term, t, t + h, x, p, state, made_jump=False)
            return x, RESULTS.where(outcome == diffrax.RESULTS.successful, result, RESULTS.solver)

        x1, result = repeat_steps(one, (x, RESULTS.successful), t, dt, self.substeps)
        return Predicted(x1, result)
