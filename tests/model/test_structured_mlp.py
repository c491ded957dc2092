"""Structure of a residual network: true of what it adds, inside and outside of the data, before and after training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold._core import Frozen
from twinfold.model._learned.base import Context, learned_parts
from twinfold.model._learned.region import covered_region
from twinfold.model._learned.structure import IMPOSSIBLE, STRUCTURES

GRID = jnp.arange(-60, 61)[:, None] / 10  # with an exact zero, and far beyond the data
SEEN = np.linspace(0.5, 2.5, 40)  # an excursion to one side, away from zero
ALLOWED = [(), *((name,) for name in STRUCTURES), ("odd", "dissipative"), ("odd", "increasing"), ("even", "positive")]
ALLOWED += [("odd", "decreasing", "dissipative"), ("decreasing", "dissipative"), ("decreasing", "positive")]


def drawn(structure, *, key=0, bounds=None, outside="auto", size=1, scale=4.0) -> tw.MLP:
    """A part with random weights, much larger than those that are drawn, units and a region from data."""
    mlp = tw.MLP(width=6, depth=2, structure=structure, bounds=bounds, outside=outside)
    n, zero, one = size, jnp.array(0.0), jnp.array(1.0)
    mean, std, rate = (jnp.full(n, value) for value in (1.5, 0.6, 3.0))
    statistics = tw.model.Statistics(mean, std, rate, None, None, zero, one)
    mlp = mlp.initialise(jax.random.key(key), Context(n, 0, jnp.float64, statistics))
    network = jax.tree.map(lambda leaf: scale * leaf if eqx.is_array(leaf) else leaf, mlp.network)
    region = covered_region(mlp.covered([SEEN] * n, n), [True] * n, mlp.margin, np.float64)
    return eqx.tree_at(
        lambda mlp: (mlp.network, mlp.region), mlp, (network, Frozen(region)), is_leaf=lambda node: node is None
    )


def holds(name, mlp) -> bool:
    """Whether what the part adds has the structure on the grid."""
    y, mirrored = (np.asarray(jax.vmap(mlp.response)(u)) for u in (GRID, -GRID))
    steps, rounding = np.diff(y, axis=0), 4 * np.finfo(y.dtype).eps * np.abs(y).max()  # where it is flat
    return {
        "odd": np.array_equal(y, -mirrored),
        "even": np.array_equal(y, mirrored),
        "increasing": np.all(steps >= -rounding),
        "decreasing": np.all(steps <= rounding),
        "positive": np.all(y >= 0),
        "dissipative": np.all(y * GRID <= 0),
    }[name].__bool__()


@pytest.mark.parametrize("outside", ["auto", "fade", "free"])
@pytest.mark.parametrize("structure", ALLOWED, ids=lambda names: "-".join(names) or "none")
def test_it_holds_for_random_weights_in_and_outside_the_data(structure, outside):
    if outside == "fade" and {"increasing", "decreasing"} & set(structure):
        with pytest.raises(ValueError, match="what fades to zero is not monotone"):
            drawn(structure, outside=outside)
        return
    parts = [drawn(structure, key=key, outside=outside) for key in range(4)]
    assert all(holds(name, mlp) for name in structure for mlp in parts)
    values = [np.asarray(jax.vmap(mlp.response)(GRID)) for mlp in parts]
    assert all(np.ptp(y) > 0.05 * np.abs(y).max() > 0 for y in values)  # not those of a trivial function
    if not structure:  # it is not true by itself
        assert not any(all(holds(name, mlp) for mlp in parts) for name in STRUCTURES)


def test_without_a_region_about_zero_it_would_not_hold():
    """The region of the data alone would hold friction at a speed of the other sign."""
    mlp = drawn(("dissipative",))
    narrow = covered_region([SEEN], [True], 0.1, np.float64)
    assert not holds("dissipative", eqx.tree_at(lambda mlp: mlp.region, mlp, Frozen(narrow)))
    region = drawn(("odd",)).region
    assert region is not None
    np.testing.assert_array_equal(region.value.low, -region.value.high)


@pytest.mark.parametrize(
    ("structure", "bounds"), [((), (-1.0, 3.0)), ((), (2.0, 3.0)), ("odd", (-2.0, 2.0)), ("dissipative", (-0.5, 2.0))]
)
def test_bounds_are_those_of_what_is_added(structure, bounds):
    """In the units of dx/dt, not in those of the network."""
    mlp = drawn(structure, bounds=bounds, key=1, scale=12.0)
    y = np.asarray(jax.vmap(mlp.response)(GRID))
    assert np.all((y >= bounds[0]) & (y <= bounds[1]))
    assert np.ptp(y) > 0.05 * (bounds[1] - bounds[0])
    assert all(holds(name, mlp) for name in mlp.structure)


def test_further_features_follow_those_that_are_resisted():
    """Friction that depends on a temperature: the sign is that of the speed alone."""
    mlp = tw.MLP(states=[1], inputs=[0], adds_to=[1], width=5, structure="dissipative")
    mlp = mlp.initialise(jax.random.key(0), Context(2, 1, jnp.float64))
    u = jnp.asarray(np.random.default_rng(0).normal(size=(200, 2)) * [3.0, 5.0])
    added = np.asarray(jax.vmap(mlp.response)(u))[:, 0]
    assert np.all(added * u[:, 0] <= 0)
    assert np.std(added / u[:, 0]) > 1e-3 * np.abs(added / u[:, 0]).mean()  # the temperature matters


def test_several_rates_are_resisted_each_by_its_own():
    mlp = drawn(("odd", "dissipative"), size=2)
    u = jnp.asarray(np.random.default_rng(1).normal(size=(300, 2)) * 4)
    added = np.asarray(jax.vmap(mlp.response)(u))
    assert np.all(added * u <= 0)
    np.testing.assert_array_equal(jax.vmap(mlp.response)(-u), -added)


@pytest.mark.parametrize("structure", [("odd", "increasing"), ("dissipative",), ("even", "positive")], ids="-".join)
def test_derivatives_three_ways(structure):
    mlp = drawn(structure, bounds=(0.0, 9.0) if "positive" in structure else (-9.0, 9.0))
    for u in jnp.asarray(GRID[7::13]):
        forward, reverse = jax.jacfwd(mlp.response)(u), jax.jacrev(mlp.response)(u)
        np.testing.assert_allclose(forward, reverse, rtol=1e-12, atol=1e-14)
        difference = (mlp.response(u + 1e-6) - mlp.response(u - 1e-6)) / 2e-6
        np.testing.assert_allclose(forward[0], difference, rtol=1e-5, atol=1e-7)


def test_units_leave_zero_where_it_is():
    mlp = drawn(("odd",))
    assert mlp.units is not None
    np.testing.assert_array_equal(mlp.units.value.center, [0.0])
    np.testing.assert_allclose(mlp.units.value.spread, np.hypot(1.5, 0.6))
    plain = drawn(())
    assert plain.units is not None
    np.testing.assert_allclose(plain.units.value.center, [1.5])


@pytest.mark.slow
def test_it_starts_where_gauss_newton_can_leave():
    """From next to nothing, where the slope of an exponential would send the first step far too far."""
    ts = np.linspace(0, 2, 21)
    friction = tw.MLP(width=4, depth=1, structure=("odd", "dissipative"), zero_last=True)
    twin = tw.Twin(tw.GreyBox(lambda x: 0 * x, friction))
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)])
    fit = tw.fit(twin, data, method=tw.LevenbergMarquardt(25), progress=False)
    assert fit.scores[0] < 1e-5
    np.testing.assert_allclose(learned_parts(fit.twin)[0].response(jnp.array([0.6])), [-0.6], atol=0.01)  # pyright: ignore[reportAttributeAccessIssue]


SHIFTED = tw.Scaling(center=jnp.ones(1), spread=jnp.ones(1), output=jnp.ones(1))
TURNED = tw.Scaling(center=jnp.zeros(1), spread=jnp.ones(1), output=-jnp.ones(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"structure": pair[:2]}, "structure=") for pair in IMPOSSIBLE),
        ({"structure": "convex"}, "MLP.*give one or several of odd"),
        ({"structure": ["dissipative", "increasing"]}, "only a function of one input that is decreasing"),
        ({"structure": "dissipative", "states": [0], "adds_to": [0, 1]}, "2 outputs and 1 inputs"),
        ({"structure": "odd", "time": True}, "leave time out"),
        ({"bounds": (1.0, 2.0), "outside": "fade"}, "not within bounds"),
        ({"bounds": (1.0, 2.0), "time": True}, "not within bounds"),
        ({"structure": "odd", "states": [0], "adds_to": [0], "scaling": SHIFTED}, "center of 0"),
        ({"structure": "increasing", "states": [0], "adds_to": [0], "scaling": TURNED}, "must be positive"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tw.MLP(**options).check(Context(2, 0, jnp.float64))


def test_settings_of_a_file_can_say_none():
    assert tw.MLP(structure="", bounds=[]).structure == ()  # pyright: ignore[reportArgumentType]
    assert tw.MLP(structure="", bounds=[]).bounds is None  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
@pytest.mark.parametrize("structure", [("odd", "dissipative"), ("decreasing",)], ids="-".join)
def test_it_holds_after_training_too(structure):
    """Friction learned from the decay of a speed of one sign: what it says of the other sign follows."""
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)])
    friction = tw.MLP(width=4, depth=1, structure=structure, bounds=(-3.0, 3.0), zero_last=True)
    twin = tw.Twin(tw.GreyBox(lambda x: 0 * x, friction))
    method = (tw.Adam(150, learning_rate=5e-2), tw.LevenbergMarquardt(20))
    fit = tw.fit(twin, data, method=method, progress=False)
    assert fit.scores[0] < 1e-3 * fit.history["loss"][0, 0]
    (trained,) = learned_parts(fit.twin)
    assert isinstance(trained, tw.MLP)
    assert trained.region is not None
    assert all(holds(name, trained) for name in structure)
    y = np.asarray(jax.vmap(trained.response)(GRID))
    assert np.all(np.abs(y) <= 3.0)
    np.testing.assert_allclose(trained.response(jnp.array([0.6])), [-0.6], atol=0.06)
