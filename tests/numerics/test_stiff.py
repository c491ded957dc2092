"""Implicit integrators: orders, stability, derivatives, what they do where no stage can be solved; stiff systems."""

import functools
import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.systems import robertson, van_der_pol

import twinfold as tw
from twinfold.numerics._integrate.bdf import BDF
from twinfold.numerics._integrate.radau import NODES, WEIGHTS, Radau

SOLVERS = {
    "radau": Radau(2),
    "bdf": BDF(order=3, substeps=4),
    "kvaerno5": tw.DiffraxStep(diffrax.Kvaerno5()),
    "kencarp4": tw.DiffraxStep(diffrax.KenCarp4(), substeps=2),
}
MORE = {
    "euler": tw.DiffraxStep(diffrax.ImplicitEuler()),
    "bdf1": BDF(order=1, substeps=2),
    **{name: tw.DiffraxStep(getattr(diffrax, name)()) for name in ("Kvaerno3", "Kvaerno4", "KenCarp3", "KenCarp5")},
}
LONG = pytest.mark.slow
EVERY = [pytest.param(name, marks=LONG if name != "radau" else ()) for name in SOLVERS | MORE]


def no_input(t):
    return None


def turning(t, x, w, p):
    """On the unit circle, which attracts, the angle is t + t^2."""
    return (1 + 2 * t) * jnp.stack([-x[1], x[0]]) + jnp.cos(t) * (1 - x @ x) * x


def fitted_order(integrator, counts, total=1.5):
    @jax.jit
    def end(ts):
        def step(x, interval):
            return integrator.step(turning, interval[0], interval[1] - interval[0], x, no_input, {}).x, None

        return jax.lax.scan(step, jnp.array([1.0, 0.0]), (ts[:-1], ts[1:]))[0]

    # Padded to one shape with steps of length zero, so that all compile once.
    times = [jnp.asarray(np.minimum(np.arange(counts[-1] + 1) / count, 1) * total) for count in counts]
    last = total + total**2
    errors = [np.linalg.norm(end(ts) - np.array([np.cos(last), np.sin(last)])) for ts in times]
    return np.polyfit(np.log(np.asarray(counts)), -np.log(errors), 1)[0]


@pytest.mark.parametrize(
    ("integrator", "order", "counts"),
    [
        (Radau(), 5, [8, 16, 32]),
        pytest.param(BDF(order=1, substeps=4), 1, [80, 160, 320], marks=LONG),
        (BDF(order=2, substeps=6), 2, [20, 40, 80]),
        pytest.param(BDF(order=3, substeps=8), 3, [20, 40, 80], marks=LONG),
        pytest.param(BDF(order=4, substeps=10), 4, [15, 30, 60], marks=LONG),
        (BDF(order=5, substeps=12), 5, [10, 20, 40]),
        pytest.param(tw.DiffraxStep(diffrax.Kvaerno4()), 4, [20, 40, 80], marks=LONG),
        (tw.DiffraxStep(diffrax.KenCarp4()), 4, [20, 40, 80]),
    ],
    ids=lambda value: eqx.tree_pformat(value)[:16] if isinstance(value, eqx.Module) else "",
)
def test_order(integrator, order, counts):
    assert fitted_order(integrator, counts) >= order - 0.1


def test_stability_function_of_radau():
    """One step on x' = lambda x is R(h lambda) of Hairer and Wanner (5.39); what is infinitely fast is gone at once."""

    @jax.jit
    def step(z):
        return Radau().step(lambda t, x, w, p: z * x, 0.0, 1.0, jnp.ones(1), no_input, {}).x[0]

    for z in (-0.3, -4.0, -1e3, -1e8):
        exact = (1 + 2 * z / 5 + z**2 / 20) / (1 - 3 * z / 5 + 3 * z**2 / 20 - z**3 / 60)
        np.testing.assert_allclose(step(z), exact, rtol=1e-7, atol=1e-15)


@pytest.mark.parametrize("name", ["bdf", "kvaerno5"])
def test_what_is_fast_decays_at_once(name):
    """x' = -k (x - cos t) with k dt = 1e7: from far off, a sample later the state is where it belongs."""

    def field(t, x, w, p):
        return -1e8 * (x - jnp.cos(t))

    out = jax.jit(lambda: SOLVERS[name].step(field, 0.2, 0.1, jnp.array([5.0]), no_input, {}))()
    assert out.result == tw.RESULTS.successful
    np.testing.assert_allclose(out.x, np.cos(0.3), atol=1e-5)


class Closure(eqx.Module):
    """A field that depends on all that a step can be differentiated in, among it what it closes over."""

    stiffness: jax.Array

    def __call__(self, t, x, w, p):
        fast = -self.stiffness * (x[0] - jnp.cos(t)) + x[1] ** 2
        return jnp.stack([fast, x[0] - p["k"] * x[1] ** 3 + w[0]])


AT = jnp.array([0.1, 0.05, 1.2, 1.0, 90.0, 120.0])  # t, dt, x, p, and what the field closes over


def step_from(integrator, v):
    field = Closure(v[5])
    out = integrator.step(
        lambda t, x, w, p: field(t, x, w, p), v[0], v[1], v[2:4], lambda t: jnp.stack([v[2] * t]), {"k": v[4]}
    )
    return out.x, out.result


@pytest.mark.parametrize("name", EVERY)
def test_derivatives_are_those_of_central_differences(name):
    """In t, dt, x, p and closed-over weights; forward, in reverse; at a step of length zero too."""
    integrator = (SOLVERS | MORE)[name]

    @jax.jit
    def all_of(v):
        value, result = step_from(integrator, v)
        return (
            value,
            result == tw.RESULTS.successful,
            jax.jacfwd(lambda v: step_from(integrator, v)[0])(v),
            jax.jacrev(lambda v: step_from(integrator, v)[0])(v),
        )

    _, solved, forward, reverse = all_of(AT)
    assert solved
    columns = []
    for i, size in enumerate(np.abs(np.asarray(AT))):
        d = jnp.zeros_like(AT).at[i].set(1e-5 * size)
        columns.append((all_of(AT + d)[0] - all_of(AT - d)[0]) / (2e-5 * size))
    difference = np.stack(columns, axis=1)
    np.testing.assert_allclose(forward, difference, rtol=1e-6, atol=1e-8 * np.abs(difference).max())
    np.testing.assert_allclose(reverse, forward, rtol=1e-10, atol=1e-12)

    at_rest = AT.at[1].set(0.0)
    value, solved, forward, reverse = all_of(at_rest)
    assert solved
    np.testing.assert_array_equal(value, at_rest[2:4])
    expected = np.zeros((2, 6))
    expected[0, 2] = expected[1, 3] = 1
    expected[:, 1] = Closure(AT[5])(AT[0], AT[2:4], jnp.stack([AT[2] * AT[0]]), {"k": AT[4]})
    np.testing.assert_allclose(forward, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(reverse, expected, rtol=1e-12, atol=1e-12)


def test_derivative_is_that_of_the_unrolled_iteration():
    """The same step by ten plain Newton iterations on the slopes, differentiated one by one."""

    def unrolled(v):
        t, h, x, p = v[0], v[1], v[2:4], {"k": v[4]}

        def residual(k):
            stages = x + h * jnp.asarray(WEIGHTS) @ k.reshape(3, 2)
            ts = t + h * jnp.asarray(NODES)
            f = jnp.stack([Closure(v[5])(ts[i], stages[i], jnp.stack([v[2] * ts[i]]), p) for i in range(3)])
            return k - f.reshape(-1)

        def iterate(k, _):
            return k - jnp.linalg.solve(jax.jacfwd(residual)(k), residual(k)), None

        k, _ = jax.lax.scan(iterate, jnp.zeros(6), length=10)
        return x + h * jnp.asarray(WEIGHTS[-1]) @ k.reshape(3, 2)

    value, slopes = jax.jit(lambda v: (unrolled(v), jax.jacfwd(unrolled)(v)))(AT)
    once, derivative = jax.jit(lambda v: (step_from(Radau(), v)[0], jax.jacfwd(lambda v: step_from(Radau(), v)[0])(v)))(
        AT
    )
    np.testing.assert_allclose(once, value, rtol=1e-13)
    np.testing.assert_allclose(derivative, slopes, rtol=1e-10, atol=1e-13)


@pytest.mark.slow
def test_second_derivative():
    """x' = -k x^3 in one step: the derivative of the derivative, against differences of the derivative."""

    def end(k):
        return Radau().step(lambda t, x, w, p: -k * x**3, 0.0, 1.0, jnp.ones(1), no_input, {}).x[0]

    slope, curvature = jax.jit(jax.grad(end)), jax.jit(jax.jacfwd(jax.grad(end)))(2.0)
    np.testing.assert_allclose(curvature, (slope(2.0001) - slope(1.9999)) / 2e-4, rtol=1e-6)


@pytest.mark.parametrize("name", ["radau", *(pytest.param(name, marks=LONG) for name in ("bdf", "kvaerno5"))])
def test_a_step_without_solution_is_flagged_and_harms_no_other(name):
    """x' = -k sqrt(x) reaches zero, where it ends: two of a batch cannot take the step, the others are as alone."""
    integrator = SOLVERS[name]

    @jax.jit
    def batch(k, starts):
        def one(k, x):
            out = integrator.step(lambda t, x, w, p: -p["k"] * jnp.sqrt(x), 0.0, 1.0, x[None], no_input, {"k": k})
            return out.x[0], out.result == tw.RESULTS.successful, out.result == tw.RESULTS.solver

        def ends(k):
            return jax.vmap(lambda x: one(k, x)[0])(starts)

        together = jax.grad(lambda k: jnp.sum(ends(k)))(k)
        return *jax.vmap(lambda x: one(k, x))(starts), together, jax.jacfwd(ends)(k)

    starts = jnp.array([2.0, 0.01, 3.0, 1e-6])
    xs, solved, flagged, together, slopes = batch(1.0, starts)
    np.testing.assert_array_equal(solved, [True, False, True, False])
    np.testing.assert_array_equal(flagged, ~solved)
    # Left at the last substep that had a solution.
    assert np.all((xs[~solved] > 0) & (xs[~solved] <= starts[~solved]))
    exact = (np.sqrt(np.array([2.0, 3.0])) - 0.5) ** 2
    np.testing.assert_allclose(xs[solved], exact, rtol=1e-3)
    np.testing.assert_allclose(slopes[solved], -np.sqrt(exact), rtol=1e-3)
    np.testing.assert_allclose(together, np.sum(slopes), rtol=1e-12)  # all of them finite, and reverse as forward


def test_a_singular_step_is_flagged():
    """x1 = x + h x1 has no solution for h = 1."""
    step = tw.DiffraxStep(diffrax.ImplicitEuler())
    out = jax.jit(lambda h: step.step(lambda t, x, w, p: x, 0.0, h, jnp.ones(1), no_input, {}))
    assert out(1.0).result == tw.RESULTS.solver
    np.testing.assert_allclose(out(0.5).x, 2.0, rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Radau(substeps=0), "substeps=0"),
        (lambda: BDF(order=6, substeps=9), r"order=6.*1 to 5"),
        (lambda: BDF(order=3, substeps=2), r"substeps=3 or more"),
        (lambda: tw.DiffraxStep(diffrax.SemiImplicitEuler()), "several terms"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


RATES = {name: jnp.array(value) for name, value in robertson.RATES.items()}
PROJECTIONS = {"plain": tw.Newton(), "weighted": tw.Newton(metric=robertson.METRIC)}


@functools.cache
def kinetics_run(projection, dtype=jnp.float64, integrator=None, last=robertson.FAR_TIME):
    """Four steps in each decade."""
    cell = tw.Cell(
        robertson.robertson,
        integrator=integrator or Radau(),
        constraint=robertson.mass(),
        projection=PROJECTIONS[projection],
    )
    p = {name: value.astype(dtype) for name, value in RATES.items()}
    ts = robertson.log_times(last).astype(dtype)
    return jax.jit(lambda x0: tw.rollout(cell, x0, ts, p=p, throw=False))(jnp.asarray(robertson.START, dtype))


@pytest.mark.slow
def test_robertson_keeps_its_mass_and_its_smallest_species():
    """To t = 1e11, against the published solution."""
    runs = {name: kinetics_run(name) for name in PROJECTIONS}
    errors = {name: np.abs(run.xs[-1] / robertson.FAR_STATE - 1) for name, run in runs.items()}
    for run in runs.values():
        assert not run.failed
        assert jnp.max(run.relative_violation) <= 2 * np.finfo(float).eps
    assert all(np.max(error) < 1e-5 for error in errors.values())


def test_a_metric_keeps_a_correction_off_the_smallest_species():
    """A mass that is 1e-9 too large goes to the species in equal parts, or to those that are large."""
    x, surplus = jnp.asarray(robertson.FAR_STATE), 1e-9
    constraint, level = robertson.mass(), jnp.sum(x, keepdims=True)
    out = {
        name: projection.project(constraint, 0.0, x.at[2].add(surplus), RATES, level)
        for name, projection in PROJECTIONS.items()
    }
    for each in out.values():
        np.testing.assert_allclose(jnp.sum(each.x), level[0], rtol=2 * np.finfo(float).eps)
    np.testing.assert_allclose(out["plain"].x[1] - x[1], -surplus / 3, rtol=1e-6)
    share = 1 / robertson.METRIC / np.sum(1 / robertson.METRIC)
    np.testing.assert_allclose(out["weighted"].x[1], x[1] - surplus * share[1], rtol=1e-6)
    assert abs(out["weighted"].x[1] / x[1] - 1) < 1e-3


@pytest.mark.slow
def test_robertson_in_single_precision():
    single, double = kinetics_run("weighted", jnp.float32, last=1e5), kinetics_run("weighted")
    assert not single.failed
    assert jnp.max(single.relative_violation) <= 2 * np.finfo(np.float32).eps
    np.testing.assert_allclose(single.xs[1:], double.xs[1 : single.xs.shape[0]], rtol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [BDF(order=4, substeps=16), tw.DiffraxStep(diffrax.Kvaerno5(), substeps=4)])
def test_robertson_by_other_integrators(integrator):
    reference = kinetics_run("weighted", integrator=Radau(8))
    run = kinetics_run("weighted", integrator=integrator)
    assert not run.failed
    np.testing.assert_allclose(run.xs[1:], reference.xs[1:], rtol=1e-3)


def relaxation_run(ts, integrator=None):
    cell = tw.Cell(van_der_pol.van_der_pol, integrator=integrator or Radau())
    run = jax.jit(
        lambda ts: tw.rollout(cell, jnp.asarray(van_der_pol.START), ts, p={"mu": van_der_pol.MU}, throw=False)
    )
    return run(jnp.asarray(ts))


def test_van_der_pol_on_its_slow_branch_and_at_its_end():
    """Steps of 10, where an explicit one must be below 1e-3; beyond the jump they have no solution, and say so."""
    ts = np.linspace(0, 1000, 101)
    coarse = relaxation_run(ts)
    solved = np.asarray(coarse.result == tw.RESULTS.successful)
    before = ts < van_der_pol.JUMP - 10
    assert solved[before].all()
    # On the slow branch v = x / (mu (1 - x^2)), hence ln x - x^2 / 2 = (t - t0) / mu, to an order of mu^-2.
    x = np.asarray(coarse.xs)[before, 0]
    np.testing.assert_allclose(np.diff(np.log(x) - x**2 / 2), 10 / van_der_pol.MU, rtol=2e-3)
    first = np.flatnonzero(~solved)[0]
    assert abs(ts[first] - van_der_pol.JUMP) < 20
    assert coarse.failed
    assert np.isfinite(coarse.xs).all()


def test_van_der_pol_through_its_jumps():
    """At the times that an adaptive solver chooses, the published solution at t = 2000, after two jumps."""
    integrate = pytest.importorskip("scipy.integrate")

    def field(t, x):
        return [x[1], van_der_pol.MU * (1 - x[0] ** 2) * x[1] - x[0]]

    ts = integrate.solve_ivp(
        field, (0, van_der_pol.FAR_TIME), van_der_pol.START, method="Radau", rtol=1e-5, atol=1e-8
    ).t
    run = relaxation_run(ts)
    assert not run.failed
    np.testing.assert_allclose(run.xs[-1], van_der_pol.FAR_STATE, rtol=1e-6)


def decay(substeps=1):
    return tw.Twin(lambda x: -x, integrator=tw.RK4(substeps))


def test_an_explicit_step_near_its_limit_is_told():
    """RK4 follows a decay of one up to steps of 2.785; beyond 1 / 1.25 of that there is a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decay().simulate([1.0], [0.0, 2.2, 4.4])
    with pytest.warns(UserWarning, match=r"near its stability limit.*substeps=2 or more.*Radau\(\), BDF.*Kvaerno3"):
        decay().simulate([1.0], [0.0, 2.3, 4.6])
    with pytest.raises(ValueError, match=r"unstable.*substeps=2 or more.*Radau\(\), BDF.*Kvaerno3"):
        decay().simulate([1.0], [0.0, 2.8, 5.6])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decay(2).simulate([1.0], [0.0, 2.8, 5.6])


@pytest.mark.slow
def test_rate_constants_are_learned_from_noisy_samples():
    """All three off by a factor of three, 0.1 % of noise, times from 1e-4 to 1e5: found to 0.1 %."""
    ts = robertson.log_times(1e5)
    starts = np.array([[1.0, 0.0, 0.0], [0.7, 0.0, 0.3]])
    cell = tw.Cell(robertson.robertson, integrator=Radau(8))
    xs = np.asarray(jax.jit(jax.vmap(lambda x: tw.rollout(cell, x, ts, p=RATES).xs))(jnp.asarray(starts)))
    ys = np.log(xs + 1e-12) + 1e-3 * np.random.default_rng(0).normal(size=xs.shape)
    ys[:, 0] = np.nan  # nothing to take a logarithm of
    twin = tw.Twin(
        robertson.robertson,
        params={
            name: tw.Unknown(value * off, positive=True)
            for (name, value), off in zip(robertson.RATES.items(), (3, 0.3, 3), strict=True)
        },
        observe=lambda x: jnp.log(jnp.maximum(x, 0) + 1e-12),
        integrator=Radau(),
        constraint=robertson.mass(),
        projection=PROJECTIONS["weighted"],
    )
    data = tw.Dataset.from_arrays(np.asarray(ts), list(ys), x0=list(starts))
    found = tw.fit(twin, data, method=tw.LevenbergMarquardt(30), progress=False).twin.parameters()
    for name, value in robertson.RATES.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3)
