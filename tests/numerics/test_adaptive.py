"""The adaptive projection: the short way where that is good enough, else the nearest point; derivatives of both."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.cases import BY_NAME, ellipse
from support.jacobians import (
    QUICK,
    central_difference,
    distance,
    far_predictors,
    flat_problem,
    relative,
    relative_error,
    stencil,
    with_jacobians,
)

from twinfold._core import outcome_codes
from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Constraint
from twinfold.numerics._project.adaptive import MAX_FROZEN_STEPS, Adaptive, curvature
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.numerics._project.newton import Newton

AWAY = 10.0 ** -np.arange(2, 10)  # distances of the near predictors, in units of that of `off`
# Slow to compile; what they show is shown for one constraint of each kind in test_degenerate.py too.
CASES = [pytest.param(name, marks=pytest.mark.slow) for name in ("ellipse", "robot_arm", "two_body_LE")]


@cache
def run(name: str):
    """Near predictors, stencils around the first of these and around `off`, and far ones: one compiled program."""
    case = BY_NAME[name]
    far = np.asarray(flat_problem(case)[0])
    near = np.asarray(flat_problem(replace(case, off=case.on + AWAY[0] * (case.off - case.on)))[0])
    nears = np.tile(near, (len(AWAY), 1))
    nears[:, : case.n] = case.on + AWAY[:, None] * (case.off - case.on)
    fars = np.tile(far, (100, 1))
    fars[:, : case.n] = far_predictors(case, 100)
    parts = [nears, stencil(near), stencil(far), fars]
    ends = np.cumsum([len(part) for part in parts])[:-1]
    found = with_jacobians(case, Adaptive(), jnp.asarray(np.concatenate(parts)), anchored=True)
    t, _, p, level = case.arguments()
    one = jax.vmap(lambda x: Newton().project(case.constraint, t, x, p, level, anchor=jnp.asarray(case.on)))
    exact = jax.jit(one, compiler_options=QUICK)(jnp.concatenate([nears, fars])[:, : case.n])
    split = [jax.tree.map(lambda leaf, i=i: np.split(np.asarray(leaf), ends)[i], found) for i in range(4)]
    named = dict(zip(("nears", "near", "far", "fars"), split, strict=True))
    return SimpleNamespace(case=case, size=len(far), xs=(nears[:, : case.n], fars[:, : case.n]), exact=exact, **named)


@pytest.mark.parametrize("name", CASES)
def test_near_predictors_take_the_short_way_to_the_same_point(name):
    """On the manifold to rounding, and off the nearest point by no more than eta times the correction."""
    here = run(name)
    out, exact = here.nears[0], here.exact.x[: len(AWAY)]
    assert (out.steps <= MAX_FROZEN_STEPS).all()
    assert (outcome_codes(out.result) == outcome_codes(RESULTS.successful)).all()
    assert relative(here.case, out.x).max() <= 1e-12
    assert out.violation.max() <= 1e-12
    t, _, p, level = here.case.arguments()
    problem = ProjectionProblem(here.case.constraint, t, jnp.zeros(here.case.n), p, level, None)
    etas = jax.vmap(lambda x, multiplier: curvature(problem, x, multiplier))(here.xs[0], out.multiplier)
    move, apart = distance(exact, here.xs[0]), distance(out.x, exact)
    assert (apart <= 2 * etas * move + 4e-15 * np.linalg.norm(here.case.on)).all()
    assert apart[-1] <= 4e-15 * np.linalg.norm(here.case.on)
    assert apart[0] > 1e-9  # another point, as documented


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["near", "far"])
def test_derivative_is_that_of_central_differences(name, way):
    """In the predictor, the level, p and t; of the frozen iteration and of the nearest point, whichever it was."""
    here = run(name)
    out, forward, reverse = getattr(here, way)
    robust = out.steps > MAX_FROZEN_STEPS
    assert (robust if way == "far" else ~robust).all()
    assert relative_error(forward[0], central_difference(out.x, here.size)) <= 1e-8
    np.testing.assert_allclose(reverse, forward, rtol=0, atol=1e-12 * np.abs(forward).max())


@pytest.mark.parametrize("name", CASES)
def test_far_predictors_end_at_the_nearest_point(name):
    here = run(name)
    exact = here.exact.x[len(AWAY) :]
    out, forward, _ = here.fars
    robust = out.steps > MAX_FROZEN_STEPS
    assert 30 <= robust.sum() < 100
    assert (outcome_codes(out.result) == outcome_codes(RESULTS.successful)).all()
    np.testing.assert_allclose(out.x[robust], exact[robust], rtol=0, atol=1e-14 * float(np.linalg.norm(here.case.on)))
    assert relative(here.case, out.x).max() <= 1e-12
    assert (distance(out.x, here.xs[1]) <= distance(exact, here.xs[1]) * 1.1 + 1e-15).all()
    assert np.isfinite(forward).all()


# --- a batch in which the elements need different things ---

CIRCLE = Constraint(lambda x: x @ x - 1)
GOOD = np.array([[1.0, 1e-4], [0.6, 0.8001], [0.98, 0.2]])
BAD = [
    ([0.1, 0.05], 0.0, RESULTS.successful),  # far: robust
    ([0.0, 0.0], 0.0, RESULTS.singular),
    ([0.3, 0.4], -2.0, RESULTS.not_converged),  # no such circle
    ([np.nan, 0.0], 0.0, RESULTS.nonfinite),
]


@cache
def batch_of(derivative):
    """Projections, dx/dx~ of each both ways, and d(sum of the first three)/dlevel."""

    def go(xs, levels):
        def batch(shared, xs):
            def one(x, level):
                return Adaptive(derivative=derivative).project(CIRCLE, jnp.array(0.0), x, {}, level + shared)

            out = jax.vmap(one)(xs, levels)
            return out.x, out

        shared = jnp.zeros(1)
        _, push, out = jax.linearize(batch, shared, xs, has_aux=True)
        pull = jax.linear_transpose(push, shared, xs)
        units = jnp.broadcast_to(jnp.eye(2)[:, None, :], (2, *xs.shape))
        forward = jax.vmap(lambda unit: push(jnp.zeros_like(shared), unit), out_axes=2)(units)
        reverse = jax.vmap(lambda unit: pull(unit)[1], out_axes=1)(units)
        return out, forward, reverse, pull(jnp.ones_like(xs).at[3:].set(0))[0]

    return jax.jit(go, compiler_options=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("bad", range(len(BAD)), ids=["far", "singular", "infeasible", "nonfinite"])
def test_one_bad_predictor_in_a_batch(bad):
    """It is solved or flagged by itself; its neighbours keep the short way, and their values to the last bit."""
    state, level, result = BAD[bad]
    go = batch_of("implicit")
    xs = np.concatenate([GOOD, [state]])
    out, forward, reverse, shared = go(xs, np.array([[0.0], [0.0], [0.0], [level]]))
    alone = go(np.concatenate([GOOD, GOOD[:1]]), np.zeros((4, 1)))
    assert int(outcome_codes(out.result)[3]) == int(outcome_codes(result))
    assert out.steps[3] > MAX_FROZEN_STEPS
    for mine, without in zip(
        (out.x, out.steps, forward, reverse), (alone[0].x, alone[0].steps, *alone[1:3]), strict=True
    ):
        np.testing.assert_array_equal(mine[:3], without[:3])
    np.testing.assert_array_equal(shared, alone[3])
    assert abs(shared[0]) > 1e-3
    assert (out.steps[:3] <= MAX_FROZEN_STEPS).all()
    np.testing.assert_allclose(np.linalg.norm(out.x[:3], axis=1), 1, rtol=1e-15)
    if result == RESULTS.successful:
        np.testing.assert_allclose(out.x[3], np.array(state) / np.linalg.norm(state), rtol=1e-14)
    else:
        np.testing.assert_array_equal(out.x[3], xs[3])
        np.testing.assert_array_equal(forward[3], np.eye(2))
        np.testing.assert_array_equal(reverse[3], np.eye(2))


@pytest.mark.slow
def test_tangent_derivative_neglects_curvature():
    out, forward, reverse, _ = batch_of("tangent")(np.concatenate([GOOD, [BAD[0][0]]]), np.zeros((4, 1)))
    for x, by, back in zip(out.x, forward, reverse, strict=True):
        np.testing.assert_allclose(by, np.eye(2) - np.outer(x, x), rtol=0, atol=1e-14)
        np.testing.assert_allclose(back, by, rtol=0, atol=1e-14)


def test_a_batch_that_needs_nothing_more_runs_nothing_more():
    """The robust iteration stays inside the one loop that is not entered: XLA must not lift it out."""
    xs = jnp.asarray(GOOD)
    go = jax.jit(jax.vmap(lambda x: Adaptive().project(CIRCLE, 0.0, x, {}, jnp.zeros(1))))
    program = str(go.lower(xs).compile().as_text())
    entry = program[program.index("ENTRY") :]
    assert entry.count(" while(") == 1
    assert program.count(" while(") > 1


@pytest.mark.slow
def test_threshold_and_metric():
    """Zero is never the short way, more takes it more often; in a metric the way is normal in that."""
    case = BY_NAME["ellipse"]
    t, off, p, level = case.arguments()
    on = jnp.asarray(case.on)
    xs = on + jnp.logspace(-4, 0, 40)[:, None] * (off - on)
    weights = np.array([3.0, 0.5])
    kinds = [Adaptive(threshold=0.0), Adaptive(threshold=0.01), Adaptive(), Adaptive(metric=weights)]

    def of(projection):
        return jax.vmap(lambda x: projection.project(case.constraint, t, x, p, level, anchor=on))(xs)

    never, seldom, often, weighted = jax.jit(lambda: [of(each) for each in kinds], compiler_options=QUICK)()
    robust = [int(np.sum(out.steps > MAX_FROZEN_STEPS)) for out in (never, seldom, often)]
    assert robust[0] == 40 > robust[1] > robust[2] > 0
    errors = [distance(out.x, never.x).max() for out in (seldom, often)]
    assert 0 < errors[0] < errors[1] < 1e-2
    along = weights * np.asarray(weighted.x[0] - xs[0])
    normal = np.asarray(jax.grad(lambda x: ellipse(x, p))(weighted.x[0]))
    assert abs(along[0] * normal[1] - along[1] * normal[0]) <= 1e-3 * np.linalg.norm(along) * np.linalg.norm(normal)
    assert distance(weighted.x[0], never.x[0]) > 1e-6


@pytest.mark.slow
def test_single_precision():
    case = BY_NAME["circle"]
    t, off, p, level = case.arguments(jnp.float32)
    away = off - jnp.asarray(case.on, jnp.float32)
    xs = off + jnp.linspace(-1, 1, 21, dtype=jnp.float32)[:, None] * away
    go = jax.vmap(lambda x: Adaptive().project(case.constraint, t, x, p, level))
    out = jax.jit(go, compiler_options=QUICK)(xs)
    assert out.x.dtype == jnp.float32
    assert (out.result == RESULTS.successful).all()
    assert 0 < np.sum(out.steps > MAX_FROZEN_STEPS) < 21
    assert relative(case, out.x, jnp.float32).max() <= 2e-6


@pytest.mark.parametrize("size", [2, 5, 40])
def test_curvature_estimate_is_of_the_right_size(size):
    """x'Ax / 2: exact where A turns all directions alike, else, for random symmetric A, within a factor of two."""
    random = np.random.default_rng(5)
    matrix = random.normal(size=(size, size))
    for a, within in ((np.eye(size), 1 + 1e-12), (matrix + matrix.T, 2.0)):
        problem = ProjectionProblem(
            Constraint(lambda x, a=a: 0.5 * x @ a @ x), 0.0, jnp.zeros(size), {}, jnp.zeros(1), None
        )
        estimate = curvature(problem, jnp.asarray(random.normal(size=size)), jnp.array([0.3]))
        assert 1 / within <= float(estimate) / (0.3 * np.linalg.norm(a)) <= within


@pytest.mark.parametrize("threshold", [-0.1, 1.0, np.nan])
def test_bad_threshold(threshold):
    with pytest.raises(ValueError, match=r"Adaptive\(threshold="):
        Adaptive(threshold=threshold)


def test_no_derivative_through_the_loop():
    with pytest.raises(ValueError, match=r"Adaptive\(derivative='loop'\)"):
        Adaptive(derivative="loop")
