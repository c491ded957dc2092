"""Every projection on every kind of constraint, in both precisions, where it is easy and where it is not.

One table: each entry must be correct (on the manifold, nearest, with the derivative that differences find) or flagged
(the state as it was, with identity derivative), and finite in any case.
"""

import itertools
from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.jacobians import QUICK

import twinfold as tw
from twinfold._core import outcome_codes
from twinfold._core._results import RESULTS
from twinfold.model._constraint.base import Conserved, Constraint, Stack
from twinfold.numerics._project.adaptive import Adaptive
from twinfold.numerics._project.base import NoProjection
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent
from twinfold.train._augmented import AugmentedLagrangian

# To add a projection, add a row: what it is, and how far (relative) from the manifold it may end, by dtype.
PROJECTIONS = {
    "none": (NoProjection(), None),
    "fast": (Tangent(derivative="implicit"), None),
    "frozen": (Tangent(max_steps=20, derivative="implicit"), {np.float64: 1e-12, np.float32: 1e-5}),
    "adaptive": (Adaptive(), {np.float64: 1e-14, np.float32: 4e-6}),
    "robust": (Newton(), {np.float64: 1e-14, np.float32: 4e-6}),
}


def circle(x):
    return x[0] ** 2 + x[1] ** 2 - 1


# Kinds with as many equations share a program: which one is meant is a parameter.
KINDS = {
    1: {
        "circle": circle,
        "crossing": lambda x: x[0] * x[1],
        "cone": lambda x: x[0] ** 2 + x[1] ** 2 - x[2] ** 2,
        "point": lambda x: x @ x,
        "empty": lambda x: x @ x + 1,
    },
    2: {
        "two": lambda x: jnp.stack([circle(x), x[2] - x[0]]),
        "twice": lambda x: jnp.stack([circle(x), 2 * circle(x)]),
        "bent": lambda x: jnp.stack([circle(x), circle(x) + 0.1 * circle(x) ** 2]),  # the same manifold
        "touching": lambda x: jnp.stack([x[1], x[1] - x[0] ** 2]),
        "contradicting": lambda x: jnp.stack([circle(x), circle(x) - 1]),
    },
    3: {
        "twice, and a plane": lambda x: jnp.stack([circle(x), x[2] - x[0], 3 * circle(x)]),
        "sum": lambda x: jnp.stack([circle(x), x[2] - x[0], circle(x) - 2 * (x[2] - x[0])]),
        "sum on the manifold": lambda x: jnp.stack([circle(x), x[2] - x[0], circle(x) + (x[2] - x[0]) * (1 + x[1])]),
        "contradicting sum": lambda x: jnp.stack([circle(x), x[2] - x[0], circle(x) + x[2] - x[0] - 0.5]),
    },
}


@dataclass(frozen=True)
class Entry:
    """A predictor `x`, the last state on the manifold, and what the robust projection has to make of it."""

    kind: str
    situation: str
    x: tuple[float, float, float]
    anchor: tuple[float, float, float]
    robust: str = "solved"
    redundant: int = 0
    order: tuple[int, ...] = (0,)  # of the equations

    def residual(self, x):
        """g at x, with its equations in the order of the entry."""
        g = next(kinds[self.kind] for kinds in KINDS.values() if self.kind in kinds)
        return jnp.atleast_1d(g(x))[np.array(self.order)]


ON = (0.6, 0.8, 0.0)
TABLE = {
    1: [
        Entry("circle", "regular", (0.7, 0.8, 0.3), ON),
        Entry("circle", "far", (30.0, -4.0, 2.0), ON),
        Entry("circle", "near the centre", (0.1, 0.2, 0.1), ON),
        Entry("circle", "centre: no nearest point", (0.0, 0.0, 0.0), ON, "flagged"),
        Entry("crossing", "regular", (0.8, 0.1, 0.2), (0.7, 0.0, 0.0)),
        Entry("crossing", "far", (0.5, 9.0, 0.2), (0.0, 0.3, 0.0)),
        Entry("crossing", "singular", (0.0, 0.0, 0.2), (0.7, 0.0, 0.0), "flagged"),
        Entry("cone", "regular", (0.5, 0.2, 0.6), (0.3, 0.4, 0.5)),
        Entry("cone", "singular", (0.0, 0.0, 0.0), (0.3, 0.4, 0.5), "flagged"),
        Entry("point", "singular all over", (0.3, -0.2, 0.1), (0.0, 0.0, 0.0), "flagged"),
        Entry("empty", "infeasible", (0.3, 0.4, 0.1), (0.3, 0.4, 0.1), "flagged"),
    ],
    2: [
        Entry("two", "regular", (0.7, 0.8, 0.5), (0.6, 0.8, 0.6)),
        Entry("two", "far", (7.0, -3.0, 1.0), (0.6, 0.8, 0.6)),
        Entry("two", "singular predictor", (0.0, 0.0, 0.4), (0.6, 0.8, 0.6), "either"),
        Entry("twice", "rank-deficient", (0.7, 0.8, 0.3), ON, redundant=1),
        Entry("twice", "rank-deficient, far", (30.0, -4.0, 2.0), ON, redundant=1),
        Entry("twice", "rank-deficient, at the centre", (0.0, 0.0, 0.0), ON, "flagged"),
        Entry("bent", "rank-deficient", (0.7, 0.8, 0.3), ON, redundant=1),
        Entry("touching", "singular", (0.0, 0.0, 0.4), (0.0, 0.0, 0.5), "flagged"),
        Entry("touching", "singular solution", (0.2, 0.1, 0.4), (0.0, 0.0, 0.5), "either"),
        Entry("contradicting", "infeasible", (0.6, 0.8, 0.1), ON, "flagged"),
        Entry("contradicting", "infeasible, far", (9.0, 1.0, 0.1), ON, "flagged"),
    ],
    3: [
        Entry("twice, and a plane", "rank-deficient", (0.7, 0.8, 0.5), (0.6, 0.8, 0.6), redundant=1),
        Entry("twice, and a plane", "rank-deficient, far", (7.0, -3.0, 1.0), (0.6, 0.8, 0.6), redundant=1),
        Entry("sum", "rank-deficient", (0.7, 0.8, 0.5), (0.6, 0.8, 0.6), redundant=1),
        Entry("sum", "rank-deficient, far", (7.0, -3.0, 1.0), (0.6, 0.8, 0.6), redundant=1),
        Entry("sum on the manifold", "singular there alone", (0.7, 0.8, 0.5), (0.6, 0.8, 0.6), "flagged"),
        Entry("contradicting sum", "infeasible", (0.7, 0.8, 0.5), (0.6, 0.8, 0.6), "flagged"),
    ],
}
TABLE = {
    rows: [replace(entry, order=order) for entry in entries for order in itertools.permutations(range(rows))]
    for rows, entries in TABLE.items()
}
H = 1e-5  # of the central differences


def mixed(rows):
    """The constraint of all kinds with so many equations, chosen and ordered by p."""
    return Constraint(
        lambda x, p: p["order"] @ (p["kind"] @ jnp.stack([jnp.atleast_1d(g(x)) for g in KINDS[rows].values()]))
    )


@cache
def program(name, rows):
    """Projection and derivative, both ways, for a batch of predictors, kinds, orders and anchors."""
    projection, constraint = PROJECTIONS[name][0], mixed(rows)

    def one(x, kind, order, anchor):
        def run(x):
            level, p = jnp.zeros(rows, x.dtype), {"kind": kind, "order": order}
            out = projection.project(constraint, jnp.zeros((), x.dtype), x, p, level, anchor=anchor)
            return out.x, out

        x, push, out = jax.linearize(run, x, has_aux=True)
        units = jnp.eye(x.shape[0], dtype=x.dtype)
        (reverse,) = jax.vmap(jax.linear_transpose(push, x))(units)
        return out, jax.vmap(push, out_axes=1)(units), reverse

    return jax.jit(jax.vmap(one), compiler_options=QUICK)


@cache
def evaluated(name, rows, dtype):
    """Each entry of the table, and the central differences of its state."""
    entries = TABLE[rows]
    names = list(KINDS[rows])
    shifts = H * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    xs = np.concatenate([np.array(entry.x) + shifts for entry in entries]).astype(dtype)
    kinds = np.repeat([np.eye(len(names))[names.index(entry.kind)] for entry in entries], 7, axis=0).astype(dtype)
    orders = np.repeat([np.eye(rows)[list(entry.order)] for entry in entries], 7, axis=0).astype(dtype)
    anchors = np.repeat([entry.anchor for entry in entries], 7, axis=0).astype(dtype)
    found = program(name, rows)(xs, kinds, orders, anchors)
    by_entry = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(len(entries), 7, *leaf.shape[1:]), found)
    out, forward, reverse = jax.tree.map(lambda leaf: leaf[:, 0], by_entry)
    near = by_entry[0].x
    difference = np.moveaxis(near[:, 1:4] - near[:, 4:7], 1, 2) / (2 * H)
    return out, forward, reverse, difference


# Of several constraints, which projections are not with the slow tests.
USUAL = {1: ("none", "robust", "frozen", "fast"), 2: ("frozen",), 3: ("robust",)}


def table():
    """Every combination; of those that take long to compile, some with the slow tests."""
    for name in PROJECTIONS:
        for rows in KINDS:
            for dtype in (np.float64, np.float32):
                later = name == "adaptive" or dtype is np.float32 or name not in USUAL[rows]
                marks = [pytest.mark.slow] if later else []
                yield pytest.param(name, rows, dtype, id=f"{name}-{rows}-{dtype.__name__}", marks=marks)


@pytest.mark.parametrize(("name", "rows", "dtype"), list(table()))
def test_correct_or_flagged(name, rows, dtype):
    out, forward, reverse, difference = evaluated(name, rows, dtype)
    tolerance = PROJECTIONS[name][1]
    precise = dtype is np.float64
    solved = np.asarray(outcome_codes(out.result)) == int(outcome_codes(RESULTS.successful))
    reference, doubled, _, _ = evaluated(name, rows, np.float64)
    agreed = np.asarray(outcome_codes(reference.result)) == int(outcome_codes(RESULTS.successful))
    for leaf in (out.x, out.multiplier, out.violation, forward, reverse):
        assert np.isfinite(leaf).all()
        assert leaf.dtype == dtype
    for i, entry in enumerate(TABLE[rows]):
        label = f"{entry.kind}, {entry.situation}, {entry.order}"
        x, target = out.x[i], np.array(entry.x, dtype)
        if not solved[i]:
            np.testing.assert_array_equal(x, target, err_msg=label)
            for jacobian in (forward[i], reverse[i]):
                np.testing.assert_array_equal(jacobian, np.eye(3), err_msg=label)
            continue
        g = np.asarray(entry.residual(jnp.asarray(x)))
        np.testing.assert_allclose(out.violation[i], np.abs(g), rtol=0, atol=1e-14 if precise else 1e-5, err_msg=label)
        np.testing.assert_allclose(reverse[i], forward[i], rtol=0, atol=1e-12 if precise else 1e-4, err_msg=label)
        if precise:
            np.testing.assert_allclose(forward[i], difference[i], rtol=0, atol=2e-7, err_msg=label)
        elif agreed[i]:  # too few digits for differences
            np.testing.assert_allclose(forward[i], doubled[i], rtol=0, atol=1e-3, err_msg=label)
        slopes = np.asarray(jax.jacfwd(entry.residual)(jnp.asarray(x)))
        if tolerance is not None:
            scale = np.linalg.norm(slopes, axis=1) * max(np.linalg.norm(x), np.linalg.norm(target))
            assert (np.abs(g) <= tolerance[dtype] * scale).all(), label
        if name == "robust":
            # x~ - x is normal to the manifold.
            away = (target - x) - slopes.T @ out.multiplier[i]
            size = np.linalg.norm(target) + np.abs(slopes.T) @ np.abs(out.multiplier[i])
            assert (np.abs(away) <= (1e-14 if precise else 1e-5) * size).all(), label
            assert out.redundant[i] == entry.redundant, label
    if name == "robust":
        for i, entry in enumerate(TABLE[rows]):
            if entry.robust != "either":
                assert solved[i] == (entry.robust == "solved"), f"{entry}"
    else:  # whatever its reach, it solves what is regular; and where there is no way to go it says so
        for i, entry in enumerate(TABLE[rows]):
            if entry.situation in ("regular", "rank-deficient"):
                assert solved[i], f"{entry}"
            if name != "none" and entry.situation in ("singular", "centre: no nearest point", "infeasible"):
                # One step from where there is a direction cannot know that it leads nowhere: its violation tells.
                told = ~solved[i] if entry.kind != "empty" or name == "frozen" else out.violation[i].max() > 0.5
                assert told, f"{entry}"
            # A single step sees the predictor alone, where these equations are independent and its formula is exact.
            if name not in ("none", "fast") and entry.situation == "singular there alone":
                assert ~solved[i], f"{entry}"


def reason(projection, g, x):
    constraint = Constraint(g)
    x = jnp.asarray(x)
    run = jax.jit(lambda x: projection.project(constraint, 0.0, x, {}, jnp.zeros(1)), compiler_options=QUICK)
    out = run(x)
    np.testing.assert_array_equal(out.x, x)
    return out.result


@pytest.mark.parametrize("name", ["fast", "robust"])
def test_a_constraint_that_is_not_differentiable_is_named(name):
    """Finite, with a derivative that is not: the message says how to write it instead."""
    found = reason(PROJECTIONS[name][0], lambda x: jnp.sqrt(x @ x) - 1, [0.0, 0.0])
    assert found == RESULTS.not_differentiable
    assert "its square in place of a norm" in RESULTS[found]


def test_messages_name_what_is_left_to_try():
    for result in (RESULTS.singular, RESULTS.not_converged):
        assert "Loss(constraint_penalty=...)" in RESULTS[result]
        assert "AugmentedLagrangian" in RESULTS[result]


def length(x):
    return x[0] ** 2 + x[1] ** 2 - 1


def rod(x):
    return x[0] * x[2] + x[1] * x[3]


def pendulum(x):
    pull = (x[2] ** 2 + x[3] ** 2 - 9.81 * x[1]) / (x[0] ** 2 + x[1] ** 2)
    return jnp.stack([x[2], x[3], -pull * x[0], -9.81 - pull * x[1]])


ONCE = Stack([Constraint(length), Constraint(rod)])
TWICE = Stack([Constraint(length), Constraint(lambda x: 3 * length(x)), Constraint(rod)])


def test_the_user_is_told_of_redundant_constraints():
    twin = tw.Twin(pendulum, constraint=TWICE, projection=Tangent(), integrator=tw.RK4())
    with pytest.warns(UserWarning, match="1 of 3 depend on the others"):
        held = twin.simulate(jnp.array([0.8, -0.6, 0.3, 0.4]), np.linspace(0, 0.4, 41))
    assert held.trajectory.relative_violation.max() <= 1e-9


@pytest.mark.slow
def test_a_pendulum_with_its_length_given_twice():
    """The trajectory and its derivative are those with the length given once."""
    x0, ts = jnp.array([0.8, -0.6, 0.3, 0.4]), np.linspace(0, 2, 21)
    found = {}
    for name, constraint in (("once", ONCE), ("twice", TWICE)):
        twin = tw.Twin(pendulum, constraint=constraint, projection=Newton(), integrator=tw.RK4())

        def end(x0, twin=twin):
            trajectory = tw.rollout(twin.cell, x0, jnp.asarray(ts), throw=False)
            return trajectory.xs, (trajectory.xs, trajectory.relative_violation, trajectory.failed)

        found[name] = jax.jit(jax.jacfwd(end, has_aux=True), compiler_options=QUICK)(x0)
    for slopes, (_, violation, failed) in found.values():
        assert not failed
        assert violation.max() <= 1e-13
        assert np.isfinite(slopes).all()
    np.testing.assert_allclose(found["twice"][1][0], found["once"][1][0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["twice"][0], found["once"][0], rtol=0, atol=1e-11)


def test_more_than_eight_constraints_with_redundant_ones():
    """Where LAPACK takes over: ten planes, of which three depend on the others; and a contradiction among them."""
    normals = np.random.default_rng(1).normal(size=(7, 12))
    mix = np.random.default_rng(2).normal(size=(3, 7))
    rows = np.concatenate([normals[:4], mix @ normals, normals[4:]])
    plane = Conserved(lambda x: jnp.asarray(rows) @ x)
    on, off = np.random.default_rng(3).normal(size=(2, 12))
    level = plane.level(0.0, jnp.asarray(on), {})
    wrong = level.at[5].add(0.1)

    def run(level):
        def nearest(x):
            out = Newton().project(plane, 0.0, x, {}, level)
            return out.x, out

        slopes, out = jax.jacfwd(nearest, has_aux=True)(jnp.asarray(off))
        return out, slopes

    out, slopes = jax.jit(jax.vmap(run), compiler_options=QUICK)(jnp.stack([level, wrong]))
    assert (np.asarray(out.result == RESULTS.successful) == [True, False]).all()
    np.testing.assert_array_equal(out.redundant, [3, 3])
    inverse = np.linalg.pinv(rows)
    np.testing.assert_allclose(out.x[0], off - inverse @ (rows @ off - level), rtol=0, atol=1e-12)
    np.testing.assert_allclose(slopes[0], np.eye(12) - inverse @ rows, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(out.x[1], off)
    np.testing.assert_array_equal(slopes[1], np.eye(12))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soft", "multipliers"])
def test_training_goes_on_where_no_projection_can(method):
    """Constraints that contradict each other cannot be held; as a penalty, or with multipliers, they can be asked."""
    ts = np.linspace(0.0, 2.0, 9)
    runs = np.stack([np.stack([a * np.cos(ts), -a * np.sin(ts)], 1) for a in (0.8, 1.0)])
    data = tw.Dataset.from_arrays(ts, runs)
    constraint = Stack([Conserved(lambda x: x @ x), Constraint(lambda x: x @ x - 1)])  # one run has 0.64
    inner = tw.Adam(12, learning_rate=3e-2)
    twin = tw.node(tw.MLP(width=4, depth=1), constraint=constraint)
    fit = tw.fit(
        twin,
        data,
        method=inner if method == "soft" else AugmentedLagrangian(inner, every=4),
        loss=tw.Loss(constraint_penalty=1e-2),
        progress=False,
    )
    assert not fit.failures
    assert np.isfinite(fit.history["loss"]).all()
    assert fit.history["loss"][3, 0] < fit.history["loss"][0, 0]
    hard = tw.Twin(fit.twin.field, constraint=constraint, projection=Newton())
    out = tw.rollout(hard.cell, jnp.array([0.8, 0.0]), jnp.asarray(ts), throw=False)
    assert out.failed
    assert np.isfinite(out.xs).all()
