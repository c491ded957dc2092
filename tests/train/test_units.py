"""Units of learned parts: from the data, or from the physics where states are hidden."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.model._learned.base import learned_parts
from twinfold.train._units import statistics_for

TS = np.linspace(0, 20, 401)


def hidden(physics, **part) -> tw.Twin:
    """A twin of two states of which the first is measured."""
    residual = tw.MLP(states=[1], adds_to=[1], width=3, depth=1, **part)
    return tw.Twin(
        tw.GreyBox(physics, residual),
        params={"k": tw.Unknown(9.0)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.append(y, 0.0),
    )


def spring(x, p):
    return jnp.stack([x[1], -p["k"] * x[0]])


def test_hidden_states_have_the_size_that_the_physics_gives_them():
    """x = cos 3t, v = -3 sin 3t, v' = -9 cos 3t, whatever the learned part would add."""
    data = tw.Dataset.from_arrays(TS, [np.cos(3 * TS)])
    found: Any = statistics_for(hidden(spring), data, 2)
    v = -3 * np.sin(3 * TS)
    np.testing.assert_allclose(found.x_std, [np.cos(3 * TS).std(), v.std()], rtol=1e-3)
    np.testing.assert_allclose(found.x_mean, [np.cos(3 * TS).mean(), v.mean()], atol=1e-3)
    rates = np.sqrt([np.mean((np.diff(x) / np.diff(TS)) ** 2) for x in (np.cos(3 * TS), v)])
    np.testing.assert_allclose(found.rate_std, rates, rtol=1e-3)
    np.testing.assert_allclose(found.t_mean, 10.0)
    fit = tw.fit(hidden(spring), data, method=tw.Adam(1), progress=False)
    (part,) = learned_parts(fit.twin)
    assert isinstance(part, tw.MLP)
    assert part.units is not None
    np.testing.assert_allclose(part.units.value.spread, [v.std()], rtol=1e-3)
    np.testing.assert_allclose(part.units.value.output, rates[1:], rtol=1e-3)
    assert statistics_for(hidden(spring, scaling="off"), data, 2).x_std is None  # not needed, so not simulated


def test_the_physics_counts_only_while_it_is_near_the_data():
    """x'' = 9 x leaves the range of a measured x of size one after log(3 + ...) / 3, when v is about 3 x."""
    data = tw.Dataset.from_arrays(TS, [np.cos(3 * TS)])
    found: Any = statistics_for(hidden(lambda x, p: jnp.stack([x[1], p["k"] * x[0]])), data, 2)
    assert found.x_std is not None
    assert 1.0 < found.x_std[1] < 9.0
    assert float(found.x_std[0]) < 3.0


@pytest.mark.parametrize(
    ("physics", "message"),
    [
        (lambda x, p: jnp.stack([x[1], jnp.log(x[1] - p["k"])]), "cannot be simulated along the training data"),
        (lambda x, p: jnp.stack([x[1] - x[0], 0 * p["k"]]), r"hidden state 1 .* does not change"),
    ],
    ids=["fails", "still"],
)
def test_physics_without_a_size_warns_and_says_what_to_give(physics, message):
    data = tw.Dataset.from_arrays(TS[:20], [np.cos(3 * TS[:20])])
    with pytest.warns(UserWarning, match=message) as caught:
        found: Any = statistics_for(hidden(physics), data, 2)
    assert "Scaling(center, spread, output)" in str(caught[0].message)
    assert found.x_std is None or found.x_std[1] == 1.0
