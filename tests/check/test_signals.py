"""Noise, outliers and limits of single signals, of which everything is known: they were made here."""

import numpy as np
import pytest

from twinfold.check._channels import find_sentinels
from twinfold.check._outliers import find_outliers
from twinfold.check._saturation import find_limits
from twinfold.data._noise import estimate_noise, quantum_of

N = 600
K = np.arange(N)
T = 0.01 * K
NOISE = np.random.default_rng(0).normal(size=N)
BINARY = np.sign(np.random.default_rng(1).normal(size=N))
STEPS = np.repeat(BINARY[::10], 10)
CHIRP = np.sin(2 * np.pi * np.cumsum(np.linspace(1 / 60, 1 / 4, N)))
RESONANCE = CHIRP / (1 + ((np.linspace(1 / 60, 1 / 4, N) - 1 / 9) / 0.01) ** 2)
CHARGE = 1 - K / N * 0.999
KNEE = 3.5 + 0.3 * CHARGE + 0.05 * np.log(CHARGE) - 0.3 * np.exp(-30 * CHARGE)


def first_order(u):
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.7 * y[k - 1] + 0.3 * u[k - 1]
    return y


def smooth(x):
    return x * x * (3 - 2 * x)


ORDINARY = {
    "slow": np.sin(2 * np.pi * K / 50),
    "six samples a period": np.sin(2 * np.pi * K / 6),
    "2.3 samples a period": np.sin(2 * np.pi * K / 2.3),
    "two frequencies": np.sin(2 * np.pi * K / 4.2) + np.cos(2 * np.pi * K / 7.7),
    "chirp": CHIRP,
    "resonance peak": RESONANCE,
    "decaying": np.exp(-K / 20) * np.cos(2 * np.pi * K / 5),
    "knee": KNEE,
    "response to steps": first_order(STEPS),
    "sawtooth": (K % 13) / 13,
    "cusps": np.abs(np.sin(2 * np.pi * K / 17)),
    "a step": np.where(K > 300, 2.0, 0.0),
    "constant": np.ones(N),
}


@pytest.mark.parametrize("name", ORDINARY)
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_no_ordinary_signal_has_outliers(name, noise):
    assert find_outliers(T, ORDINARY[name] + noise * NOISE).tolist() == []


@pytest.mark.parametrize("name", ["slow", "knee", "a step", "constant"])
def test_spikes_are_found_in_them(name):
    signal = ORDINARY[name] + 0.01 * NOISE
    signal[[37, 205, 444]] += [1.2, -1.5, 3.0]
    assert find_outliers(T, signal).tolist() == [37, 205, 444]
    signal[100] = np.nan
    assert find_outliers(T, signal).tolist() == [37, 205, 444]


def test_spikes_are_found_beside_steps_and_in_fast_oscillations():
    response = first_order(STEPS) + 0.01 * NOISE
    response[[58, 208]] += [1.0, -1.0]
    assert find_outliers(T, response, STEPS[:, None]).tolist() == [58, 208]
    fast = ORDINARY["six samples a period"] + 0.01 * NOISE
    fast[[200, 333]] += [-5.0, 8.0]
    assert find_outliers(T, fast).tolist() == [200, 333]


def test_the_response_to_a_pulse_of_the_input_is_not_an_outlier_but_a_spike_beside_it_is():
    current = np.zeros(N)
    current[50::97] = 3.0
    voltage = 4 - 0.1 * current * (1 + K / N) + 0.001 * NOISE  # a resistance that doubles
    assert len(find_outliers(T, voltage)) == 6
    assert find_outliers(T, voltage, current[:, None]).tolist() == []
    voltage[300] += 0.5
    assert find_outliers(T, voltage, current[:, None]).tolist() == [300]


def test_a_rounded_signal_at_rest_has_no_outliers():
    assert find_outliers(T, np.round(20 + 0.06 * NOISE, 1)).tolist() == []
    flicker = np.where(NOISE > 2.5, 11.3, 11.0)  # one step of a coarse sensor
    assert find_outliers(T, flicker).tolist() == []
    # A sensor whose last step is ten times as large as the others.
    scale = np.concatenate([[0.0], 1 + 0.1 * np.arange(60)])
    level = np.clip(60 - K // 8, 0, 60) - (NOISE > 2)
    uneven = scale[np.clip(level + (level == 0) * (NOISE < -2), 0, 60)]
    assert find_outliers(T, uneven).tolist() == []
    uneven[100] = 2.0
    assert find_outliers(T, uneven).tolist() == [100]


@pytest.mark.parametrize(
    "name",
    ["slow", "six samples a period", "2.3 samples a period", "two frequencies", "chirp", "resonance peak", "knee"],
)
def test_noise_is_not_inflated_by_the_signal(name):
    assert estimate_noise(T, ORDINARY[name] + 0.01 * NOISE) == pytest.approx(0.01, rel=0.2)


def test_noise_beside_an_input_that_jumps_at_every_sample():
    response = first_order(BINARY) + 0.01 * NOISE
    assert estimate_noise(T, response, BINARY[:, None]) == pytest.approx(0.01, rel=0.2)
    assert estimate_noise(T, response) > 0.05  # without the input, its effect cannot be told from noise


def test_noise_at_any_sampling_with_spikes_and_of_rounding():
    ts = np.sort(np.random.default_rng(0).uniform(0, 10, N))
    noisy = np.sin(3 * ts) + 0.05 * NOISE
    noisy[::50] += 3.0
    assert estimate_noise(ts, noisy) == pytest.approx(0.05, rel=0.2)
    assert estimate_noise(ts, np.sin(3 * ts)) < 1e-4
    assert np.isnan(estimate_noise(ts[:5], ts[:5]))
    rounded = np.round(np.sin(T), 2)
    assert quantum_of(rounded) == pytest.approx(0.01)
    assert estimate_noise(T, rounded) == pytest.approx(0.01 / np.sqrt(12), rel=0.2)
    assert quantum_of(NOISE) == 0


CLIPPED = {
    "sine": np.clip(np.sin(2 * np.pi * K / 40), -1, 0.8),
    "noisy sine": np.clip(np.sin(2 * np.pi * K / 40) + 0.02 * NOISE, -2, 0.8),
    "finely rounded": np.round(np.clip(np.sin(2 * np.pi * K / 40), -1, 0.8), 3),
    "random walk": np.clip(np.sin(K / 20) + np.cumsum(NOISE) / 40, -9, 0.8),
}
DWELL = np.concatenate(
    [np.zeros(50), smooth(np.linspace(0, 1, 50)), np.ones(50), 1 - smooth(np.linspace(0, 1, 50))] * 3
)
NOT_CLIPPED = {
    "binary": BINARY,
    "steps": STEPS,
    "three levels": np.repeat(np.random.default_rng(0).integers(-1, 2, N // 5), 5) + 0.0,
    "levels": np.random.default_rng(0).integers(0, 5, N) / 4 + 1,
    "at rest between movements": DWELL + 0.1,
    "at rest, rounded": np.round(DWELL + 0.1, 3),
    "ramps and holds": np.interp(K % 200, [0, 50, 60, 110, 120, 200], [0.1, 0.1, 1, 1, 0.1, 0.1]),
    "off at zero": np.maximum(np.sin(2 * np.pi * K / 40) + 0.02 * NOISE, 0),
    "rounded sine": np.round(np.sin(2 * np.pi * K / 40), 1),
    "noise": NOISE,
    "settling": np.where(K < 50, 0.2, 1 - 0.8 * np.exp(-(K - 50) / 20)),
} | ORDINARY


@pytest.mark.parametrize("name", CLIPPED)
def test_a_limit_is_found(name):
    for sign in (1, -1):
        (limit,) = find_limits([sign * CLIPPED[name]])
        assert limit.value == pytest.approx(0.8 * sign)
        assert limit.upper == (sign > 0)
        assert limit.share == pytest.approx(np.mean(CLIPPED[name] == 0.8))


@pytest.mark.parametrize("name", NOT_CLIPPED)
def test_no_limit_where_there_is_none(name):
    assert find_limits([NOT_CLIPPED[name]]) == []


def test_codes_for_missing_values_are_beyond_any_signal():
    coded = np.sin(T)
    coded[[5, 60, 61]] = -999.0
    coded[[7, 8]] = 1e6
    assert find_sentinels(coded) == {-999.0: 3, 1e6: 2}
    # A rounded signal that is mostly at rest comes back to the same values far from it.
    assert find_sentinels(np.round(np.where(K % 100 < 10, 5 * smooth((K % 100) / 10), 0.0), 1)) == {}
    assert find_sentinels(np.where(STEPS > 0, 500.0, 0.0)) == {}
