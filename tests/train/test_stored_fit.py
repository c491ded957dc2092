"""A fit in a file: every seed comes back bit for bit, and a file of something else is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.io._archive import read_arrays, write_arrays
from twinfold.train._stored_fit import load_fit, save_fit

TS = np.linspace(0, 2, 41)


def decay(width: int = 3) -> tw.Twin:
    return tw.Twin(
        tw.GreyBox(lambda x, p: -p["k"] * x, residual=tw.MLP(width=width, depth=1)),
        params={"k": tw.Unknown(1.0, positive=True)},
    )


def damped(**options) -> tw.Twin:
    """Position measured, velocity hidden."""
    return tw.Twin(
        tw.GreyBox(
            lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]), residual=tw.MLP(states=[1], adds_to=[1], width=3, depth=1)
        ),
        params={"k": tw.Unknown(1.0, positive=True)},
        observe=lambda x: x[:1],
        **options,
    )


def data() -> tw.Dataset:
    return tw.Dataset.from_arrays(TS, np.exp(-0.7 * TS)[None, :, None] * np.array([1.0, 2.0])[:, None, None])


FITS = {
    "networks": (decay, {"seeds": 3, "method": tw.LevenbergMarquardt(3)}),
    "only parameters": (decay, {"trainable": "parameters", "method": tw.LevenbergMarquardt(2)}),
    "estimated weights": (
        decay,
        {"seeds": 2, "method": tw.LevenbergMarquardt(2), "loss": tw.Loss(l2="auto", correlation="auto")},
    ),
    "starts of runs": (
        lambda: damped(initial=lambda y: jnp.stack([y[0], -0.7 * y[0]]), warmup=5),
        {"seeds": 2, "method": tw.LevenbergMarquardt(2)},
    ),
    "starts of windows": (
        lambda: damped(initial=lambda y: jnp.stack([y[0], -0.7 * y[0]])),
        {"seeds": 2, "method": tw.LevenbergMarquardt(2), "window": 11},
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_every_seed_comes_back_bit_for_bit(name, tmp_path):
    build, options = FITS[name]
    fit = tw.fit(build(), data(), progress=False, **options)
    save_fit(tmp_path / "seeds.npz", fit)
    found = load_fit(tmp_path / "seeds.npz", fit.twin)
    for field in ("seeds", "failures", "seconds", "interrupted", "parameters"):
        assert getattr(found, field) == getattr(fit, field)
    np.testing.assert_array_equal(found.scores, fit.scores)
    assert found.history.keys() == fit.history.keys()
    for column, values in fit.history.items():
        np.testing.assert_array_equal(found.history[column], values)
    for tree in ("params", "frozen", "regions", "weights"):
        here, there = getattr(fit, tree), getattr(found, tree)
        assert jax.tree.structure(here) == jax.tree.structure(there)
        for one, other in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    for index in range(len(fit.seeds)):
        assert bool(eqx.tree_equal(found.twin_of(index), fit.twin_of(index)))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    fit = tw.fit(decay(), data(), seeds=2, method=tw.LevenbergMarquardt(2), progress=False)
    path = tmp_path_factory.mktemp("fit") / "seeds.npz"
    save_fit(path, fit)
    return path, fit


def test_failed_seeds_are_still_failed(stored, tmp_path):
    path, fit = stored
    arrays = read_arrays(path)
    worst = 1 - fit.best
    arrays["failed"][worst] = True
    write_arrays(tmp_path / "seeds.npz", arrays)
    assert list(load_fit(tmp_path / "seeds.npz", fit.twin).failures) == [fit.seeds[worst]]


def test_the_fit_of_another_twin_is_refused(stored):
    path, fit = stored
    for other in (fit.twin_of(1 - fit.best), tw.fit(decay(4), data(), method=tw.Adam(1), progress=False).twin):
        with pytest.raises(ValueError, match="another model"):
            load_fit(path, other)


def test_damaged_files_are_refused(stored, tmp_path):
    path, fit = stored
    content, damaged, rng = path.read_bytes(), tmp_path / "seeds.npz", np.random.default_rng(0)
    for length in rng.integers(0, len(content) - 1, 20):
        damaged.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"."):
            load_fit(damaged, fit.twin)
    for name in read_arrays(path):
        without = read_arrays(path)
        del without[name]
        write_arrays(damaged, without)
        if name.startswith("history"):
            continue  # only a curve is missing then
        with pytest.raises(ValueError, match=r"not that of a fit|another model"):
            load_fit(damaged, fit.twin)
