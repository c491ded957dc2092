"""Switched loads: where the moment is inserted, what it changes in a simulation, and which rows are left out."""

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.data import with_switches, without_tail


def dataset(ts, current, voltage=None, celsius=20.0):
    ts, current = np.asarray(ts, float), np.asarray(current, float)
    y = np.full(len(ts), 4.0) if voltage is None else np.asarray(voltage, float)
    w = np.stack([current, np.linspace(celsius, celsius + 1, len(ts))], axis=1)
    return tw.Dataset((tw.Run("a", ts, y, w),), ("V",), ("I", "T"))


def test_a_switch_is_one_regular_interval_before_the_row_that_shows_it():
    data, notes = with_switches(dataset([0, 10, 20.7, 30.7, 40.7], [0, 0, 2, 2, 2]), "I", change=0.1)
    run = data.runs[0]
    assert run.w is not None
    np.testing.assert_allclose(run.ts, [0, 10, 10.7, 20.7, 30.7, 40.7])
    np.testing.assert_allclose(run.w[:, 0], [0, 0, 2, 2, 2, 2])
    np.testing.assert_allclose(run.w[2, 1], 20.25)  # other inputs are held
    np.testing.assert_array_equal(np.isnan(run.y[:, 0]), [False, False, True, False, False, False])
    assert notes == ("a: 1 row inserted, where I was switched between two rows (the first at t = 10.7).",)


def test_a_switch_in_a_regular_log_is_right_after_the_row_before():
    data, _ = with_switches(dataset([0, 10, 20, 30], [0, 2, 2, 0]), "I", change=0.1)
    np.testing.assert_allclose(data.runs[0].ts, [0, 0.2, 10, 20, 20.2, 30])


def test_noise_and_logged_switches_change_nothing():
    noisy, notes = with_switches(dataset([0, 10, 20, 30], [2.0, 2.05, 1.96, 2.0]), "I", change=0.1)
    assert notes == ()
    assert len(noisy.runs[0].ts) == 4
    logged, notes = with_switches(dataset([0, 10, 10.001, 20, 30], [0, 0, 2, 2, 2]), "I", change=0.1)
    assert notes == ()
    assert len(logged.runs[0].ts) == 5


def test_the_inserted_moment_gives_the_charge_that_was_passed():
    # dx/dt = w, switched on at t = 10.7: without the moment, the count lacks a whole interval.
    count = tw.Twin(lambda w: w[:1], integrator=tw.Euler())
    plain = dataset([0, 10, 20.7, 30.7], [0, 0, 2, 2])
    with_moment, _ = with_switches(plain, "I", change=0.1)
    ends = []
    for data in (plain, with_moment):
        run = data.runs[0]
        ends.append(float(count.simulate(jnp.zeros(1), run.ts, run.w).xs[-1, 0]))
    np.testing.assert_allclose(ends, [20.0, 40.0])


def test_rows_after_the_load_are_left_out():
    data, notes = without_tail(dataset([0, 1, 2, 3, 4], [0, 2, 0.0, 2, 0.01], [4, 3, 3.5, 3, 3.6]), "I", idle=0.1)
    np.testing.assert_allclose(data.runs[0].ts, [0, 1, 2, 3])  # a rest within the load stays
    assert notes == ("a: 1 row left out after the end of the load at t = 3.",)
    again, notes = without_tail(data, "I", idle=0.1)
    assert notes == ()
    assert again.fingerprint() == data.fingerprint()


def test_what_cannot_be_done_is_said():
    data = dataset([0, 1, 2], [0, 0.05, 0])
    with pytest.raises(ValueError, match="no input 'J'"):
        with_switches(data, "J", change=0.1)
    with pytest.raises(ValueError, match="change=0"):
        with_switches(data, "I", change=0.0)
    with pytest.raises(ValueError, match=r"at most 0\.05\. Leave the run out"):
        without_tail(data, "I", idle=0.1)
