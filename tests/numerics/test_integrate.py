"""Orders of convergence, fitted on known solutions, with and without projection."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest
from support.cases import energy

from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Conserved, Constraint
from twinfold.numerics._cell import Cell
from twinfold.numerics._integrate.diffrax_step import DiffraxStep
from twinfold.numerics._integrate.explicit import RK4, Euler, Heun, Midpoint
from twinfold.numerics._project.base import NoProjection
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._rollout import rollout
from twinfold.numerics._stability import unstable_step

TSIT5 = diffrax.Tsit5()
ROOT = optimistix.Chord(rtol=1e-10, atol=1e-10)
METHODS = {
    "euler": (Euler, 1, [40, 80, 160]),
    "midpoint": (Midpoint, 2, [20, 40, 80]),
    "heun": (Heun, 2, [20, 40, 80]),
    "rk4": (RK4, 4, [10, 20, 40]),
    "tsit5": (lambda: DiffraxStep(TSIT5), 5, [6, 12, 24]),
    "kvaerno3": (lambda: DiffraxStep(diffrax.Kvaerno3(root_finder=ROOT)), 3, [10, 20, 40]),
}


def turning(t, x, w):
    """x' = (1 + w) J x + (1 - |x|^2) x: on the unit circle, the angle is the integral of 1 + w."""
    rate = 1 + (0 if w is None else w[0])
    return rate * jnp.stack([-x[1], x[0]]) + jnp.cos(t) * (1 - x @ x) * x


def angle(t):
    """Integral of 1 + w with w(t) = 2 t, which linear interpolation between samples is exact for."""
    return t + t**2


CIRCLE = Constraint(lambda x: x @ x - 1)


EXPLICIT = ("euler", "midpoint", "heun", "rk4", "tsit5")
USUAL = ("euler", "rk4")  # of those with a projection


def fitted_order(integrator, counts, *, projection, driven=True, total=1.5, field=turning, constraint=CIRCLE, end=None):
    cell = Cell(
        field, integrator=integrator, constraint=constraint, projection=projection, input_interpolation="linear"
    )
    run = jax.jit(lambda ts, w: rollout(cell, jnp.array([1.0, 0.0]), ts, w, throw=False))
    errors = []
    for count in counts:
        # Padded to one shape by repeating the last time, so that all three compile once.
        ts = jnp.asarray(np.minimum(np.arange(counts[-1] + 1) / count, 1) * total)
        w = 2 * ts[:, None] if driven else None
        trajectory = run(ts, w)
        assert not trajectory.failed
        last = end if end is not None else (angle(total) if driven else total)
        errors.append(np.linalg.norm(trajectory.xs[-1] - np.array([np.cos(last), np.sin(last)])))
    return np.polyfit(np.log(np.asarray(counts)), -np.log(errors), 1)[0]


@pytest.mark.parametrize(
    ("method", "projection"),
    [
        *(pytest.param(method, NoProjection(), id=f"{method}-free") for method in EXPLICIT),
        *(
            pytest.param(method, Newton(), id=f"{method}-projected", marks=() if method in USUAL else pytest.mark.slow)
            for method in EXPLICIT
        ),
    ],
)
def test_order(method, projection):
    make, order, counts = METHODS[method]
    assert fitted_order(make(), counts, projection=projection) >= order - 0.1


def test_order_of_an_implicit_solver():
    make, order, counts = METHODS["kvaerno3"]
    assert fitted_order(make(), counts, projection=NoProjection()) >= order - 0.1


def test_projected_euler_on_mass_spring_gains_an_order():
    """The error of Euler is radial to leading order: what is left after projection is of order two."""
    options = {"field": lambda x: jnp.stack([x[1], -x[0]]), "constraint": Conserved(energy), "end": -1.5}
    counts = [40, 80, 160]
    free = fitted_order(Euler(), counts, projection=NoProjection(), driven=False, **options)
    projected = fitted_order(Euler(), counts, projection=Newton(), driven=False, **options)
    assert free == pytest.approx(1, abs=0.1)
    assert projected >= 1.9


def test_order_in_time_alone():
    """x' = f(t): the nodes c of each tableau, and Heun and midpoint at the order of their quadrature."""
    for make, order, counts in METHODS.values():
        run = jax.jit(
            lambda dt, make=make: make().step(fall, jnp.array(0.0), dt, jnp.zeros(1), lambda t: None, {}).x[0]
        )
        errors = [abs(float(run(jnp.array(1.0 / count))) - np.sin(1.0 / count)) for count in counts[:2]]
        assert np.log2(errors[0] / errors[1]) >= order + 1 - 0.15


def fall(t, x, w, p):
    return jnp.cos(t)[None] * jnp.ones(1)


@pytest.mark.parametrize("substeps", [2, 5])
@pytest.mark.parametrize("method", ["euler", "midpoint", "heun", "rk4", "tsit5"])
def test_substeps_are_smaller_steps(method, substeps):
    make = METHODS[method][0]
    whole = DiffraxStep(TSIT5, substeps=substeps) if method == "tsit5" else make(substeps=substeps)

    def field(t, x, w, p):
        return p["rate"] * turning(t, x, w)

    def w(t):
        return jnp.stack([1 + t])

    @jax.jit
    def by_hand(x):
        for i in range(substeps):
            x = (
                make()
                .step(field, jnp.array(0.2 + 0.3 * i / substeps), jnp.array(0.3 / substeps), x, w, {"rate": 1.3})
                .x
            )
        return x

    x = jnp.array([0.8, -0.3])
    once = whole.step(field, jnp.array(0.2), jnp.array(0.3), x, w, {"rate": 1.3}).x
    np.testing.assert_allclose(once, by_hand(x), rtol=1e-14, atol=1e-15)


SOLVERS = {"kvaerno3": diffrax.Kvaerno3(root_finder=ROOT), "euler": diffrax.ImplicitEuler(root_finder=ROOT)}


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_implicit_solver_on_a_stiff_field(solver):
    """x' = -k (x - cos t): stable at k dt = 100, and its derivative in k is that of central differences."""

    @jax.jit
    def run(k):
        def field(t, x, w, p):
            return -p["k"] * (x - jnp.cos(t))

        out = DiffraxStep(SOLVERS[solver]).step(
            field, jnp.array(0.0), jnp.array(0.1), jnp.array([2.0]), lambda t: None, {"k": k}
        )
        return out.x[0], out.result == RESULTS.successful

    x, solved = run(1e3)
    assert solved
    assert abs(x - np.cos(0.1)) < 0.05
    if solver == "euler":
        np.testing.assert_allclose(x, (2 + 100 * np.cos(0.1)) / 101, rtol=1e-9)
    forward = jax.jvp(lambda k: run(k)[0], (10.0,), (1.0,))[1]
    reverse = jax.grad(lambda k: run(k)[0])(10.0)
    difference = (run(10.0 + 1e-4)[0] - run(10.0 - 1e-4)[0]) / 2e-4
    np.testing.assert_allclose(forward, difference, rtol=1e-6)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9)


def test_implicit_solver_that_does_not_converge_is_flagged():
    """x = 2 + dt x^2 has no solution at dt = 1: the step is flagged, it does not raise."""

    def run(scale):
        out = DiffraxStep(diffrax.ImplicitEuler(root_finder=ROOT)).step(
            lambda t, x, w, p: p["k"] * x**2,
            jnp.array(0.0),
            jnp.array(1.0),
            jnp.array([2.0]),
            lambda t: None,
            {"k": scale},
        )
        return out.x[0], out.result

    _, result = eqx.filter_jit(run)(jnp.array(1.0))
    assert result == RESULTS.solver


def test_solver_that_needs_split_terms_is_refused():
    with pytest.raises(ValueError, match=r"SemiImplicitEuler.*several terms"):
        DiffraxStep(diffrax.SemiImplicitEuler())


@pytest.mark.parametrize("make", [Euler, Midpoint, Heun, RK4, lambda substeps: DiffraxStep(TSIT5, substeps)])
def test_no_substep_is_refused(make):
    with pytest.raises(ValueError, match="substeps=0"):
        make(substeps=0)


def test_implicit_solver_with_its_default_root_finder():
    """Diffrax takes its tolerances from a step size controller: here they must come from the step."""
    step = DiffraxStep(diffrax.Kvaerno3())
    out = step.step(fall, jnp.array(0.0), jnp.array(0.1), jnp.zeros(1), lambda t: None, {})
    assert out.result == RESULTS.successful
    np.testing.assert_allclose(out.x, np.sin(0.1), rtol=1e-4)


@pytest.mark.parametrize("solver", [TSIT5, diffrax.ImplicitEuler(root_finder=ROOT)], ids=["tsit5", "implicit"])
def test_diffrax_step_differentiates_forward_and_in_reverse(solver):
    """Levenberg-Marquardt needs jvp: Diffrax's default checkpointed stage loop has only vjp."""

    @jax.jit
    def run(k):
        out = DiffraxStep(solver).step(
            lambda t, x, w, p: -p["k"] * x,
            jnp.array(0.0),
            jnp.array(0.1),
            jnp.ones(1),
            lambda t: None,
            {"k": k},
        )
        return out.x[0]

    exact = -0.1 * np.exp(-0.2) if solver is TSIT5 else -0.1 / 1.2**2
    np.testing.assert_allclose(jax.grad(run)(2.0), exact, rtol=1e-5)
    np.testing.assert_allclose(jax.jvp(run, (2.0,), (1.0,))[1], exact, rtol=1e-5)


@pytest.mark.parametrize(
    ("method", "limit"), [(Euler(), 2.0), (Midpoint(), 2.0), (Heun(), 2.0), (RK4(), 2.785293563405282)]
)
def test_the_stability_limit_of_each_tableau(method, limit):
    # The real axis of the stability region, from the literature; and what the step does on x' = -x.
    assert unstable_step(method, [-1.0], 0.999 * limit) is None
    found = unstable_step(method, [-1.0, -0.1, 3.0], 1.001 * limit)
    assert found is not None
    assert found.substeps == 2
    for scale, grows in ((0.999, False), (1.001, True)):
        out = method.step(lambda t, x, w, p: -x, 0.0, scale * limit, jnp.ones(1), lambda t: None, {}).x
        assert (abs(float(out[0])) > 1) == grows


def test_growth_and_slow_oscillation_are_not_instability():
    assert unstable_step(Euler(), [2.0, 1e-3 + 5.0j], 10.0) is None
    assert unstable_step(Euler(), [-1e-9 + 0.5j, -1e-9 - 0.5j], 0.1) is None
    assert unstable_step(Euler(2), [-1.0], 3.9) is None
    found = unstable_step(Euler(2), [-1.0], 4.1)
    assert found is not None
    np.testing.assert_allclose([found.step, found.decay, found.substeps], [2.05, 1.0, 3])
