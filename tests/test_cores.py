"""Seeds shared between cores are the same seeds: training does not depend on how many there are."""

import jax.numpy as jnp
import numpy as np

import twinfold as tw
from twinfold.train.shares import in_shares, shares_for


def fitted(cores):
    ts = np.linspace(0.0, 2.0, 21)
    runs = np.stack([np.stack([a * np.cos(ts), -a * np.sin(ts)], 1) for a in (0.5, 1.0, 1.5)])
    data = tw.Dataset.from_arrays(ts, runs)
    twin = tw.hrpinn(lambda x: jnp.stack([x[1], 0 * x[1]]), tw.MLP(adds_to=[1], width=5, depth=1))
    method = (tw.Adam(20, rate=1e-2, batch_size=2), tw.LevenbergMarquardt(4))
    return tw.fit(twin, data, valid=data, seeds=3, method=method, progress=False, cores=cores)


def test_a_fit_is_the_same_on_one_core_and_on_two():
    one, two = fitted(1), fitted(2)
    assert np.isfinite(one.scores).all()
    assert len(set(one.scores)) == 3
    for name in ("loss", "score", "rate"):
        assert one.history[name].shape == (24, 3)
        np.testing.assert_allclose(two.history[name], one.history[name], rtol=1e-7)
    np.testing.assert_allclose(two.scores, one.scores, rtol=1e-7)


def test_shares_of_uneven_number_come_back_in_order():
    def double(own):
        return 2 * own, own[None]

    own = jnp.arange(7.0)
    for together in (True, False):
        new, rows = in_shares(double, own, 3, together=together)
        np.testing.assert_array_equal(new, 2 * own)
        np.testing.assert_array_equal(rows, own[None])


def test_no_more_shares_than_seeds():
    assert shares_for(2, 16) == 2
    assert shares_for(25, 4) == 4
    assert shares_for(25, None) >= 1
