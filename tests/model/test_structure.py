"""Structure of a network: true for any weights, before and after training."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.model._learned.base import Context
from twinfold.model._learned.structure import IMPOSSIBLE, NEAR_ZERO, STRUCTURES, not_negative


class Resisting(eqx.Module):
    """dx/dt = -law(x)."""

    law: tw.Network

    def __call__(self, x):
        return -self.law(x)


GRID = (jnp.arange(-30, 31) / 10)[:, None]  # with an exact zero
CONTEXT = Context(1, 0, jnp.float64)


def large(structure, *, key: int = 0, bounds=None, size: int = 1) -> tw.Network:
    """A network with random weights, much larger than those that are drawn."""
    network = tw.Network(size, size, width=6, depth=2, structure=structure, bounds=bounds)
    network = network.initialise(jax.random.key(key), CONTEXT)
    return jax.tree.map(lambda leaf: 4 * leaf if hasattr(leaf, "dtype") else leaf, network)


def varies(y) -> bool:
    """Whether the values are not those of a trivial function."""
    return bool(np.ptp(y) > 0.1 * np.abs(y).max())


def holds(name: str, network) -> bool:
    """Whether the values on a grid have the structure."""
    y, mirrored = jax.vmap(network)(GRID), jax.vmap(network)(-GRID)
    steps = np.diff(y, axis=0)
    return {
        "odd": bool(np.all(y == -mirrored)),
        "even": bool(np.all(y == mirrored)),
        "increasing": bool(np.all(steps >= 0)),
        "decreasing": bool(np.all(steps <= 0)),
        "positive": bool(np.all(y >= 0)),
        "dissipative": bool(np.all(y * GRID >= 0)),
    }[name]


@pytest.mark.parametrize(
    "structure", [(), *((name,) for name in STRUCTURES)], ids=lambda names: "-".join(names) or "none"
)
def test_a_structure_holds_for_random_weights(structure):
    for key in range(3):
        network = large(structure, key=key)
        assert all(holds(name, network) for name in structure)
        assert varies(jax.vmap(network)(GRID))
    if not structure:  # it is not true by itself
        assert not any(all(holds(name, large((), key=key)) for key in range(3)) for name in STRUCTURES)


@pytest.mark.parametrize("pair", [*itertools.combinations(STRUCTURES, 2)], ids="-".join)
def test_two_structures_hold_together_or_are_refused(pair):
    refused = {frozenset(each[:2]) for each in IMPOSSIBLE} | {frozenset(("dissipative", "decreasing"))}
    if frozenset(pair) in refused:
        with pytest.raises(ValueError, match="structure="):
            tw.Network(1, 1, structure=pair)
        return
    network = large(pair)
    assert all(holds(name, network) for name in pair)
    assert varies(jax.vmap(network)(GRID))


@pytest.mark.parametrize(
    ("structure", "bounds"), [((), (-1.0, 3.0)), ((), (2.0, 3.0)), ("odd", (-2.0, 2.0)), ("positive", (0.0, 0.5))]
)
def test_bounds_hold_with_the_structure(structure, bounds):
    network = large(structure, bounds=bounds)
    y = jax.vmap(network)(GRID)
    assert np.all((y >= bounds[0]) & (y <= bounds[1]))
    assert all(holds(name, network) for name in network.structure)
    assert np.ptp(y) > 0.05 * (bounds[1] - bounds[0])


@pytest.mark.parametrize("structure", [("odd", "increasing"), ("dissipative",), ("even", "positive")], ids="-".join)
def test_derivatives_are_exact(structure):
    network = large(structure, bounds=(0.0, 9.0) if "positive" in structure else (-9.0, 9.0))
    for u in GRID[5::11]:
        forward, reverse = jax.jacfwd(network)(u), jax.jacrev(network)(u)
        np.testing.assert_allclose(forward, reverse, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(forward[0], (network(u + 1e-6) - network(u - 1e-6)) / 2e-6, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "convex"}, "give one or several of odd"),
        ({"bounds": (1.0, 0.0)}, "the lower one first"),
        ({"bounds": (1.0, 2.0), "structure": "dissipative"}, "zero must be between"),
        ({"bounds": (-1.0, 2.0), "structure": "odd"}, "equal size"),
        ({"bounds": (-1.0, 2.0), "structure": "positive"}, "must not be negative"),
        ({"activation": jnp.sin, "structure": "increasing"}, "monotone activation"),
        ({"out_size": 2, "structure": "dissipative"}, "as many of both"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        tw.Network(**({"in_size": 1, "out_size": 1} | options))


def test_what_is_not_negative_is_a_smooth_maximum():
    """(z + sqrt(z^2 + 4 a^2)) / 2, monotone to the last bit, with the slope 1/2 at zero."""
    z = jnp.concatenate([-jnp.logspace(8, -8, 200), jnp.zeros(1), jnp.logspace(-8, 8, 200)])
    p = not_negative(z)
    assert np.all(p > 0)
    assert np.all(np.diff(p) >= 0)
    near = np.abs(z) < 1
    np.testing.assert_allclose(p[near], ((z + jnp.sqrt(z**2 + 4 * NEAR_ZERO**2)) / 2)[near], rtol=1e-11)
    slope = jax.grad(lambda z: not_negative(z[None])[0])
    assert slope(jnp.array(0.0)) == 0.5
    np.testing.assert_allclose(slope(jnp.array(1e-9)), 0.5, atol=1e-7)


@pytest.mark.slow
def test_a_trained_law_keeps_its_structure():
    """Friction learned from a decay that the structure fits: dissipative before and after."""
    law = tw.Network(1, 1, width=4, depth=1, structure=["odd", "dissipative"], zero_last=True)
    ts = np.linspace(0, 3, 31)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)])
    twin = tw.Twin(tw.GreyBox(lambda x: 0 * x, Resisting(law)))
    method = (tw.Adam(150, learning_rate=5e-2), tw.LevenbergMarquardt(20))
    fit = tw.fit(twin, data, method=method, progress=False)
    assert fit.scores[0] < 1e-3 * fit.history["loss"][0, 0]
    trained = fit.twin.field.residual.law  # pyright: ignore[reportFunctionMemberAccess]
    assert holds("dissipative", trained)
    assert holds("odd", trained)
