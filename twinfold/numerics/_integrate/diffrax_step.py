"""Any Diffrax solver as one step of the cell: for stiff fields, or for an order that `ExplicitRungeKutta` lacks."""

from collections.abc import Callable
from typing import Any, get_args, get_origin

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.numerics._integrate.base import (
    MAX_ERROR,
    AbstractIntegrator,
    IntegratorResult,
    check_max_error,
    check_substeps,
    repeat_implicit_steps,
)
from twinfold.numerics._integrate.dirk import DiagonalTableau, diagonal_step
from twinfold.numerics._integrate.stages import step_error
from twinfold.typing import Flag, Parameters, Scalar, Signal, State


class DiffraxStep(AbstractIntegrator):
    """One (or `substeps`) steps of a Diffrax ODE solver between two samples, without error control.

    A step of an implicit solver whose own estimate of its error exceeds `max_error` of the size of a state is flagged
    as `RESULTS.inaccurate`.

    The solver is initialised in each step, so that a stage shared with the previous step is evaluated at the
    projected state. The stages of an implicit solver are solved by the damped Newton iteration that `Radau` uses:
    Diffrax's default gives up early and relies on a shorter step, which a cell cannot take. A root finder that is
    given (`Kvaerno5(root_finder=...)`) is used. For a solver of an explicit and an implicit term (KenCarp3, KenCarp4,
    KenCarp5) the whole field is the implicit term.

    **Example:**

    ```python
    import diffrax

    twin = tw.Twin(lambda x: -x, integrator=tw.DiffraxStep(diffrax.Kvaerno3()))
    twin.simulate([1.0], jnp.linspace(0, 1, 11)).xs[-1]
    ```
    """

    solver: diffrax.AbstractSolver
    substeps: int = eqx.field(static=True, default=1)
    max_error: float | None = eqx.field(static=True, default=MAX_ERROR, kw_only=True)

    def __check_init__(self):
        check_substeps(self.substeps)
        check_max_error(self.max_error)
        if not isinstance(self.solver, diffrax.AbstractSolver):
            raise ValueError(f"DiffraxStep(solver={self.solver!r}): give a Diffrax solver, for example Tsit5().")
        if self.solver.term_structure is not diffrax.AbstractTerm and not _has_implicit_term(self.solver):
            raise ValueError(
                f"DiffraxStep(solver={type(self.solver).__name__}()): the solver splits the field into several terms; "
                "only solvers of a single ODE term, or of an explicit and an implicit one, can be a step."
            )

    def step(
        self, field: Callable[..., State], t: Scalar, dt: Scalar, x: State, w: Signal, p: Parameters
    ) -> IntegratorResult:
        h, tableau = dt / self.substeps, _own_stages(self.solver)

        def one(t: Scalar, x: State) -> tuple[State, Flag, Float[Array, ""]]:
            if tableau is None:
                return _by_diffrax(self.solver, field, t, h, x, w, p)
            return diagonal_step(tableau, field, t, h, x, w, p)

        return repeat_implicit_steps(one, x, t, dt, self.substeps, self.max_error)


def _by_diffrax(
    solver: Any, field: Callable[..., State], t: Scalar, h: Scalar, x: State, w: Signal, p: Parameters
) -> tuple[State, Flag, Float[Array, ""]]:
    term = diffrax.ODETerm(lambda t, x, p: field(t, x, w(t), p))
    if _has_implicit_term(solver):
        term = diffrax.MultiTerm(diffrax.ODETerm(lambda t, x, p: jnp.zeros_like(x)), term)
    if getattr(solver, "scan_kind", "bounded") is None:
        # What `diffeqsolve` would have filled in, but with both derivatives.
        solver = eqx.tree_at(lambda solver: solver.scan_kind, solver, "bounded", is_leaf=lambda node: node is None)
    state = solver.init(term, t, t + h, x, p)
    x1, error, _, _, outcome = solver.step(term, t, t + h, x, p, state, made_jump=False)
    # An explicit solver that leaves the region of stability diverges for all to see.
    wrong = jnp.zeros((), x.dtype)
    if isinstance(solver, diffrax.AbstractImplicitSolver) and error is not None:
        wrong = step_error(field, t, h, x, x1, error, 0.5, w, p)
    return x1, outcome == diffrax.RESULTS.successful, wrong


def _has_implicit_term(solver: diffrax.AbstractSolver) -> bool:
    """Whether the solver takes two terms, of which it solves the second implicitly."""
    if get_origin(solver.term_structure) is not diffrax.MultiTerm:
        return False
    (terms,) = get_args(solver.term_structure)
    return isinstance(solver, diffrax.AbstractImplicitSolver) and len(get_args(terms)) == 2


def _own_stages(solver: diffrax.AbstractSolver) -> DiagonalTableau | None:
    """The tableau of an implicit solver with Diffrax's default root finder; None for any other."""
    finder = getattr(solver, "root_finder", None)
    if finder is None or isinstance(getattr(finder, "rtol", 0.0), float):
        return None
    if isinstance(solver, diffrax.ImplicitEuler):
        # Beside it the trapezoidal rule, with an explicit stage for the rate at the start.
        return DiagonalTableau(np.diag([0.0, 1.0]), np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([-0.5, 0.5]))
    tableau: Any = getattr(solver, "tableau", None)
    if isinstance(tableau, diffrax.MultiButcherTableau):
        tableau = tableau.tableaus[1]
    if not isinstance(tableau, diffrax.ButcherTableau):
        raise ValueError(
            f"DiffraxStep(solver={type(solver).__name__}()): the solver has no tableau; give it a root finder with "
            "tolerances of its own, for example root_finder=optimistix.Newton(rtol=1e-8, atol=1e-8)."
        )
    a = np.diag(np.asarray(tableau.a_diagonal, float))
    for i, row in enumerate(tableau.a_lower):
        a[i + 1, : i + 1] = row
    b, embedded = np.asarray(tableau.b_sol, float), np.asarray(tableau.b_error, float)
    return DiagonalTableau(a, b, np.concatenate([[tableau.c1], tableau.c]), embedded)
