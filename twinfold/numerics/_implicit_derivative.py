"""The exact derivative of a solution, by the implicit function theorem on the equations that define it.

One rule for projections, implicit algebraic variables, the stages of implicit integrators and RATTLE. It is a
`custom_jvp` whose rule is linear algebra that JAX can transpose: it serves jvp and vjp alike, in every array that the
equations depend on.
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx


@runtime_checkable
class Solver(Protocol):
    """Solves a problem, and the linearisation of the equations that its solution satisfies."""

    def solve(self, problem: Any) -> Any:
        """The solution, without a derivative."""
        ...

    def sensitivity(self, problem: Any, solution: Any, tangent: Any) -> Any:
        """The change of the solution for a change of the problem, linear in `tangent`; None where it is zero."""
        ...


@eqx.filter_custom_jvp
def implicit_solve(problem: Any, *, solver: Solver) -> Any:
    """`solver.solve(problem)`, or `problem.known` where there is one, differentiated by `solver.sensitivity`."""
    known = getattr(problem, "known", None)
    return solver.solve(problem) if known is None else known


@implicit_solve.def_jvp
def _implicit_solve_jvp(primals, tangents, *, solver: Solver):
    (problem,), (tangent,) = primals, tangents
    solution = implicit_solve(problem, solver=solver)
    return solution, solver.sensitivity(problem, solution, tangent)
