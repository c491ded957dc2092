"""A Diffrax solver that stays on a manifold: wraps any solver for `diffrax.diffeqsolve` and projects after every step.

Use it where a solve by Diffrax has to obey an invariant: adaptive steps, implicit methods, events, dense output and
adjoints stay Diffrax's own. It needs nothing else of this package than a constraint (and a projection).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
from diffrax._root_finder import use_stepsize_tol
from diffrax._term import AdjointTerm, WrapTerm  # only they tell in which direction time runs, and for what
from jax.extend.core import Var
from jaxtyping import Array, ArrayLike, PyTree

from twinfold._core import RESULTS, stop_gradient_tree
from twinfold.numerics._constraint import AbstractConstraint, Unconstrained, check_constraint, violation_scale
from twinfold.numerics._diffrax.interpolation import ProjectedInterpolation, pack
from twinfold.numerics._diffrax.state import form_of
from twinfold.numerics._project.base import AbstractProjection, NoProjection
from twinfold.numerics._project.newton import Newton
from twinfold.typing import ConstraintVector, Flag, Parameters, Scalar, State

BACKSOLVE = (
    "BacksolveAdjoint integrates a different equation backwards, which knows nothing of the projection: its gradients "
    "would be wrong. Use `adjoint=RecursiveCheckpointAdjoint()` (the default), `DirectAdjoint()` or `ForwardMode()`."
)
LEVEL_UNKNOWN = (
    "Projected: ImplicitAdjoint differentiates the steady state, and does not know how the level, which is that of y0, "
    "depends on args. Give it: `Projected(solver, constraint, level=constraint.level(t0, y0, args))`."
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

    **Arguments:** `solver`, any Diffrax solver, of ordinary or stochastic equations; `constraint`, whose x is y as
    Diffrax has it, a vector or any PyTree of arrays; `projection`; `level` of the constraint, that of y0 when left out;
    `parameters`, a function from the `args` of `diffeqsolve` to the p of the constraint (when left out: `args`
    themselves, where they are a mapping).

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

    def order(self, terms: Any) -> int | None:
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        return self.solver.error_order(terms)

    def __getattr__(self, name: str) -> Any:
        """What else a kind of solver has (`root_finder`, `scan_kind`, `minimal_levy_area`, ...) is the inner one's."""
        if name.startswith("__") or name == "solver":
            raise AttributeError(name)
        return getattr(self.solver, name)

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        """The inner solver's field f, with the derivative of f + G'(g - level).

        The second term is zero on the manifold. With it the derivative of a steady state (`ImplicitAdjoint`) is that
        of f = 0 together with g = level, where f = 0 alone has a solution for every level.
        """
        m = check_problem(self, terms, t0, y0, args)
        field = self.solver.func(terms, t0, y0, args)
        like = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), y0)
        if m == 0 or jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), field) != like:
            return field
        return jax.tree.map(with_derivative_of, field, self._pull(terms, t0, y0, args))

    # What a solver does.

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> ProjectedState:
        check_problem(self, terms, t0, y0, args)
        inner = self.solver.init(terms, t0, t1, y0, args)
        form, p = form_of(y0), self._parameters(args)
        x, constraint = form.flatten(y0), form.constrain(self.constraint)
        t = physical_time(terms, t0, x)
        level = self._level(constraint, t, x, p)
        violation = jnp.abs(constraint.residual(t, x, p, level))
        # Measured values have fewer digits than the dtype: off the manifold is more than half of them.
        allowed = jnp.sqrt(jnp.finfo(x.dtype).eps) * violation_scale(constraint, t, x, p, level)
        level = eqx.error_if(level, jnp.any(violation > allowed), OFF_MANIFOLD)
        return ProjectedState(inner, level, jnp.array(False), RESULTS.successful)

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, solver_state: ProjectedState, made_jump: Any
    ) -> tuple[PyTree, PyTree | None, dict[str, Any], ProjectedState, diffrax.RESULTS]:
        level, form, p = solver_state.level, form_of(y0), self._parameters(args)
        projects = check_problem(self, terms, t0, y0, args) > 0
        projection = self.projection if projects else NoProjection()
        inner, jump = solver_state.inner, made_jump
        if projects:
            inner, jump = self._resume(terms, t0, t1, y0, args, solver_state, made_jump)
        y, error, info, inner, result = self.solver.step(terms, t0, t1, y0, args, inner, jump)
        x0, x, constraint = form.flatten(y0), form.flatten(y), form.constrain(self.constraint)
        dense = {
            "inner": info,
            "manifold": pack((self.solver.interpolation_cls, form, constraint, projection, p, level)),
            "anchor": x0,
            "direction": jnp.asarray(direction_of(terms), jnp.result_type(t1)),
        }
        if not projects:  # what Diffrax knows at trace time, it still knows
            return y, error, dense, ProjectedState(inner, level, solver_state.moved, solver_state.result), result
        out = self.projection.project(constraint, physical_time(terms, t1, x), x, p, level, anchor=x0)
        # Where the inner solver's own equations were not solved, that is what is reported.
        failed = (out.result != RESULTS.successful) & (result == diffrax.RESULTS.successful)
        error = _judged(error, failed, x0, x)
        diverged: Any = diffrax.RESULTS.nonlinear_divergence
        result = diffrax.RESULTS.where(failed, diverged, result)
        state = ProjectedState(inner, level, jnp.any(out.x != x), out.result)
        return form.unflatten(out.x), error, dense, state, result

    def start(self, t0: Scalar, y0: PyTree, args: Any = None) -> PyTree:
        """The admissible state nearest to `y0`, for an initial state that does not satisfy the constraint."""
        form, p = form_of(y0), self._parameters(args)
        x, constraint = form.flatten(y0), form.constrain(self.constraint)
        out = self.projection.project(constraint, t0, x, p, self._level(constraint, t0, x, p))
        return form.unflatten(out.result.error_if(out.x, out.result != RESULTS.successful))

    def _resume(
        self, terms: Any, t0: Any, t1: Any, y0: PyTree, args: Any, state: ProjectedState, made_jump: Any
    ) -> tuple[Any, Any]:
        """The inner solver's state and `made_jump` for a step from `y0`, which the last projection may have moved.

        A first stage that the last step left behind was evaluated at the unprojected state.
        """
        if isinstance(self.solver, diffrax.ReversibleHeun):
            # Its second state follows the unprojected solution: it is brought back to the first.
            afresh = jax.lax.cond(state.moved, lambda: self.solver.init(terms, t0, t1, y0, args), lambda: state.inner)
            return afresh, made_jump
        if isinstance(self.solver, diffrax.AbstractFosterLangevinSRK) and not self.solver._is_fsal:
            return state.inner, made_jump  # keeps no stage, and takes no jump that is known at run time only
        return state.inner, made_jump | state.moved

    def _pull(self, terms: Any, t0: Any, y0: PyTree, args: Any) -> PyTree:
        """G'(g - level) as a function of y and p, where G is a constant."""
        form, p = form_of(y0), self._parameters(args)
        x, constraint = form.flatten(y0), form.constrain(self.constraint)
        t, fixed = physical_time(terms, t0, x), stop_gradient_tree(p)
        x_fixed = jax.lax.stop_gradient(x)
        level = self._level(constraint, t, x_fixed, p)
        if self.level is None:
            level = unknown_derivative(eqxi.nondifferentiable_backward(level, msg=LEVEL_UNKNOWN))
        _, pullback = jax.vjp(lambda x: constraint.residual(t, x, fixed, jax.lax.stop_gradient(level)), x_fixed)
        return form.unflatten(pullback(constraint.residual(t, x, p, level))[0])

    def _parameters(self, args: Any) -> Parameters:
        if self.parameters is not None:
            return self.parameters(args)
        return args if isinstance(args, Mapping) else {}

    def _level(self, constraint: AbstractConstraint, t: Scalar, x0: State, p: Parameters) -> ConstraintVector:
        m = check_constraint(constraint, t, x0, p)
        if self.level is None:
            return constraint.level(t, x0, p)
        level = jnp.asarray(self.level, x0.dtype)
        if level.shape != (m,):
            raise ValueError(f"Projected(level=...): shape {level.shape}, but the constraint has {m} equations.")
        return level


def check_solver(solver: Any) -> None:
    """A `ValueError` unless a projection can follow the solver's steps."""
    if isinstance(solver, type) or not isinstance(solver, diffrax.AbstractSolver):
        raise ValueError(f"Projected(solver={solver!r}): give a Diffrax solver, for example Tsit5().")
    inner = solver
    while isinstance(inner, diffrax.AbstractWrappedSolver):
        if isinstance(inner, Projected):
            raise ValueError(
                "Projected(solver=Projected(...)): the outer projection would leave the manifold of the inner one. "
                "Several constraints go into one Projected as Stack([...])."
            )
        inner = inner.solver
    tolerances = [getattr(getattr(inner, "root_finder", None), name, None) for name in ("rtol", "atol")]
    # Diffrax fills these in, but does not look through two wrappers.
    if inner is not solver and any(each is use_stepsize_tol for each in tolerances):
        name = type(inner).__name__
        raise ValueError(
            f"Projected(solver={type(solver).__name__}({name}())): inside another solver, the root finder of an "
            "implicit one is given no tolerances. Set them: "
            f"{name}(root_finder=VeryChord(rtol=1e-8, atol=1e-8, norm=rms_norm))."
        )


def check_problem(solver: Projected, terms: Any, t0: Any, y0: Any, args: Any) -> int:
    """The number of constraints, 0 where they do not read the state, or a `ValueError` where it cannot be projected."""
    if isinstance(solver.constraint, Unconstrained):
        return 0
    found = jax.tree.leaves(terms, is_leaf=lambda node: isinstance(node, AdjointTerm))
    if any(isinstance(node, AdjointTerm) for node in found):
        raise ValueError(f"Projected: {BACKSOLVE}")
    form = form_of(y0)
    x, constraint, p = form.flatten(y0), form.constrain(solver.constraint), solver._parameters(args)
    t = physical_time(terms, t0, x)
    m = check_constraint(constraint, t, x, p)
    return m if reads(lambda x: constraint.residual(t, x, p, jnp.zeros(m, x.dtype)), x) else 0


def reads(fn: Callable[[State], Array], x: State) -> bool:
    """Whether the value of `fn` is computed from its argument at all."""
    jaxpr = jax.make_jaxpr(fn)(x).jaxpr
    depends = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(isinstance(each, Var) and each in depends for each in equation.invars):
            depends.update(equation.outvars)
    return any(isinstance(each, Var) and each in depends for each in jaxpr.outvars)


def direction_of(terms: Any) -> Any:
    """-1 where Diffrax runs time backwards (it then counts -t), else 1."""
    found = jax.tree.leaves(terms, is_leaf=lambda node: isinstance(node, WrapTerm))
    return next((node.direction for node in found if isinstance(node, WrapTerm)), 1)


def physical_time(terms: Any, t: Any, x: State) -> Scalar:
    """The time that a constraint sees, in the dtype of the state."""
    return jnp.asarray(direction_of(terms), x.dtype) * jnp.asarray(t, x.dtype)


@jax.custom_jvp
def with_derivative_of(value: Array, zero: Array) -> Array:
    """`value`, with the derivative of `value + zero`."""
    return value


@with_derivative_of.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    return primals[0], tangents[0] + tangents[1]


@jax.custom_jvp
def unknown_derivative(value: Array) -> Array:
    """`value`, with a derivative of NaN where it has one: it is not known, and zero would be wrong."""
    return value


@unknown_derivative.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return primals[0], jnp.nan * tangents[0]


def _judged(error: PyTree | None, failed: Flag, before: State, predicted: State) -> PyTree | None:
    """The error estimate, or one that has a step with a failed projection rejected, unless it is very short already."""
    # A predictor this near to a state on the manifold will not be projected from nearer still: accept, and so end.
    short = jnp.linalg.norm(predicted - before) <= jnp.sqrt(jnp.finfo(before.dtype).eps) * jnp.linalg.norm(before)
    instead = jnp.where(short, 0, jnp.inf)
    return jax.tree.map(lambda leaf: jnp.where(failed, instead.astype(leaf.dtype), leaf), error)
