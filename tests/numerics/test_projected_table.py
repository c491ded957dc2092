"""Every solver, adjoint, controller, event and form of output that Diffrax has, inside `Projected`, from tables.

The tables are compared with what the installed Diffrax exports: a class or a field that is new there has no row here,
and the test fails until it gets one. A row says what the combination has to achieve: the invariant to the limit of the
dtype at all that is saved, and the exact solution at the solver's order; or that it is refused, and how.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest

from twinfold.model import Conserved, Constraint
from twinfold.numerics import Newton, Projected

LIMIT = 32 * np.finfo(float).eps  # of a violation, where the values are about two
END = 1.5


def concrete(base: type) -> set[str]:
    """Names of the classes that Diffrax exports and one can make an object of."""
    kinds = [kind for kind in vars(diffrax).values() if isinstance(kind, type) and issubclass(kind, base)]
    return {kind.__name__ for kind in kinds if not kind.__name__.startswith("Abstract")}


@dataclasses.dataclass(frozen=True)
class Problem:
    """Terms and invariant, with the exact solution at time t along the Brownian path of a key."""

    terms: Callable[[Any], Any]
    constraint: Any
    exact: Callable[[Any, Any], Any]
    args: Any = None


def path(key, shape=(), levy_area: Any = diffrax.SpaceTimeLevyArea) -> Any:
    return diffrax.VirtualBrownianTree(0.0, END, END / 2**10, shape, key, levy_area=levy_area)


def rotated(angle):
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def quarter_turn(x):
    return jnp.stack([-x[1], x[0]])


# A circle that breathes, x = r(t) (cos, sin)(rate t) with r = 1 + sin(t) / 2: time enters, and a parameter.
RATE = {"rate": jnp.array(1.3)}


def radius(t):
    return 1 + jnp.sin(t) / 2


def swell(t, x, p):
    return jnp.cos(t) / 2 / radius(t) * x


def turn(t, x, p):
    return p["rate"] * quarter_turn(x)


BREATHING = Constraint(lambda t, x: x @ x - radius(t) ** 2)


def breathing(t, key):
    return radius(t) * rotated(1.3 * t)


ODE = Problem(lambda key: diffrax.ODETerm(lambda t, x, p: swell(t, x, p) + turn(t, x, p)), BREATHING, breathing, RATE)
SPLIT = Problem(
    lambda key: diffrax.MultiTerm(diffrax.ODETerm(swell), diffrax.ODETerm(turn)), BREATHING, breathing, RATE
)
# A mass on a spring, position and velocity apart.
SPRING = Problem(
    lambda key: (diffrax.ODETerm(lambda t, v, args: v), diffrax.ODETerm(lambda t, q, args: {"s": -q["s"]})),
    Conserved(lambda x: x[0]["s"] ** 2 + x[1]["s"] ** 2),
    lambda t, key: ({"s": jnp.cos(t)}, {"s": -jnp.sin(t)}),
)
# A point on a circle that Brownian motion turns: its angle is t + noise W(t).
NOISE = 0.4


def turned(t, key):
    return rotated(t + NOISE * path(key).evaluate(0.0, t))


def noisy(drift):
    def terms(key):
        return diffrax.MultiTerm(
            diffrax.ODETerm(drift), diffrax.ControlTerm(lambda t, x, args: NOISE * quarter_turn(x), path(key))
        )

    return Problem(terms, Conserved(lambda x: x @ x), turned)


STRATONOVICH = noisy(lambda t, x, args: quarter_turn(x))
ITO = noisy(lambda t, x, args: quarter_turn(x) - NOISE**2 / 2 * x)


# Additive noise: x[0] = t + noise W(t) is the rate at which x[1:] turns, so that the angle is the integral of x[0].
def driven(t, key):
    levy = path(key).evaluate(0.0, t, use_levy=True)
    return jnp.concatenate([(t + NOISE * levy.W)[None], rotated(t**2 / 2 + NOISE * t * (levy.W / 2 + levy.H))])


ADDITIVE = Problem(
    lambda key: diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, x, args: jnp.concatenate([jnp.ones(1), x[0] * quarter_turn(x[1:])])),
        diffrax.ControlTerm(lambda t, x, args: jnp.array([NOISE, 0.0, 0.0]), path(key)),
    ),
    Conserved(lambda x: x[1:] @ x[1:]),
    driven,
)


# Langevin diffusion of two coordinates, the second without friction and so without noise: its energy is conserved.
# The exact solution of the first one is not known (NaN).
def langevin(key):
    gamma, u, noise = jnp.array([0.5, 0.0]), jnp.ones(2), path(key, (2,), diffrax.SpaceTimeTimeLevyArea)
    return diffrax.MultiTerm(
        diffrax.UnderdampedLangevinDriftTerm(gamma, u, lambda x, args: x),
        diffrax.UnderdampedLangevinDiffusionTerm(gamma, u, noise),
    )


def swinging(t, key):
    unknown = jnp.where(t == 0, 0.0, jnp.nan)
    return jnp.stack([unknown, jnp.cos(t)]), jnp.stack([unknown, -jnp.sin(t)])


LANGEVIN = Problem(langevin, Conserved(lambda x: x[0][1] ** 2 + x[1][1] ** 2), swinging)

# Root finders of implicit solvers: fixed steps have no tolerance that they could take over.
TIGHT = optimistix.Newton(rtol=1e-11, atol=1e-11)


@dataclasses.dataclass(frozen=True)
class Row:
    """A solver, what it solves, the error to expect of it at steps of dt, and its order there."""

    solver: Any
    problem: Problem
    error: float
    order: float
    dt: float = 0.1


def implicit(kind, problem, error, order):
    return Row(kind(root_finder=TIGHT, root_find_max_steps=30), problem, error, order)


SOLVERS = {
    "ALIGN": Row(diffrax.ALIGN(), LANGEVIN, 0.0008, 2),
    "Bosh3": Row(diffrax.Bosh3(), ODE, 0.0003, 3),
    "Dopri5": Row(diffrax.Dopri5(), ODE, 4e-08, 5),
    "Dopri8": Row(diffrax.Dopri8(), ODE, 1e-8, 8, dt=0.5),
    "Euler": Row(diffrax.Euler(), ODE, 0.1, 1),
    "EulerHeun": Row(diffrax.EulerHeun(), STRATONOVICH, 0.025, 1),
    "GeneralShARK": Row(diffrax.GeneralShARK(), STRATONOVICH, 0.02, 1),
    "HalfSolver": Row(diffrax.HalfSolver(diffrax.Midpoint()), ODE, 0.003, 2),
    "Heun": Row(diffrax.Heun(), ODE, 0.008, 2),
    "ImplicitEuler": implicit(diffrax.ImplicitEuler, ODE, 0.07, 1),
    "ItoMilstein": Row(diffrax.ItoMilstein(), ITO, 0.025, 1),
    "KenCarp3": implicit(diffrax.KenCarp3, SPLIT, 3e-05, 3),
    "KenCarp4": implicit(diffrax.KenCarp4, SPLIT, 1e-06, 4),
    "KenCarp5": implicit(diffrax.KenCarp5, SPLIT, 2e-08, 5),
    "Kvaerno3": implicit(diffrax.Kvaerno3, ODE, 0.0002, 3),
    "Kvaerno4": implicit(diffrax.Kvaerno4, ODE, 4e-05, 4),
    "Kvaerno5": implicit(diffrax.Kvaerno5, ODE, 2e-07, 5),
    "LeapfrogMidpoint": Row(diffrax.LeapfrogMidpoint(), ODE, 1e-2, 2),
    "Midpoint": Row(diffrax.Midpoint(), ODE, 1e-2, 2),
    "QUICSORT": Row(diffrax.QUICSORT(), LANGEVIN, 4e-07, 4),
    "Ralston": Row(diffrax.Ralston(), ODE, 1e-2, 2),
    "ReversibleHeun": Row(diffrax.ReversibleHeun(), ODE, 8e-3, 2),
    "SEA": Row(diffrax.SEA(), ADDITIVE, 0.1, 1),
    "SPaRK": Row(diffrax.SPaRK(), STRATONOVICH, 0.012, 1),
    "SRA1": Row(diffrax.SRA1(), ADDITIVE, 0.004, 1.5),
    "SemiImplicitEuler": Row(diffrax.SemiImplicitEuler(), SPRING, 0.06, 1),
    "ShARK": Row(diffrax.ShARK(), ADDITIVE, 0.004, 1.5),
    "ShOULD": Row(diffrax.ShOULD(), LANGEVIN, 1e-05, 3),
    "Sil3": implicit(diffrax.Sil3, SPLIT, 0.003, 2),
    "SlowRK": Row(diffrax.SlowRK(), STRATONOVICH, 0.004, 1.5),
    "StratonovichMilstein": Row(diffrax.StratonovichMilstein(), STRATONOVICH, 0.025, 1),
    "Tsit5": Row(diffrax.Tsit5(), ODE, 1e-6, 5, dt=0.3),
}
MORE_SOLVERS = {
    "Euler, noise": Row(diffrax.Euler(), ITO, 0.2, 0.5),
    "Heun, noise": Row(diffrax.Heun(), STRATONOVICH, 0.1, 1),
    "ReversibleHeun, noise": Row(diffrax.ReversibleHeun(), STRATONOVICH, 0.1, 1),
    "HalfSolver of an implicit solver": Row(
        diffrax.HalfSolver(diffrax.Kvaerno3(root_finder=TIGHT, root_find_max_steps=30)), ODE, 3e-4, 3
    ),
}
USUAL_SOLVERS = ("SemiImplicitEuler", "ReversibleHeun")


def rows(table, usual):
    """Names of a table: all but the usual ones are slow."""
    return [pytest.param(name, marks=() if name in usual else pytest.mark.slow) for name in table]


def errors_and_violations(row: Row):
    """A function of keys and dt: the error at the steps; the violation at the steps and between them, for each key."""
    problem = row.problem

    def one(key, dt):
        y0 = problem.exact(jnp.array(0.0), key)
        solution: Any = diffrax.diffeqsolve(
            problem.terms(key),
            Projected(row.solver, problem.constraint, Newton()),
            0.0,
            END,
            dt,
            y0,
            problem.args,
            saveat=diffrax.SaveAt(
                subs={"steps": diffrax.SubSaveAt(steps=True), "ts": diffrax.SubSaveAt(ts=jnp.linspace(0, END, 7))}
            ),
            max_steps=32,
        )
        level = problem.constraint.level(0.0, y0, problem.args or {})

        def violation(t, y):
            return problem.constraint.residual(t, y, problem.args or {}, level)

        taken = jnp.isfinite(solution.ts["steps"])
        ts = jnp.where(taken, solution.ts["steps"], END)
        exact = jax.vmap(lambda t: problem.exact(t, key))(ts)
        differences = jax.tree.leaves(jax.tree.map(jnp.subtract, solution.ys["steps"], exact))
        error = jnp.stack([jnp.nanmax(jnp.abs(jnp.where(taken, each.T, 0))) for each in differences]).max()
        violations = [jax.vmap(violation)(solution.ts[each], solution.ys[each]) for each in ("steps", "ts")]
        return error, jnp.concatenate([jnp.where(taken[:, None], violations[0], 0), violations[1]])

    return jax.jit(jax.vmap(one, in_axes=(0, None)))


def test_every_solver_has_a_row():
    assert concrete(diffrax.AbstractSolver) == set(SOLVERS)


@pytest.mark.parametrize("name", rows(SOLVERS | MORE_SOLVERS, USUAL_SOLVERS))
def test_solver(name):
    """On the manifold at the steps and between them, and the solution at the solver's order."""
    row = (SOLVERS | MORE_SOLVERS)[name]
    noisy = row.problem in (STRATONOVICH, ITO, ADDITIVE)
    keys = jax.random.split(jax.random.key(0), 16 if noisy else 1)
    measure, errors = errors_and_violations(row), []
    for dt in (row.dt, row.dt / 2):
        error, violation = measure(keys, dt)
        assert np.max(np.abs(violation)) <= LIMIT
        errors.append(np.sqrt(np.mean(error**2)))
    assert errors[0] <= row.error
    assert np.log2(errors[0] / errors[1]) >= row.order - 0.25


def solve(solver=None, t0=0.0, t1=END, dt0=0.05, controller=None, y0=None, **options) -> Any:
    """The breathing circle, from its exact state at t0 unless y0 is given."""
    return diffrax.diffeqsolve(
        ODE.terms(None),
        Projected(diffrax.Tsit5() if solver is None else solver, BREATHING, Newton()),
        t0,
        t1,
        dt0,
        breathing(t0, None) if y0 is None else y0,
        RATE,
        stepsize_controller=diffrax.ConstantStepSize() if controller is None else controller,
        max_steps=200,
        **options,
    )


def check(ts, ys, error=1e-6, limit=LIMIT):
    """Values of the breathing circle: on it to the limit of the dtype, and as far round it as they should be."""
    ts = np.asarray(ts)
    taken = np.isfinite(ts)
    assert taken.any()
    ts, ys = ts[taken], np.asarray(ys)[taken]
    assert np.max(np.abs(np.sum(ys**2, axis=1) - np.asarray(radius(ts)) ** 2)) <= limit
    assert np.max(np.abs(ys - np.asarray(breathing(ts, None)).T)) <= error


# Step size controllers; each is run forwards and backwards.
PID = diffrax.PIDController(rtol=1e-7, atol=1e-7)
AT = jnp.array([0.31, 0.97])
CONTROLLERS = {
    "ClipStepSizeController": (diffrax.ClipStepSizeController(PID, AT, AT + 0.1, store_rejected_steps=20), None),
    "ConstantStepSize": (diffrax.ConstantStepSize(), 0.05),
    "PIDController": (PID, None),
    "StepTo": (diffrax.StepTo(jnp.linspace(0, END, 31)), None),
}


def test_every_controller_has_a_row():
    assert concrete(diffrax.AbstractStepSizeController) == set(CONTROLLERS)


@pytest.mark.parametrize("backwards", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", rows(CONTROLLERS, ("ClipStepSizeController",)))
def test_controller(name, backwards):
    controller, dt0 = CONTROLLERS[name]
    ends = (END, 0.0) if backwards else (0.0, END)
    if name == "StepTo" and backwards:
        controller = diffrax.StepTo(controller.ts[::-1])
    saveat = diffrax.SaveAt(ts=jnp.linspace(*ends, 9), steps=True)
    dt0 = -dt0 if backwards and dt0 else dt0
    solution = jax.jit(lambda: solve(None, *ends, dt0, controller, saveat=saveat))()
    check(solution.ts, solution.ys)
    if name == "ClipStepSizeController":
        assert all(np.any(np.asarray(solution.ts) == at) for at in np.asarray(AT))


@pytest.mark.slow
def test_a_jump_of_the_field():
    """It turns, and from 0.7 on back: without `made_jump` a stage from before would be used after it."""
    controller = diffrax.ClipStepSizeController(PID, jump_ts=jnp.array([0.7]))
    solution: Any = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, x, args: jnp.where(t < 0.7, 1.0, -2.0) * quarter_turn(x)),
        Projected(diffrax.Tsit5(), Conserved(lambda x: x @ x), Newton()),
        0.0,
        END,
        None,
        jnp.array([1.0, 0.0]),
        stepsize_controller=controller,
    )
    (y,) = solution.ys
    np.testing.assert_allclose(y, rotated(0.7 - 2 * (END - 0.7)), atol=1e-6)
    assert abs(y @ y - 1) <= LIMIT


# What is saved: for each field of SaveAt and SubSaveAt how it is asked for.
TS = jnp.linspace(0.2, END, 5)
HALF = END / 2
SAVED = {
    "t0": diffrax.SaveAt(t0=True),
    "t1": diffrax.SaveAt(t1=True),
    "ts": diffrax.SaveAt(ts=TS),
    "steps": diffrax.SaveAt(steps=3),
    "fn": diffrax.SaveAt(ts=TS, fn=lambda t, y, args: y),
    "subs": diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=TS), {"all": diffrax.SubSaveAt(t0=True, steps=True)}]),
    "dense": diffrax.SaveAt(dense=True),
    "solver_state": diffrax.SaveAt(t1=True, solver_state=True),
    "controller_state": diffrax.SaveAt(t1=True, controller_state=True),
    "made_jump": diffrax.SaveAt(t1=True, solver_state=True, controller_state=True, made_jump=True),
}


def test_every_form_of_output_has_a_row():
    fields = {field.name for kind in (diffrax.SaveAt, diffrax.SubSaveAt) for field in dataclasses.fields(kind)}
    assert fields == set(SAVED)


@pytest.mark.parametrize("name", rows(SAVED, ("subs",)))
def test_saved(name):
    saveat = SAVED[name]
    resumed = [each for each in ("solver_state", "controller_state", "made_jump") if getattr(saveat, each)]
    solution = eqx.filter_jit(solve)(t1=HALF if resumed else END, controller=PID, saveat=saveat)
    if saveat.dense:
        check(TS, jax.jit(jax.vmap(solution.evaluate))(TS))
        return
    for ts, ys in zip(jax.tree.leaves(solution.ts), jax.tree.leaves(solution.ys), strict=True):
        check(ts, ys)
    if resumed:  # the second half begins with what the first one left
        states = {each: getattr(solution, each) for each in resumed}
        second = eqx.filter_jit(solve)(t0=HALF, y0=solution.ys[-1], controller=PID, **states)
        check(second.ts, second.ys)


# Events: for each, when and at what error it is found.
ROOT = optimistix.Newton(rtol=1e-12, atol=1e-12)
CROSSING = np.pi / 2 / 1.3  # where x[0] = 0 for the first time


def crossing(t, y, args, **_):
    return y[0]


def late(t, y, args, **_):
    return t > 1.3


EVENTS = {
    "cond_fn": (diffrax.Event(lambda t, y, args, **_: y[0] < 0), 0.05),
    "cond_fn, several": (diffrax.Event({"late": late, "crossing": crossing}, ROOT), 1e-9),
    "root_finder": (diffrax.Event(crossing, ROOT), 1e-9),
    "direction": (diffrax.Event([crossing, crossing], ROOT, direction=[True, False]), 1e-9),
}


def test_every_field_of_an_event_has_a_row():
    assert {field.name for field in dataclasses.fields(diffrax.Event)} <= set(EVENTS)


@pytest.mark.parametrize("name", rows(EVENTS, ("direction",)))
def test_event(name):
    event, error = EVENTS[name]
    solution = jax.jit(lambda: solve(dt0=0.02, event=event, saveat=diffrax.SaveAt(t1=True, steps=True)))()
    assert solution.result == diffrax.RESULTS.event_occurred
    check(solution.ts, solution.ys)
    last = np.max(np.where(np.isfinite(solution.ts), solution.ts, 0))
    assert abs(last - CROSSING) <= error


# Adjoints. A state that turns towards c on a circle: f is zero for any multiple of c, and the level tells which.
TOWARDS = diffrax.ODETerm(lambda t, x, p: p["c"] - x * (p["c"] @ x) / (x @ x))
SQUARE = Conserved(lambda x: x @ x)
GUESS = jnp.array([1.0, 0.2])


def steady(theta, level=None, constraint=SQUARE):
    """x(infinity), which is sqrt(level) c / |c|."""
    solution: Any = diffrax.diffeqsolve(
        TOWARDS,
        Projected(diffrax.Tsit5(), constraint, Newton(), level=level),
        0.0,
        100.0,
        None,
        GUESS,
        {"c": theta},
        stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9),
        event=diffrax.Event(diffrax.steady_state_event()),
        adjoint=diffrax.ImplicitAdjoint(),
    )
    return solution.ys[0]


def turned_by(theta, adjoint):
    """A state of two leaves, the cosine and sine of theta[0] + theta[1] t. Steps are fixed."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, p: {"c": -p["rate"] * y["s"], "s": p["rate"] * y["c"]}),
        Projected(diffrax.Tsit5(), Conserved(lambda x: x["c"] ** 2 + x["s"] ** 2), Newton()),
        0.0,
        1.0,
        0.1,
        {"c": jnp.cos(theta[0]), "s": jnp.sin(theta[0])},
        {"rate": theta[1]},
        saveat=diffrax.SaveAt(ts=[0.52, 1.0]),
        adjoint=adjoint,
        max_steps=16,
    )
    ys: Any = solution.ys
    return jnp.stack([ys["c"][0], ys["s"][1]])


THETA = jnp.array([0.3, 1.2])
ANGLES = THETA[0] + THETA[1] * jnp.array([0.52, 1.0])
SLOPES = np.array([-np.sin(ANGLES[0]), np.cos(ANGLES[1])])[:, None] * np.array([[1, 0.52], [1, 1]])
REVERSE, FORWARD = (jax.jacrev,), (jax.jacfwd,)
ADJOINTS = {
    "BacksolveAdjoint": (diffrax.BacksolveAdjoint(), ()),  # refused, see below
    "DirectAdjoint": (diffrax.DirectAdjoint(), REVERSE + FORWARD),
    "ForwardMode": (diffrax.ForwardMode(), FORWARD),
    "ImplicitAdjoint": (diffrax.ImplicitAdjoint(), ()),  # of a steady state, see below
    "RecursiveCheckpointAdjoint": (diffrax.RecursiveCheckpointAdjoint(), REVERSE),
}


def test_every_adjoint_has_a_row():
    assert concrete(diffrax.AbstractAdjoint) == set(ADJOINTS)


@pytest.mark.parametrize("name", rows([name for name in ADJOINTS if ADJOINTS[name][1]], ("ForwardMode",)))
def test_derivatives_are_the_exact_ones(name):
    adjoint, modes = ADJOINTS[name]
    for differentiate in modes:
        found = jax.jit(differentiate(lambda theta: turned_by(theta, adjoint)))(THETA)
        np.testing.assert_allclose(found, SLOPES, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("differentiate", [jax.jacrev, jax.jacfwd])
def test_the_derivative_of_a_steady_state(differentiate):
    """In the field and in the level; the level is the squared length of the initial guess."""
    c, level = jnp.array([0.6, 1.1]), SQUARE.level(0.0, GUESS, {})

    def exact(c, level):
        return jnp.sqrt(level[0]) * c / jnp.linalg.norm(c)

    np.testing.assert_allclose(steady(c, level), exact(c, level), atol=1e-8)
    found = jax.jit(differentiate(steady, argnums=(0, 1)))(c, level)
    for each, wanted in zip(found, differentiate(exact, argnums=(0, 1))(c, level), strict=True):
        np.testing.assert_allclose(each, wanted, atol=1e-6)
    np.testing.assert_allclose(jax.jit(differentiate(steady))(c), differentiate(exact)(c, level), atol=1e-6)


def test_what_an_adjoint_cannot_know_is_refused():
    """The projection, in an equation that is integrated backwards; the level of y0, where it depends on args."""
    c = jnp.array([0.6, 1.1])
    with pytest.raises(ValueError, match=r"BacksolveAdjoint.*Use `adjoint=RecursiveCheckpointAdjoint"):
        jax.jit(jax.jacrev(lambda theta: turned_by(theta, diffrax.BacksolveAdjoint()))).lower(THETA)
    weighted = Conserved(lambda x, p: p["c"] @ x**2)
    with pytest.raises(RuntimeError, match=r"ImplicitAdjoint.*level=constraint.level"):
        jax.jit(jax.jacrev(lambda c: steady(c, constraint=weighted))).lower(c)


# States of other forms: the angle 1.3 t, as each of them, with what is constant in it.
class Pair(eqx.Module):
    a: Any
    b: Any


def form(make, field, invariant):
    """A problem whose exact state is `make(cos, sin)` of the angle."""
    return Problem(lambda key: diffrax.ODETerm(field), Conserved(invariant), lambda t, key: make(*rotated(1.3 * t)))


FORMS = {
    "vector": form(lambda c, s: jnp.stack([c, s]), lambda t, x, args: 1.3 * quarter_turn(x), lambda x: x @ x),
    "matrix": form(
        lambda c, s: jnp.stack([jnp.stack([c, s]), jnp.stack([-s, c])]),
        lambda t, x, args: 1.3 * jnp.stack([quarter_turn(x[0]), quarter_turn(x[1])]),
        lambda x: jnp.concatenate([jnp.diag(x @ x.T), (x @ x.T)[0, 1:]]),
    ),
    "complex": form(jax.lax.complex, lambda t, x, args: 1.3j * x, lambda x: x.real**2 + x.imag**2),
    "tree": form(
        lambda c, s: {"p": Pair(c[None], None), "q": (s, jnp.zeros((0, 2)))},
        lambda t, x, args: {"p": Pair(-1.3 * x["q"][0][None], None), "q": (1.3 * x["p"].a[0], jnp.zeros((0, 2)))},
        lambda x: x["p"].a[0] ** 2 + x["q"][0] ** 2,
    ),
}


@pytest.mark.filterwarnings("ignore:Complex dtype support in Diffrax")
@pytest.mark.parametrize("name", rows(FORMS, ("tree",)))
def test_state_of_any_form(name):
    """Adaptive steps, events and dense output too, under vmap."""
    problem = FORMS[name]
    times = jnp.linspace(0.1, END, 6)

    def one(start):
        y0 = problem.exact(start, None)
        solution = diffrax.diffeqsolve(
            problem.terms(None),
            Projected(diffrax.Dopri5(), problem.constraint, Newton()),
            0.0,
            END,
            None,
            y0,
            saveat=diffrax.SaveAt(ts=times, dense=True),
            stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
            event=diffrax.Event(lambda t, y, args, **_: t > 10),
            max_steps=50,
        )
        level = problem.constraint.level(0.0, y0, {})
        both = solution.ys, jax.vmap(solution.evaluate)(times)
        exact = jax.vmap(lambda t: problem.exact(start + t, None))(times)
        return [
            (
                jax.vmap(lambda y: problem.constraint.residual(0.0, y, {}, level))(ys),
                jax.tree.map(jnp.subtract, ys, exact),
            )
            for ys in both
        ]

    for violation, error in jax.jit(jax.vmap(one))(jnp.array([0.0, 0.4])):
        assert np.max(np.abs(violation)) <= LIMIT
        assert max(np.max(np.abs(each), initial=0) for each in jax.tree.leaves(error)) <= 2e-5


def test_leaves_of_two_dtypes_keep_them():
    """Diffrax's own Runge-Kutta methods take one dtype; what is projected need not have one."""
    circle = Constraint(lambda x: x[0].astype(jnp.float64) ** 2 + x[1] ** 2 - 1)
    y = jax.jit(Projected(diffrax.Euler(), circle, Newton()).start)(
        0.0, (jnp.array(0.66, jnp.float32), jnp.array(0.88))
    )
    assert [leaf.dtype for leaf in y] == [jnp.float32, jnp.float64]
    np.testing.assert_allclose(y, [0.6, 0.8], atol=1e-7)
