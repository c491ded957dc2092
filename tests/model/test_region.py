"""What a learned part does outside of the region that its training data covered."""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold._core import Frozen
from twinfold.model._learned.base import Context, learned_parts
from twinfold.model._learned.region import SLACK, Region, covered_region

LOW, HIGH, MARGIN = np.array([-1.0, 2.0]), np.array([3.0, 2.5]), np.array([0.5, 1.0])
REGION = Region(jnp.asarray(LOW), jnp.asarray(HIGH), jnp.asarray(MARGIN))
RNG = np.random.default_rng(0)
INSIDE = jnp.asarray(RNG.uniform(LOW, HIGH, (50, 2)))
FAR = jnp.asarray([[-1.5, 2.2], [3.6, 2.2], [0.0, 1.0], [0.0, 3.6], [9.0, -9.0], [1e6, 2.0]])


def part(outside: Any) -> tw.MLP:
    mlp = tw.MLP(states=[0], inputs=[0], adds_to=[0], width=5, depth=2, outside=outside)
    mlp = mlp.initialise(jax.random.key(3), Context(1, 1, jnp.float64))
    return eqx.tree_at(lambda mlp: mlp.region, mlp, Frozen(REGION), is_leaf=lambda node: node is None)


FREE, FADE, HOLD, AUTO = part("free"), part("fade"), part("hold"), part("auto")


def test_inside_it_changes_nothing_to_the_last_bit():
    for u in INSIDE:
        np.testing.assert_array_equal(FADE.response(u), FREE.response(u))
        np.testing.assert_array_equal(HOLD.response(u), FREE.response(u))
        np.testing.assert_allclose(jax.jacfwd(FADE.response)(u), jax.jacfwd(FREE.response)(u), rtol=1e-15)
        np.testing.assert_allclose(jax.jacfwd(HOLD.response)(u), jax.jacfwd(FREE.response)(u), rtol=1e-15)


def test_far_outside_it_is_zero_or_constant():
    for u in FAR:
        np.testing.assert_array_equal(FADE.response(u), [0.0])
        np.testing.assert_array_equal(jax.jacfwd(FADE.response)(u), np.zeros((1, 2)))
    # Beyond a corner by a margin or more, the value is that half a margin from the corner.
    corner = FREE.response(jnp.asarray(HIGH + MARGIN / 2))
    for u in ([3.5, 3.5], [4.0, 1e3], [1e9, 4.0]):
        np.testing.assert_allclose(HOLD.response(jnp.asarray(u)), corner, rtol=1e-14)
    np.testing.assert_allclose(REGION.held(jnp.array([-1e3, 2.2])), [-1.25, 2.2], rtol=1e-15)


def test_by_default_it_fades_in_time_and_holds_the_rest():
    mlp = tw.MLP(states=[0], time=True, width=5).initialise(jax.random.key(3), Context(1, 0, jnp.float64))
    free = mlp.response
    mlp = eqx.tree_at(lambda mlp: mlp.region, mlp, Frozen(REGION), is_leaf=lambda node: node is None)
    for u in INSIDE:
        np.testing.assert_array_equal(mlp.response(u), free(u))
    np.testing.assert_allclose(mlp.response(jnp.array([9.0, 2.2])), free(jnp.array([3.25, 2.2])), rtol=1e-14)
    np.testing.assert_array_equal(mlp.response(jnp.array([0.0, 3.5])), [0.0])
    half = mlp.response(jnp.array([9.0, 3.0]))
    np.testing.assert_allclose(half, (1 - 0.25) ** 2 * free(jnp.array([3.25, 2.5 + 0.5 - 0.125])), rtol=1e-14)
    for u in FAR:  # without time as a feature, there is nothing to fade in
        np.testing.assert_array_equal(AUTO.response(u), HOLD.response(u))


@pytest.mark.parametrize("mlp", [FADE, HOLD], ids=["fade", "hold"])
def test_value_and_slope_are_continuous_across_both_edges(mlp):
    """Across the ends of the region and of the margin, one-sided slopes agree."""
    for edge in (-1.5, -1.0, 3.0, 3.5):
        at = [jnp.array([edge + step, 2.3]) for step in (-1e-7, 1e-7)]
        before, after = (jax.jacfwd(mlp.response)(u) for u in at)
        np.testing.assert_allclose(before, after, atol=1e-5)
        np.testing.assert_allclose(*(mlp.response(u) for u in at), atol=1e-6)


@pytest.mark.parametrize("mlp", [FADE, HOLD], ids=["fade", "hold"])
def test_derivatives_three_ways(mlp):
    points = jnp.asarray(RNG.uniform(LOW - MARGIN, HIGH + MARGIN, (20, 2)))
    for u in points:
        forward, reverse = jax.jacfwd(mlp.response)(u), jax.jacrev(mlp.response)(u)
        steps = 1e-6 * np.eye(2)
        differences = np.stack([(mlp.response(u + d) - mlp.response(u - d)) / 2e-6 for d in steps], axis=-1)
        np.testing.assert_allclose(forward, reverse, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(forward, differences, rtol=1e-4, atol=1e-8)


def test_the_weight_falls_with_the_distance():
    line = jnp.linspace(3.0, 3.5, 40)
    weights = jax.vmap(lambda x: REGION.weight(jnp.stack([x, 2.2 + 0 * x])))(line)
    assert np.all(np.diff(weights) < 0)
    assert (weights[0], weights[-1]) == (1.0, 0.0)
    np.testing.assert_allclose(REGION.weight(jnp.array([3.25, 2.2])), (1 - 0.25) ** 2)


def test_a_single_outlier_does_not_widen_the_region():
    values = np.linspace(2.0, 4.0, 100)
    wrong = np.where(np.arange(100) == 37, 50.0, values)
    for sign in (1, -1):
        clean, dirty, trusted = (
            covered_region([sign * each], [measured], 0.5, float)
            for each, measured in ((values, True), (wrong, True), (wrong, False))
        )
        ends = sorted([sign * (2.0 - 2 * SLACK), sign * (4.0 + 2 * SLACK)])
        np.testing.assert_allclose([clean.low[0], clean.high[0]], ends)
        np.testing.assert_allclose([dirty.low[0], dirty.high[0]], ends)
        assert trusted.high[0] - trusted.low[0] > 40
        np.testing.assert_allclose(clean.margin, [1.0])


def test_two_far_values_and_missing_ones():
    values = np.append(np.linspace(0.0, 1.0, 50), [5.0, 5.1, np.nan, np.inf])
    found = covered_region([values, np.full(30, 7.0), np.full(3, np.nan)], [True] * 3, 0.5, float)
    assert found.high[0] > 5.1
    np.testing.assert_allclose([found.low[1], found.high[1]], [7 - 0.7 * SLACK, 7 + 0.7 * SLACK])
    assert (found.low[2], found.high[2]) == (-np.inf, np.inf)
    far = jnp.array([0.5, 7.0, 1e12])
    assert found.weight(far) == 1.0
    np.testing.assert_array_equal(found.held(far), far)


# --- set by fit ---

TS = np.linspace(0, 2, 21)
XS = np.stack([np.exp(-0.7 * TS), 3 * np.exp(-0.7 * TS)])[..., None]


def region_of(twin: tw.Twin) -> Region | None:
    (found,) = learned_parts(twin)
    assert isinstance(found, tw.MLP)
    return None if found.region is None else found.region.value


@cache
def fitted(**options: Any):
    chosen: dict[str, Any] = {"outside": "fade"} | options
    residual = tw.MLP(width=3, depth=1, margin=0.5, **chosen)
    twin = tw.Twin(tw.GreyBox(lambda x: -0.5 * x, residual))
    data = tw.Dataset.from_arrays(TS, XS)
    return twin, data, tw.fit(twin, data, seeds=2, method=tw.LevenbergMarquardt(4), progress=False)


def test_a_fit_sets_the_region_of_the_measured_states():
    _, data, fit = fitted(time=True)
    region = region_of(fit.twin_of(1))
    assert region is not None
    low, high = np.array([XS.min(), 0.0]), np.array([XS.max(), 2.0])
    np.testing.assert_allclose(region.low, low - SLACK * (high - low), rtol=1e-12)
    np.testing.assert_allclose(region.high, high + SLACK * (high - low), rtol=1e-12)
    np.testing.assert_allclose(region.margin, 0.5 * (high - low), rtol=1e-12)
    # On its training data the twin is that of a fit without a region; later, it is the physics alone.
    same = fitted(time=True, outside="free")[2]
    np.testing.assert_array_equal(same.scores, fit.scores)
    np.testing.assert_allclose(tw.predict(fit, data).predicted, tw.predict(same, data).predicted, rtol=1e-13)
    later = jnp.linspace(4, 5, 11)
    physics = tw.Twin(lambda x: -0.5 * x).simulate([1.0], later).xs
    np.testing.assert_allclose(fit.twin.simulate([1.0], later).xs, physics, rtol=1e-14)
    assert np.abs(same.twin.simulate([1.0], later).xs - physics).max() > 1e-3


@pytest.mark.slow
def test_hidden_states_have_the_region_that_each_seed_passes_through():
    residual = tw.MLP(states=[1], adds_to=[1], width=3, depth=1, outside="hold", margin=0.5)
    twin = tw.Twin(
        tw.GreyBox(lambda x: jnp.stack([x[1], -x[0]]), residual),
        observe=lambda x: x[:1],
        initial=lambda y: jnp.append(y, 0.0),
    )
    data = tw.Dataset.from_arrays(TS, [np.cos(TS)])
    fit = tw.fit(twin, data, seeds=2, method=tw.Adam(1), progress=False)
    for seed in range(2):
        region = region_of(fit.twin_of(seed))
        assert region is not None
        speed = np.asarray(fit.twin_of(seed).simulate([1.0, 0.0], TS).xs[:, 1])
        slack = SLACK * np.ptp(speed)
        np.testing.assert_allclose(region.low, [speed.min() - slack], rtol=1e-9)
        np.testing.assert_allclose(region.high, [speed.max() + slack], rtol=1e-9)
    assert not np.array_equal(*fit.regions[0].low)


def test_a_kept_network_keeps_its_region_and_a_new_one_has_none():
    _, _, fit = fitted(time=True)
    again = tw.fit(
        tw.Twin(fit.twin.field, params={"k": tw.Unknown(1.0)}, observe=lambda x, p: p["k"] * x, initial=lambda y: y),
        tw.Dataset.from_arrays(TS, 10 + XS),
        method=tw.Adam(1),
        trainable="parameters",
        progress=False,
    )
    kept, before = region_of(again.twin), region_of(fit.twin)
    assert kept is not None
    assert before is not None
    np.testing.assert_array_equal(kept.low, before.low)
    assert region_of(fit.twin.initialise(jax.random.key(0), states=1)) is None


@pytest.mark.parametrize(
    ("options", "message"), [({"outside": "clip"}, "outside='clip'"), ({"margin": 0.0}, "margin=0")]
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tw.MLP(**options)


@pytest.mark.slow
def test_a_model_file_keeps_the_region(tmp_path):
    twin, _, fit = fitted()
    path = tmp_path / "model.twin"
    tw.save_model(path, fit.twin, about=tw.ModelInfo(states=("x",), outputs=("x",)))
    (loaded,), (before,) = learned_parts(tw.load_model(path, twin)), learned_parts(fit.twin)
    for a, b in zip(jax.tree.leaves(loaded), jax.tree.leaves(before), strict=True):
        np.testing.assert_array_equal(a, b)
    free = tw.Twin(tw.GreyBox(lambda x: -0.5 * x, tw.MLP(width=3, depth=1, outside="free")))
    with pytest.raises(ValueError, match=r"region.value.low: only in the file"):
        tw.load_model(path, free)
    tw.save_model(path, fit.twin_of(0).initialise(jax.random.key(0), states=1), about=tw.ModelInfo(states=("x",)))
    assert region_of(tw.load_model(path, twin)) is None
