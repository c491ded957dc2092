"""Synthetic records on which defaults are chosen: a room, a slide, two tanks, a swing.

Each has what a measured record has and a model lacks: noise, and a small effect that is neither in the physics nor in
the learned part. The test record is another one, as long as the first, with other inputs. There is a slide that has
worn until then, a record of the tanks that is short, and one whose sensor drifts. All but the swing have hidden states.
"""

from collections.abc import Callable

import numpy as np

from twinfold_studies.real.table import Record, Records

SUBSTEPS = 20  # of a Runge-Kutta step in each sample
Rate = Callable[[np.ndarray, np.ndarray], np.ndarray]


def room(seed: int) -> Records:
    """Air and envelope of a room, 180 half hours: T_in measured; the sun warms the envelope, more so when it is low."""

    def rate(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        outdoors, heat, sun, wind = w
        inwards, outwards = (x[1] - x[0]) / 6.0, (x[1] - outdoors) * (1 + wind) / 25.0
        warming = 1.2 * sun * (1 - 0.5 * sun)
        return np.array([(inwards + heat + 0.4 * sun) / 0.4, (warming - inwards - outwards) / 2.5])

    def one(rng: np.random.Generator, test: bool) -> Record:
        hours = 0.5 * np.arange(180)
        sun = np.clip(np.sin(2 * np.pi * (hours - 7) / 24), 0, None) * np.repeat(rng.uniform(0.3, 1.2, 23), 8)[:180]
        outdoors = 8 + 5 * np.sin(2 * np.pi * (hours - 10) / 24) + _walk(rng, 180, 0.3)
        heat = np.repeat(rng.choice([0.0, 0.4, 0.8], 30), 6)
        wind = np.clip(_walk(rng, 180, 0.03), -0.3, 0.3)  # not measured
        states = _simulate(rate, np.array([20.0, 18.0]), np.stack([outdoors, heat, sun, wind], 1), 0.5)
        noisy = states[:, 0] + 0.03 * rng.normal(size=180)
        return {"t": hours, "T_out": outdoors, "heat": heat, "sun": sun, "T_in": noisy}

    return _pair(one, seed)


def slide(seed: int, wear: float = 0.0) -> Records:
    """A positioned mass, 1000 samples: position measured; the friction is unknown and varies a little with position.

    `wear`, by which its part that does not grow with the speed is more in the test record.
    """

    def rate(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        v = x[1]
        dry = (20 + 8 * np.exp(-((v / 0.05) ** 2))) * np.tanh(v / 5e-3)
        friction = dry * w[1] + 180 * v + 60 * np.tanh(v / 0.15)
        return np.array([v, (35 * w[0] - friction * (1 + 0.05 * np.sin(12 * x[0]))) / 95.0])

    def one(rng: np.random.Generator, test: bool) -> Record:
        ts, x, xs, volts = 0.02 * np.arange(1000), np.zeros(2), [], []
        goals = np.repeat(rng.uniform(-0.25, 0.25, 20), 50)
        goal, speed = 0.0, 0.0
        for target in goals:  # a controller follows a smoothed path: the voltage depends on the position
            speed += 0.02 * (20 * (target - goal) - 8 * speed)
            goal += 0.02 * speed
            volt = np.clip(160 * (goal - x[0]) + 12 * (speed - x[1]), -10, 10)
            xs.append(x[0])
            volts.append(volt)
            worn = 1 + wear * test
            x = _simulate(rate, x, np.array([[volt, worn], [volt, worn]]), 0.02)[-1]
        return {"t": ts, "voltage": np.array(volts), "position": np.array(xs) + 2e-4 * rng.normal(size=1000)}

    return _pair(one, seed)


def tanks(seed: int, samples: int = 600, drift: float = 0.0) -> Records:
    """Two tanks in a row: the level of the lower one measured; the outflow of the upper one unknown.

    `drift` of the level's sensor: the size of a slow random walk, relative to the spread of the level.
    """

    def rate(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        upper, lower = np.maximum(x, 0.0)
        between = 0.9 * np.sqrt(upper) / (1 + 0.4 * np.exp(-2 * upper)) + 0.05 * upper
        return np.array([w[0] - between, between - 0.8 * np.sqrt(lower) - 0.01 * lower])

    def one(rng: np.random.Generator, test: bool) -> Record:
        ts, pump = 0.25 * np.arange(samples), np.repeat(rng.uniform(0.3, 1.6, samples // 25), 25)
        seen = pump * (1 + 0.01 * rng.normal(size=samples))  # the flow meter has noise too
        lower = _simulate(rate, np.array([1.0, 1.2]), pump[:, None], 0.25)[:, 1]
        wrong = 0.02 * rng.normal(size=samples)
        if drift:
            wrong += _walk(rng, samples, 0.14 * drift, keep=0.99)
        return {"t": ts, "pump": seen, "level": lower + lower.std() * wrong}

    return _pair(one, seed)


def swing(seed: int) -> Records:
    """A pendulum that swings out, 400 samples: angle and velocity measured; friction in the bearing and of the air."""

    def rate(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        angle, velocity = x
        friction = 0.03 * np.tanh(velocity / 0.05) + 0.02 * velocity * abs(velocity) + 0.01 * velocity
        return np.array([velocity, -6.5 * np.sin(angle) * (1 + 0.01 * angle**2) - friction])

    def one(rng: np.random.Generator, test: bool) -> Record:
        start = np.array([rng.uniform(0.8, 1.5), 0.0])
        states = _simulate(rate, start, np.zeros((400, 1)), 0.05)
        noisy = states + 0.01 * states.std(0) * rng.normal(size=states.shape)
        return {"t": 0.05 * np.arange(400), "theta": noisy[:, 0], "omega": noisy[:, 1]}

    return _pair(one, seed)


def _pair(one: Callable[[np.random.Generator, bool], Record], seed: int) -> Records:
    """A record and another one for the test; `one` is told which."""
    return {name: one(np.random.default_rng([seed, test]), bool(test)) for test, name in enumerate(("record", "test"))}


def _walk(rng: np.random.Generator, samples: int, size: float, keep: float = 0.95) -> np.ndarray:
    """A random walk that returns to zero."""
    values = np.zeros(samples)
    for index in range(1, samples):
        values[index] = keep * values[index - 1] + size * rng.normal()
    return values


def _simulate(rate: Rate, start: np.ndarray, inputs: np.ndarray, dt: float) -> np.ndarray:
    """The states at all samples; inputs are held."""
    states, h = [start], dt / SUBSTEPS
    for w in inputs[:-1]:
        x = states[-1]
        for _ in range(SUBSTEPS):
            k1 = rate(x, w)
            k2 = rate(x + h / 2 * k1, w)
            k3 = rate(x + h / 2 * k2, w)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3, w))
        states.append(x)
    return np.stack(states)
