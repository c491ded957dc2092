"""A learned part of the battery is unchanged where it was trained, and zero far from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.systems import Interaction, battery, charged, fade_outside


@pytest.fixture(scope="module", params=["input", pytest.param("state", marks=pytest.mark.slow)])
def trained(request):
    """A twin with drawn weights along a discharge at 2 A from 24 degrees, and the data."""
    network = tw.Network(3, 1, width=4, depth=1)
    twin = battery(positive=Interaction(network, inputs=("x", "i", "T")), temperature=request.param)
    twin = twin.initialise(jax.random.key(0), states=7, inputs=2)
    ts = np.arange(0.0, 601.0, 20.0)
    w = np.stack([np.where(ts < 30, 0.0, 2.0), np.full_like(ts, 24.0)], axis=1)
    data = tw.Dataset.from_arrays(ts, [np.full(len(ts), 3.8)], inputs=[w])
    return twin, fade_outside(twin, data), data


def relations(twin):
    return getattr(twin.algebraic, "relations", twin.algebraic)


def learned(twin, x, i, celsius):
    part = relations(twin).positive
    arguments = jnp.array(x), jnp.array(i), jnp.array(celsius)
    zero = jnp.zeros(1)
    return float(part(*arguments, zero))


@pytest.mark.slow
def test_the_twin_is_the_same_along_its_data_and_the_physics_far_away(trained):
    twin, cautious, data = trained
    run = data.runs[0]
    p = twin.parameters()
    x0 = charged(jnp.array(0.6), p)
    x0 = x0 if relations(twin) is twin.algebraic else jnp.append(x0, 24.0)
    before, after = (np.asarray(each.simulate(x0, run.ts, run.w).ys) for each in (twin, cautious))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert abs(learned(twin, 0.5, 1.0, 60.0)) > 1e-3
    for far in ((0.5, 1.0, 60.0), (0.5, 6.0, 24.0), (0.95, 1.0, 24.0)):
        assert learned(cautious, *far) == 0.0


def test_a_part_without_a_network_has_no_region(trained):
    assert relations(trained[1]).negative.region is None


def test_other_twins_and_margins_are_refused(trained):
    twin, _, data = trained
    with pytest.raises(ValueError, match="margin=0"):
        fade_outside(twin, data, margin=0.0)
    with pytest.raises(ValueError, match="`battery` built"):
        fade_outside(tw.Twin(lambda x: -x), data)
    own = battery(unknown={"q_max": tw.Unknown(13200.0, positive=True, per_group=True)}).for_runs(("other",))
    with pytest.raises(ValueError, match="not fitted to all of these runs"):
        fade_outside(own, data)
