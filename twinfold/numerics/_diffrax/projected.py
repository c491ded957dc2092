"""A Diffrax solver that stays on a manifold: wraps any solver for `diffrax.diffeqsolve` and projects after every step.

Use it where a solve by Diffrax has to obey an invariant: adaptive steps, implicit methods, events, dense output and
adjoints stay Diffrax's own. It needs nothing else of this package than a constraint (and a projection).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from diffrax._term import AdjointTerm, WrapTerm  # only they tell in which direction time runs, and for what
from jaxtyping import Array, ArrayLike, Float

from twinfold._core import RESULTS
from twinfold.numerics._constraint import AbstractConstraint, check_constraint, violation_scale
from twinfold.numerics._diffrax.interpolation import ProjectedInterpolation, pack
from twinfold.numerics._project.base import AbstractProjection
from twinfold.numerics._project.newton import Newton
from twinfold.typing import ConstraintVector, Flag, Parameters, Scalar, State

BACKSOLVE = (
    "BacksolveAdjoint integrates a different equation backwards, which knows nothing of the projection: its gradients "
    "would be wrong. Use `adjoint=RecursiveCheckpointAdjoint()` (the default), `DirectAdjoint()` or `ForwardMode()`."
)
OFF_MANIFOLD = (
    "Projected: y0 does not satisfy the constraint. Correct it, project it with `y0 = solver.start(t0, y0, args)`, or "
    "give the `level=` that it was measured at."
)


class ProjectedState(eqx.Module):
    """What the solver carries from step to step; `result` is the outcome of the last projection."""

    inner: Any
    level: ConstraintVector
    moved: Flag
    result: RESULTS


class Projected(diffrax.AbstractWrappedSolver):
    """A Diffrax solver whose every step, and every value between steps, is projected onto a constraint's manifold.

        y_{k+1} = Project(Phi(y_k)),    y(t) = Project(interpolation(t))

    Steps are controlled by the inner solver's error estimate. A projection that fails rejects the step; where shorter
    ones do not help, the solve ends with `diffrax.RESULTS.nonlinear_divergence`, and the reason is in
    `solution.solver_state.result` (with `SaveAt(solver_state=True)`).

    **Arguments:** `solver`, a Diffrax solver of ODEs whose state y is one vector; `constraint`; `projection`; `level`
    of the constraint, that of y0 when left out; `parameters`, a function from the `args` of `diffeqsolve` to the p of
    the constraint (when left out: `args` themselves, where they are a mapping).

    **Example:**

    ```python
    import diffrax

    energy = tw.Conserved(lambda x: 0.5 * x @ x)
    solver = tw.Projected(diffrax.Tsit5(), energy)
    term = diffrax.ODETerm(lambda t, y, args: jnp.stack([y[1], -y[0]]))
    controller = diffrax.PIDController(rtol=1e-6, atol=1e-6)
    solution = diffrax.diffeqsolve(
        term, solver, 0.0, 10.0, 0.1, jnp.array([1.0, 0.0]), stepsize_controller=controller
    )
    solution.ys[-1] @ solution.ys[-1]  # 1 to rounding
    ```
    """

    solver: diffrax.AbstractSolver  # pyright: ignore[reportIncompatibleVariableOverride]
    constraint: AbstractConstraint
    projection: AbstractProjection = eqx.field(default_factory=Newton)
    level: ArrayLike | Sequence[float] | None = eqx.field(default=None, kw_only=True)
    parameters: Callable[[Any], Parameters] | None = eqx.field(default=None, kw_only=True)

    interpolation_cls: ClassVar = ProjectedInterpolation

    def __check_init__(self):
        check_solver(self.solver)

    # Diffrax recognises a solver by these, and writes to some of them.

    @property
    def term_structure(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.term_structure

    @property
    def term_compatible_contr_kwargs(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.term_compatible_contr_kwargs

    @property
    def root_finder(self):
        return self.solver.root_finder  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def root_find_max_steps(self):
        return self.solver.root_find_max_steps  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def scan_kind(self):
        return self.solver.scan_kind  # pyright: ignore[reportAttributeAccessIssue]

    def order(self, terms: Any) -> int | None:
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        return self.solver.error_order(terms)

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args)

    # What a solver does.

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> ProjectedState:
        check_problem(terms, y0)
        inner = self.solver.init(terms, t0, t1, y0, args)
        t, p = direction_of(terms) * t0, self._parameters(args)
        level = self._level(t, y0, p)
        violation = jnp.abs(self.constraint.residual(t, y0, p, level))
        # Measured values have fewer digits than the dtype: off the manifold is more than half of them.
        allowed = jnp.sqrt(jnp.finfo(y0.dtype).eps) * violation_scale(self.constraint, t, y0, p, level)
        level = eqx.error_if(level, jnp.any(violation > allowed), OFF_MANIFOLD)
        return ProjectedState(inner, level, jnp.array(False), RESULTS.successful)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: State, args: Any, solver_state: ProjectedState, made_jump: Any
    ) -> tuple[State, State | None, dict[str, Any], ProjectedState, diffrax.RESULTS]:
        level = solver_state.level
        # A first stage that the last step left behind was evaluated at the unprojected state.
        jump = made_jump | solver_state.moved
        x, error, info, inner, result = self.solver.step(terms, t0, t1, y0, args, solver_state.inner, jump)
        direction, p = direction_of(terms), self._parameters(args)
        out = self.projection.project(self.constraint, direction * t1, x, p, level, anchor=y0)
        # Where the inner solver's own equations were not solved, that is what is reported.
        failed = (out.result != RESULTS.successful) & (result == diffrax.RESULTS.successful)
        error = _judged(error, failed, y0, x)
        diverged: Any = diffrax.RESULTS.nonlinear_divergence
        result = diffrax.RESULTS.where(failed, diverged, result)
        dense = {
            "inner": info,
            "manifold": pack((self.solver.interpolation_cls, self.constraint, self.projection, p, level)),
            "anchor": y0,
            "direction": jnp.asarray(direction, y0.dtype),
        }
        return out.x, error, dense, ProjectedState(inner, level, jnp.any(out.x != x), out.result), result

    def start(self, t0: Scalar, y0: State, args: Any = None) -> State:
        """The admissible state nearest to `y0`, for an initial state that does not satisfy the constraint."""
        check_problem(None, y0)
        p = self._parameters(args)
        out = self.projection.project(self.constraint, t0, y0, p, self._level(t0, y0, p))
        return out.result.error_if(out.x, out.result != RESULTS.successful)

    def _parameters(self, args: Any) -> Parameters:
        if self.parameters is not None:
            return self.parameters(args)
        return args if isinstance(args, Mapping) else {}

    def _level(self, t: Scalar, y0: State, p: Parameters) -> ConstraintVector:
        m = check_constraint(self.constraint, t, y0, p)
        if self.level is None:
            return self.constraint.level(t, y0, p)
        level = jnp.asarray(self.level, y0.dtype)
        if level.shape != (m,):
            raise ValueError(f"Projected(level=...): shape {level.shape}, but the constraint has {m} equations.")
        return level


def check_solver(solver: Any) -> None:
    """A `ValueError` unless a projection can follow the solver's steps."""
    name = type(solver).__name__
    if isinstance(solver, type) or not isinstance(solver, diffrax.AbstractSolver):
        raise ValueError(f"Projected(solver={solver!r}): give a Diffrax solver, for example Tsit5().")
    if isinstance(solver, diffrax.AbstractWrappedSolver):
        raise ValueError(
            f"Projected(solver={name}(...)): a solver that wraps another cannot be projected. Project the innermost: "
            "HalfSolver(Projected(...)); several constraints go into one Projected as Stack([...])."
        )
    if isinstance(solver, diffrax.ReversibleHeun | diffrax.LeapfrogMidpoint):
        raise ValueError(
            f"Projected(solver={name}()): the solver carries a second state from step to step, which would not be "
            "projected. Use a one-step method, for example Heun() or Midpoint()."
        )
    if solver.term_structure is not diffrax.AbstractTerm and not isinstance(solver, diffrax.AbstractRungeKutta):
        raise ValueError(
            f"Projected(solver={name}()): only solvers of ordinary differential equations for a state that is one "
            "vector can be projected, not those of stochastic equations nor of split states. For example Tsit5(), "
            "Kvaerno5(), or KenCarp4() for a sum of two terms."
        )


def check_problem(terms: Any, y0: Any) -> None:
    """A `ValueError` unless the problem is one that can be projected."""
    found = jax.tree.leaves(terms, is_leaf=lambda node: isinstance(node, AdjointTerm | diffrax.AbstractBrownianPath))
    if any(isinstance(node, AdjointTerm) for node in found):
        raise ValueError(f"Projected: {BACKSOLVE}")
    if any(isinstance(node, diffrax.AbstractBrownianPath) for node in found):
        raise ValueError("Projected: the terms are those of a stochastic equation; only ODEs can be projected.")
    if not (eqx.is_inexact_array(y0) and y0.ndim == 1 and not jnp.iscomplexobj(y0)):
        got = f"an array of shape {y0.shape} and dtype {y0.dtype}" if eqx.is_array(y0) else f"a {type(y0).__name__}"
        raise ValueError(
            f"Projected: y0 is {got}; it must be a vector of real numbers. Flatten it, for example with "
            "`y0, unflatten = jax.flatten_util.ravel_pytree(y0)`."
        )


def direction_of(terms: Any) -> Any:
    """-1 where Diffrax runs time backwards (it then counts -t), else 1."""
    found = jax.tree.leaves(terms, is_leaf=lambda node: isinstance(node, WrapTerm))
    return next((node.direction for node in found if isinstance(node, WrapTerm)), 1)


def _judged(
    error: Float[Array, " n"] | None, failed: Flag, before: State, predicted: State
) -> Float[Array, " n"] | None:
    """The error estimate, or one that has a step with a failed projection rejected, unless it is very short already."""
    if error is None:
        return None
    # A predictor this near to a state on the manifold will not be projected from nearer still: accept, and so end.
    short = jnp.linalg.norm(predicted - before) <= jnp.sqrt(jnp.finfo(before.dtype).eps) * jnp.linalg.norm(before)
    return jnp.where(failed, jnp.where(short, 0, jnp.inf), error)
