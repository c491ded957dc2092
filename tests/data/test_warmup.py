"""The start of a run from its first samples: against closed forms, and inside fits, predictions and files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.data._noise import output_noise
from twinfold.data._rows import begun, known_batch, rows_of
from twinfold.data._warmup import DEFAULT_WARMUP

TS = np.linspace(0.0, 6.0, 121)
NAMES = ["a", "b", "c", "d"]


def rotation(x):
    return jnp.stack([x[1], -x[0]])


def circle(starts, noise=0.0, seed=0):
    """Exact rotations from these starts, and the same with noise."""
    a, b = np.asarray(starts).T[:, :, None]
    exact = np.stack([a * np.cos(TS) + b * np.sin(TS), b * np.cos(TS) - a * np.sin(TS)], -1)
    return exact, exact + noise * np.random.default_rng(seed).normal(size=exact.shape)


def starts_of(twin, data):
    """The estimated initial states of the runs, and the twin that has them."""
    found = begun(twin, data.runs)
    assert found is not None
    adapted, seen = found
    assert np.all(seen == (twin.warmup or DEFAULT_WARMUP))
    assert isinstance(adapted.initial, tw.Unknown)
    return np.stack([np.asarray(adapted.initial.value(run)) for run in range(len(data))]), adapted


def oscillator(**options):
    return tw.Twin(
        lambda x, p: jnp.stack([p["k"] * x[1], -x[0]]),
        params={"k": tw.Unknown(0.9, positive=True)},
        integrator=tw.RK4(2),
        **options,
    )


def test_the_estimate_is_the_most_probable_one():
    """For a linear system the posterior mean has a closed form."""
    _, noisy = circle([[1.0, 0.5], [-0.3, 0.8]], 0.05)
    data = tw.Dataset.from_arrays(TS, noisy)
    samples = 15
    twin = tw.Twin(rotation, integrator=tw.RK4(4), warmup=samples)
    states, _ = starts_of(twin, data)
    spread = noisy[:, :samples].std(axis=(0, 1))
    noise = output_noise(data.runs, samples, spread=spread, unknown=np.nan)
    turns = np.stack([[[np.cos(t), np.sin(t)], [-np.sin(t), np.cos(t)]] for t in TS[:samples]])
    for run, state in enumerate(states):
        a = (turns / (noise * spread)[:, None]).reshape(-1, 2)
        b = (noisy[run, :samples] / (noise * spread)).reshape(-1)
        guess = noisy[run, 0]
        h = a.T @ a + np.diag(1 / spread**2)
        expected = guess + np.linalg.solve(h, a.T @ (b - a @ guess))
        np.testing.assert_allclose(state, expected, atol=1e-6)


def test_a_hidden_state_is_found():
    exact, _ = circle([[1.0, 0.5], [-0.3, 0.8]])
    data = tw.Dataset.from_arrays(TS, exact[..., :1])
    twin = tw.Twin(
        rotation,
        observe=lambda x: x[:1],
        initial=lambda y: jnp.append(y, 0.0),
        integrator=tw.RK4(4),
        warmup=30,
    )
    found = tw.predict(twin, data)
    np.testing.assert_allclose(found.predicted[0], exact[..., :1], atol=2e-3)
    assert not found.mask[:, :30].any()
    assert found.mask[:, 30:].all()
    without = tw.Twin(rotation, observe=twin.observe, initial=twin.initial, integrator=tw.RK4(4))
    assert np.abs(tw.predict(without, data).predicted[0] - exact[..., :1]).max() > 0.4


def test_what_the_samples_do_not_tell_stays_at_the_guess():
    """The second state has no influence on the output."""
    twin = tw.Twin(
        lambda x: jnp.stack([-x[0], 0 * x[1]]),
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([0 * y[0], 7.0]),
        warmup=10,
    )
    data = tw.Dataset.from_arrays(TS, [np.exp(-TS)])
    np.testing.assert_allclose(starts_of(twin, data)[0], [[1.0, 7.0]], atol=1e-3)


def test_a_first_sample_that_is_missing_is_no_obstacle():
    exact, _ = circle([[1.0, 0.5]])
    holes = exact.copy()
    holes[0, 0] = np.nan
    holes[0, 2, 1] = np.nan
    twin = tw.Twin(rotation, integrator=tw.RK4(4), warmup=12)
    found = tw.predict(twin, tw.Dataset.from_arrays(TS, holes))
    np.testing.assert_allclose(found.predicted[0], exact, atol=1e-3)


def test_the_state_is_on_its_manifold():
    """Noise takes every sample off the unit circle; the estimated start is on it, and so is the prediction."""
    _, noisy = circle([[1.0, 0.0]], 0.05)
    unit = tw.Constraint(lambda x: x @ x - 1)
    twin = tw.Twin(rotation, constraint=unit, projection=tw.Newton(), integrator=tw.RK4(2), warmup=20)
    (start,), _ = starts_of(twin, tw.Dataset.from_arrays(TS, noisy))
    np.testing.assert_allclose(start @ start, 1.0, atol=1e-14)
    np.testing.assert_allclose(start, [1.0, 0.0], atol=0.03)


@pytest.fixture(scope="module")
def fitted():
    starts = np.random.default_rng(1).normal(size=(6, 2))
    exact, noisy = circle(starts, 0.05)
    train = tw.Dataset.from_arrays(TS, noisy[:4], names=NAMES)
    new = tw.Dataset.from_arrays(TS, noisy[4:], names=["e", "f"])
    energy = tw.Conserved(lambda x: x @ x)
    twin = oscillator(warmup=20, constraint=energy)
    fit = tw.fit(twin, train, valid=new, method=tw.LevenbergMarquardt(15), progress=False)
    return starts, exact, train, new, fit


def test_a_fit_estimates_the_start_of_each_run(fitted):
    starts, _, train, _, fit = fitted
    found = np.stack([np.asarray(fit.twin.initial.value(run)) for run in range(4)])
    first = np.stack([run.y[0] for run in train.runs])
    assert np.abs(found - starts[:4]).mean() < 0.4 * np.abs(first - starts[:4]).mean()
    np.testing.assert_allclose(fit.twin.parameters()["k"], 1.0, atol=5e-3)


def test_new_runs_are_predicted_from_their_first_samples(fitted):
    _, exact, train, new, fit = fitted
    both = tw.Dataset((*train.runs[:2], *new.runs), train.output_names)
    found = tw.predict(fit, both)
    np.testing.assert_array_equal(found.warmup, [0, 0, 20, 20])
    assert np.abs(found.predicted[0] - exact[[0, 1, 4, 5]]).mean() < 0.025
    # Runs of the fit keep what it found for them.
    # In a batch of another size, so the same up to rounding.
    np.testing.assert_allclose(found.predicted[:, :2], tw.predict(fit, train).predicted[:, :2], rtol=0, atol=1e-13)


def test_the_level_follows_from_the_estimated_start(fitted):
    *_, new, fit = fitted
    starts, adapted = starts_of(fit.twin, new)
    start = starts[1]
    simulated = adapted.simulate(start, TS)
    np.testing.assert_allclose(simulated.trajectory.initial_violation, 0, atol=1e-15)
    level = adapted.constraint.level(0.0, jnp.asarray(start), {})
    np.testing.assert_allclose(level, start @ start)
    assert abs(float(level[0]) - new.runs[1].y[0] @ new.runs[1].y[0]) > 1e-3


def test_a_fitted_start_survives_a_file(fitted, tmp_path):
    *_, new, fit = fitted
    about = tw.ModelInfo(states=("x", "v"), outputs=("x", "v"))
    tw.save_model(tmp_path / "a.twin", fit.twin, about=about)
    loaded = tw.load_model(tmp_path / "a.twin", oscillator(warmup=20, constraint=fit.twin.constraint))
    np.testing.assert_array_equal(tw.predict(loaded, new).predicted, tw.predict(fit.twin, new).predicted)


def test_another_recording_of_the_same_name_has_another_start(fitted, tmp_path):
    """Runs without names are called 0, 1, ...: so are those of every other file."""
    *_, train, new, fit = fitted
    named = tw.Dataset.from_arrays(TS, np.stack([run.y for run in new.runs]), names=NAMES[:2])
    expected = tw.predict(fit.twin, new)
    tw.save_model(tmp_path / "a.twin", fit.twin, about=tw.ModelInfo(states=("x", "v"), outputs=("x", "v")))
    loaded = tw.load_model(tmp_path / "a.twin", oscillator(warmup=20, constraint=fit.twin.constraint))
    for twin in (fit.twin, loaded):
        found = tw.predict(twin, named)
        np.testing.assert_array_equal(found.warmup, [20, 20])
        np.testing.assert_array_equal(found.predicted, expected.predicted)
    np.testing.assert_array_equal(tw.predict(loaded, train).warmup, 0)


def test_a_validation_set_of_the_same_names_is_validated_on_its_own_starts(fitted):
    *_, train, new, fit = fitted
    named = tw.Dataset.from_arrays(TS, np.stack([run.y for run in new.runs]), names=NAMES[:2])
    twin = oscillator(warmup=20, constraint=fit.twin.constraint)
    again = tw.fit(twin, train, valid=named, method=tw.LevenbergMarquardt(15), progress=False)
    np.testing.assert_allclose(again.scores, fit.scores, rtol=1e-12)


def test_what_a_group_has_is_not_estimated_again():
    """Known: the rate of each machine. New: the gain of each run."""
    rates, gains = {"m": 0.5, "n": 1.5}, [1.0, 2.0, 3.0, 1.5]
    groups = ["m", "n", "m", "n"]
    ys = [gain * np.exp(-rates[group] * TS) for gain, group in zip(gains, groups, strict=True)]
    twin = tw.Twin(
        lambda x, p: -p["rate"] * x,
        params={
            "rate": tw.Unknown(1.0, positive=True, per_group=True),
            "gain": tw.Unknown(1.0, positive=True, per_run=True),
        },
        observe=lambda x, p: p["gain"] * x,
        initial=lambda y: jnp.ones(1),
        integrator=tw.RK4(1),
    )
    known = tw.Dataset.from_arrays(TS, ys[:3], names=["a", "b", "c"], groups=groups[:3])
    fit = tw.fit(twin, known, method=tw.LevenbergMarquardt(20), progress=False)
    new = tw.Dataset.from_arrays(TS, ys[3:], names=["d"], groups=["n"])
    rows = rows_of(fit.twin, new)
    adapted = rows.adapt(fit.twin)
    assert adapted.parameters(0)["rate"] == fit.twin.parameters("b")["rate"]
    np.testing.assert_allclose(adapted.parameters(0)["gain"], 1.5, rtol=1e-3)
    with pytest.raises(ValueError, match="no parameters of run 'd'"):
        known_batch(fit.twin, new)


@pytest.mark.slow
def test_each_seed_has_starts_of_its_own(fitted):
    *_, train, new, _ = fitted
    fit = tw.fit(oscillator(warmup=5), train, seeds=2, method=tw.LevenbergMarquardt(1), progress=False)
    moved = jax.tree.map(lambda leaf: leaf.at[1].add(0.1), fit.params)
    two = tw.predict(tw.Fit(**{**vars(fit), "params": moved}), new).predicted
    one = tw.predict(tw.Fit(**{**vars(fit), "params": moved}).twin_of(1), new).predicted
    np.testing.assert_allclose(two[1], one[0], atol=1e-10)


def test_a_warmup_is_a_number_of_samples():
    with pytest.raises(ValueError, match="at least one"):
        tw.Twin(rotation, warmup=0)
