"""A synthetic record: motor, elastic shaft, load. The speed of the motor is measured; twist and load speed are hidden.

The torque is held between samples, the recording begins in motion, and the measured speed has noise.
"""

import numpy as np
from scipy.integrate import solve_ivp

from twinfold_studies.real.table import Records

MOTOR, LOAD = 0.02, 0.05  # [kg m^2]
STIFFNESS, DAMPING = 8.0, 0.05  # of the shaft [N m/rad], [N m s/rad]
DT, HELD, BEFORE = 0.02, 20, 150  # [s]; samples for which a torque is held; samples before the recording
NOISE = 0.02  # of the spread of the speed


def friction(speed: float) -> float:
    """The torque of the load's friction, which the project has to learn: Coulomb, Stribeck and viscous [N m]."""
    stribeck = 0.15 * np.tanh(speed / 0.15) * np.exp(-((speed / 1.5) ** 2))
    return 0.35 * np.tanh(speed / 0.4) + stribeck + 0.02 * speed


def rate(x: np.ndarray, torque: float) -> np.ndarray:
    """d/dt of motor speed, twist of the shaft and speed of the load."""
    shaft = STIFFNESS * x[1] + DAMPING * (x[0] - x[2])
    return np.array([(torque - shaft) / MOTOR, x[0] - x[2], (shaft - friction(x[2])) / LOAD])


def record(samples: int = 1000, seed: int = 0) -> Records:
    """The record "drive": t [s], torque [N m], speed of the motor [rad/s]."""
    rng = np.random.default_rng(seed)
    total = samples + BEFORE
    torque = np.repeat(rng.uniform(-1.2, 1.2, total // HELD + 1), HELD)[:total]
    states = [np.zeros(3)]
    for held in torque[:-1]:
        out = solve_ivp(lambda _, x, held=held: rate(x, held), (0, DT), states[-1], rtol=1e-9, atol=1e-10)
        states.append(out.y[:, -1])
    speed = np.stack(states)[BEFORE:, 0]
    measured = speed + NOISE * speed.std() * rng.normal(size=samples)
    return {"drive": {"t": DT * np.arange(samples), "torque": torque[BEFORE:], "speed": measured}}


def pair(draw: int) -> Records:
    """The record of another draw, and a test record."""
    return {name: record(seed=100 + 2 * draw + index)["drive"] for index, name in enumerate(("record", "test"))}
