"""The projected Diffrax solver: on the manifold at every saved value, with the accuracy and derivatives to expect."""

import functools
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest
from twinfold_studies.numerics.orbit import kepler, solve

from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Conserved, Constraint
from twinfold.numerics._diffrax.interpolation import ProjectedInterpolation, pack, unpack
from twinfold.numerics._diffrax.projected import Projected, check_solver
from twinfold.numerics._diffrax.state import form_of
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent
from twinfold.systems._two_body import two_body

# x = r(t) (cos, sin)(rate t) with r = 1 + sin(t) / 2, on a circle that breathes: time enters, and a parameter.
ARGS = {"rate": jnp.array(1.3), "size": jnp.array(0.5)}
BREATHING = Constraint(lambda t, x, p: x @ x - radius(t, p) ** 2)
TERM = diffrax.ODETerm(lambda t, x, p: swell(t, x, p) + turn(t, x, p))
SPLIT = diffrax.MultiTerm(
    diffrax.ODETerm(lambda t, x, p: swell(t, x, p)), diffrax.ODETerm(lambda t, x, p: turn(t, x, p))
)


CIRCLE = Constraint(lambda x: x @ x - 1)
ROUND = diffrax.ODETerm(lambda t, x, args: jnp.stack([-x[1], x[0]]))


def radius(t, p):
    return 1 + p["size"] * jnp.sin(t)


def swell(t, x, p):
    return p["size"] * jnp.cos(t) / radius(t, p) * x


def turn(t, x, p):
    return p["rate"] * jnp.stack([-x[1], x[0]])


def exact(t):
    angle = ARGS["rate"] * t
    return (radius(t, ARGS) * jnp.stack([jnp.cos(angle), jnp.sin(angle)])).T


def adaptive(tolerance):
    return diffrax.PIDController(rtol=tolerance, atol=tolerance)


# The fast projection where the solver is what is tested: it is compiled sooner, and reaches eps^0.8.
FAST = Tangent(max_steps=20)
EXACT = Tangent(max_steps=20, derivative="implicit")
# Solver, terms, controller, first step, and the error to expect of it.
SOLVERS = {
    "tsit5": (diffrax.Tsit5(), TERM, adaptive(1e-6), None, 1e-5),
    "kvaerno5": (diffrax.Kvaerno5(), TERM, adaptive(1e-6), None, 1e-5),
}
MORE = {
    "kencarp3, split": (diffrax.KenCarp3(), SPLIT, adaptive(1e-4), None, 2e-3),
    "heun, fixed steps": (diffrax.Heun(), TERM, diffrax.ConstantStepSize(), 0.05, 4e-3),
    "implicit euler": (diffrax.ImplicitEuler(), TERM, adaptive(1e-3), None, 0.1),
    "dopri5": (diffrax.Dopri5(), TERM, adaptive(1e-6), None, 1e-5),
    "kvaerno3": (diffrax.Kvaerno3(), TERM, adaptive(1e-6), None, 1e-4),
    "kencarp5, split": (diffrax.KenCarp5(), SPLIT, adaptive(1e-5), None, 1e-3),
}


def saved(solution) -> Any:
    """What was saved: Diffrax says that it may be None."""
    return solution.ys


def worst(ts, xs):
    """Violation and error at the finite ones of `ts`."""
    ts = np.asarray(ts)
    taken = np.isfinite(ts)
    ts, xs = jnp.asarray(ts[taken]), xs[taken]
    return np.max(np.abs(np.sum(xs**2, axis=1) - radius(ts, ARGS) ** 2)), np.max(np.abs(xs - exact(ts)))


@pytest.mark.parametrize("name", [*SOLVERS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_every_saved_value_is_on_the_manifold(name):
    """At t0, at every step, between steps, at t1."""
    solver, terms, controller, dt0, error = (SOLVERS | MORE)[name]
    solution = diffrax.diffeqsolve(
        terms,
        Projected(solver, BREATHING, FAST),
        0.0,
        3.0,
        dt0,
        exact(0.0),
        ARGS,
        saveat=diffrax.SaveAt(t0=True, ts=jnp.linspace(0, 3, 41), steps=True, t1=True),
        stepsize_controller=controller,
        max_steps=1000,
    )
    violation, found = worst(solution.ts, saved(solution))
    assert violation <= 5e-12
    assert found <= error


@pytest.mark.slow
def test_backwards_in_time():
    """Diffrax then counts -t, in steps and between them: the constraint has to see t. Dense output, and `fn`, too."""
    ts = jnp.linspace(3, 0, 41)
    solution = diffrax.diffeqsolve(
        TERM,
        Projected(diffrax.Tsit5(), BREATHING, FAST),
        3.0,
        0.0,
        None,
        exact(3.0),
        ARGS,
        saveat=diffrax.SaveAt(
            ts=ts, fn=lambda t, x, p: (x, BREATHING.residual(t, x, p, jnp.zeros(1))), steps=True, dense=True
        ),
        stepsize_controller=adaptive(1e-6),
        max_steps=100,
    )
    xs, residuals = saved(solution)
    violation, error = worst(solution.ts, xs)
    assert violation <= 1e-12
    assert error <= 1e-5
    assert np.nanmax(np.where(np.isfinite(residuals), np.abs(residuals), 0)) <= 1e-12
    at = jnp.append(ts[1:-1] + 0.01, jnp.array([2.0, 1.2]))

    @eqx.filter_jit
    def dense(solution):
        return jax.vmap(solution.evaluate)(at), solution.evaluate(2.0, 1.2), solution.derivative(1.2)

    xs, between, rate = dense(solution)
    violation, error = worst(at, xs)
    assert violation <= 1e-12
    assert error <= 1e-5
    np.testing.assert_allclose(between, xs[-1] - xs[-2], atol=1e-12)
    np.testing.assert_allclose(rate, TERM.vf(1.2, xs[-1], ARGS), atol=1e-3)


@pytest.mark.slow
def test_two_body_over_100_periods():
    """E and L at rounding error between steps too; the position 100 times better, for as many steps."""
    system, ts = two_body(energy=True), jnp.linspace(0, 200 * jnp.pi, 6401)
    truth = kepler(np.asarray(ts))
    x0 = jnp.asarray(truth[0])
    free = solve(system.truth, diffrax.Tsit5(), x0, ts, jnp.array(1e-6))
    held = solve(system.truth, Projected(diffrax.Tsit5(), system.constraint), x0, ts, jnp.array(1e-6))
    level = system.constraint.level(0.0, x0, {})
    violation = jax.vmap(lambda x: system.constraint.residual(0.0, x, {}, level))(saved(held)) / level
    assert np.max(np.abs(violation)) <= 1e-12
    errors = [np.max(np.linalg.norm(saved(each)[:, :2] - truth[:, :2], axis=1)) for each in (free, held)]
    assert errors[0] >= 100 * errors[1]
    assert 0.9 <= held.stats["num_steps"] / free.stats["num_steps"] <= 1.1


@jax.jit
def two_steps(told):
    """Two steps by hand, and the second of them again from the same state by a solver that starts afresh."""
    solver = Projected(diffrax.Tsit5(), BREATHING, FAST)
    x0 = exact(0.0)
    state = solver.init(TERM, 0.0, 0.8, x0, ARGS)
    x1, _, _, state, _ = solver.step(TERM, 0.0, 0.8, x0, ARGS, state, False)
    state = eqx.tree_at(lambda state: state.moved, state, state.moved & told)
    afresh = solver.init(TERM, 0.8, 1.6, x1, ARGS)
    again, second = (solver.step(TERM, 0.8, 1.6, x1, ARGS, each, False)[0] for each in (afresh, state))
    return again, second


def test_a_stage_from_before_the_projection_is_not_used_again():
    again, second = two_steps(jnp.array(True))
    np.testing.assert_allclose(second, again, rtol=0, atol=1e-15)
    again, stale = two_steps(jnp.array(False))
    assert np.max(np.abs(stale - again)) > 1e-6


ENERGY = Conserved(lambda x, p: 0.5 * x[1] ** 2 - p["k"] * jnp.cos(x[0]))
PENDULUM = diffrax.ODETerm(lambda t, x, p: jnp.stack([x[1], -p["k"] * jnp.sin(x[0])]))
START = jnp.array([1.0, 0.3, 1.7])  # y0, and the parameter k
TIGHT = optimistix.Newton(rtol=1e-12, atol=1e-12)
CHECKPOINTED = diffrax.RecursiveCheckpointAdjoint()
# Solver, adjoint, its derivative, and a projection.
ADJOINTS = {
    "checkpointed": (diffrax.Heun(), CHECKPOINTED, jax.grad, EXACT),
    "forward": (diffrax.Heun(), diffrax.ForwardMode(), jax.jacfwd, EXACT),
    "direct, reverse": (diffrax.Heun(), diffrax.DirectAdjoint(), jax.grad, EXACT),
    "direct, forward": (diffrax.Heun(), diffrax.DirectAdjoint(), jax.jacfwd, EXACT),
    "checkpointed, nearest": (diffrax.Heun(), CHECKPOINTED, jax.grad, Newton()),
    "checkpointed, implicit": (diffrax.Kvaerno3(root_finder=TIGHT), CHECKPOINTED, jax.grad, EXACT),
    "forward, implicit": (diffrax.Kvaerno3(root_finder=TIGHT), diffrax.ForwardMode(), jax.jacfwd, EXACT),
}
USUAL = ("forward",)


def pendulum_loss(start, solver, adjoint, projection):
    """A function of values at a step's end and between steps. Steps are fixed: those of a controller would jump."""
    solution = diffrax.diffeqsolve(
        PENDULUM,
        Projected(solver, ENERGY, projection),
        0.0,
        2.0,
        0.25,
        start[:2],
        {"k": start[2]},
        saveat=diffrax.SaveAt(ts=jnp.array([0.37, 1.13, 2.0])),
        adjoint=adjoint,
        max_steps=16,
    )
    return jnp.sum(jnp.sin(3 * saved(solution)) * jnp.arange(1.0, 7.0).reshape(3, 2))


@functools.cache
def slopes(solver, projection):
    """Central differences of the loss, which is the same for every adjoint."""
    loss = jax.jit(lambda start: pendulum_loss(start, solver, diffrax.ForwardMode(), projection))
    return [(loss(START + move) - loss(START - move)) / 2e-5 for move in 1e-5 * jnp.eye(3)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in USUAL else pytest.mark.slow) for name in ADJOINTS]
)
def test_gradients_are_those_of_finite_differences(name):
    """In y0, through the level too, and in a parameter of field and constraint."""
    solver, adjoint, differentiate, projection = ADJOINTS[name]
    found = jax.jit(differentiate(lambda start: pendulum_loss(start, solver, adjoint, projection)))(START)
    np.testing.assert_allclose(found, slopes(solver, projection), rtol=1e-7, atol=1e-7)


def test_backsolve_is_refused():
    """Its gradient would leave the projection out."""
    loss = jax.grad(lambda start: pendulum_loss(start, diffrax.Heun(), diffrax.BacksolveAdjoint(), EXACT))
    with pytest.raises(ValueError, match=r"BacksolveAdjoint.*Use `adjoint=RecursiveCheckpointAdjoint"):
        jax.jit(loss).lower(START)


@pytest.mark.slow
def test_an_event_is_found_on_the_manifold():
    """rate t = pi/2 where x[0] = 0 for the first time."""
    event = diffrax.Event(lambda t, y, args, **_: y[0], optimistix.Newton(rtol=1e-12, atol=1e-12))
    solution = diffrax.diffeqsolve(
        TERM,
        Projected(diffrax.Tsit5(), BREATHING, FAST),
        0.0,
        3.0,
        None,
        exact(0.0),
        ARGS,
        stepsize_controller=adaptive(1e-9),
        event=event,
    )
    assert solution.result == diffrax.RESULTS.event_occurred
    (t,), (x,) = np.asarray(solution.ts), saved(solution)
    assert abs(t - np.pi / 2 / ARGS["rate"]) <= 1e-7
    assert abs(x @ x - radius(t, ARGS) ** 2) <= 1e-12
    assert abs(x[0]) <= 1e-10


@eqx.filter_jit
def until_impossible(end, controller, dt0):
    """A circle that is there until t = 1: past it, no state satisfies the constraint."""
    constraint = Constraint(lambda t, x: x @ x - jnp.where(t < 1, 1.0, -1.0))
    solution: Any = diffrax.diffeqsolve(
        ROUND,
        Projected(diffrax.Tsit5(), constraint, FAST),
        0.0,
        end,
        dt0,
        jnp.array([1.0, 0.0]),
        saveat=diffrax.SaveAt(ts=[0.5], steps=True, solver_state=True),
        stepsize_controller=controller,
        max_steps=100,
        throw=False,
    )
    return solution.result, solution.ts, solution.solver_state.result


@pytest.mark.parametrize(
    ("controller", "dt0"),
    [(adaptive(1e-6), None), pytest.param(diffrax.ConstantStepSize(), 0.1, marks=pytest.mark.slow)],
)
def test_a_failed_projection_ends_the_solve_and_says_why(controller, dt0):
    """It is retried with shorter steps, where there is a controller; others of a batch go on."""
    result, ts, reason = jax.vmap(lambda end: until_impossible(end, controller, dt0))(jnp.array([0.9, 2.0]))
    assert np.array_equal(result == diffrax.RESULTS.successful, [True, False])
    assert np.array_equal(result == diffrax.RESULTS.nonlinear_divergence, [False, True])
    failed = jax.tree.map(lambda leaf: leaf[1], reason)
    assert failed == RESULTS.not_converged
    reached = np.max(np.where(np.isfinite(ts[1]), ts[1], 0))
    assert reached == pytest.approx(1.0, abs=1e-6 if dt0 is None else 0.1)


def run_one(solver, x0=(1.0, 0.0), args=None, terms=None, **options):
    """A short solve on the unit circle."""
    terms = ROUND if terms is None else terms
    x0 = jnp.asarray(x0) if isinstance(x0, tuple) else x0
    return diffrax.diffeqsolve(terms, solver, 0.0, 1.0, 0.1, x0, args, **options)


EULER = Projected(diffrax.Euler(), CIRCLE, FAST, level=jnp.zeros(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: check_solver("Tsit5"), "give a Diffrax solver"),
        (lambda: check_solver(diffrax.Tsit5), "give a Diffrax solver"),
        (lambda: Projected(EULER, CIRCLE), "one Projected as Stack"),
        (lambda: Projected(diffrax.HalfSolver(EULER), CIRCLE), "one Projected as Stack"),
        (lambda: Projected(diffrax.HalfSolver(diffrax.Kvaerno3()), CIRCLE), r"Set them: Kvaerno3\(root_finder"),
        (lambda: EULER.start(0.0, jnp.array([1, 0])), "y0 contains an array of dtype int"),
        (lambda: EULER.start(0.0, {"x": 1.0}), "y0 contains a float"),
        (lambda: run_one(Projected(diffrax.Euler(), CIRCLE, level=jnp.ones(2))), r"shape \(2,\).*1 equations"),
        (lambda: run_one(Projected(diffrax.Euler(), Constraint(lambda x: jnp.tile(x, 2)))), "4 equations for 2"),
    ],
)
def test_what_cannot_be_projected_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_an_initial_state_off_the_manifold_is_refused_until_projected():
    start = jnp.array([3.0, 4.0])
    with pytest.raises(RuntimeError, match=r"solver.start\(t0, y0, args\)"):
        run_one(EULER, x0=start)
    x0 = eqx.filter_jit(EULER.start)(0.0, 0.22 * start)
    np.testing.assert_allclose(x0, [0.6, 0.8], atol=1e-12)
    held = saved(run_one(EULER, x0=x0))[0]
    assert abs(held @ held - 1) <= 1e-12
    larger = Projected(diffrax.Euler(), CIRCLE, FAST, level=jnp.array([24.0]))
    held = saved(run_one(larger, x0=start))[0]
    assert abs(held @ held - 25) <= 1e-11


@pytest.mark.slow
def test_whatever_the_constraint_reads_reaches_dense_output():
    """An index, a number, a name and a function beside an array: `parameters` picks them out of any `args`."""
    args = ({"which": jnp.array([1, 0]), "r": 2.0, "name": "circle", "square": jnp.square}, jnp.array(0.5))
    constraint = Constraint(lambda x, p: jnp.sum(p["square"](x[p["which"]])) - (p["r"] if p["name"] == "circle" else 0))
    solver = Projected(diffrax.Euler(), constraint, FAST, parameters=lambda args: args[0] | {"half": args[1]})
    x0 = (2**0.5, 0.0)
    solution = run_one(solver, x0, args, saveat=diffrax.SaveAt(dense=True), max_steps=12)
    x = jax.vmap(solution.evaluate)(jnp.linspace(0, 1, 7))
    np.testing.assert_allclose(np.sum(x**2, axis=1), 2, atol=1e-12)
    assert eqx.tree_equal(unpack(pack(args)), args, typematch=True)


def test_a_value_that_cannot_be_projected_is_nan():
    """A line through the centre of the circle, where no point is nearest; derivatives stay finite beside it."""

    def between(end):
        manifold = pack((diffrax.LocalLinearInterpolation, form_of(end), CIRCLE, FAST, {}, jnp.zeros(1)))
        inner = {"y0": jnp.array([1.0, 0.0]), "y1": end}
        path = ProjectedInterpolation(0.0, 1.0, inner, manifold, inner["y0"], jnp.array(1.0))
        return path.evaluate(0.05), path.evaluate(0.5)

    end = jnp.array([-1.0, 0.0])
    early, middle = jax.jit(between)(end)
    np.testing.assert_allclose(early, [1, 0], atol=1e-12)
    assert np.all(np.isnan(middle))
    assert all(np.all(np.isfinite(slope)) for slope in jax.jit(jax.jacrev(between))(end))


@pytest.mark.slow
def test_half_solver_gives_a_projected_euler_its_error_estimate():
    solution = run_one(diffrax.HalfSolver(EULER), stepsize_controller=adaptive(1e-4), saveat=diffrax.SaveAt(ts=[0.7]))
    np.testing.assert_allclose(saved(solution)[0], [np.cos(0.7), np.sin(0.7)], atol=1e-2)
    assert abs(saved(solution)[0] @ saved(solution)[0] - 1) <= 1e-12


@pytest.mark.slow
def test_single_precision():
    """Time and state in float32 stay there, at the limit of it."""
    x0, ts = jnp.array([1.0, 0.0], jnp.float32), jnp.linspace(0, 10, 50, dtype=jnp.float32)
    solution = diffrax.diffeqsolve(
        ROUND,
        Projected(diffrax.Tsit5(), CIRCLE, Newton()),
        ts[0],
        ts[-1],
        None,
        x0,
        saveat=diffrax.SaveAt(ts=ts),
        stepsize_controller=adaptive(1e-4),
    )
    assert saved(solution).dtype == jnp.float32
    assert np.max(np.abs(np.sum(np.asarray(saved(solution), float) ** 2, axis=1) - 1)) <= 1e-6


@pytest.mark.parametrize("constraint", [Constraint(lambda x: jnp.zeros(1)), Constraint(lambda x: jnp.zeros(0))])
def test_a_constraint_that_does_not_read_the_state_changes_nothing(constraint):
    free, held = (run_one(solver) for solver in (diffrax.Heun(), Projected(diffrax.Heun(), constraint)))
    assert np.array_equal(saved(free), saved(held))
