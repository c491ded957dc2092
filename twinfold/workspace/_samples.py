"""Synthetic measurements of the project templates: the true system, simulated, with noise."""

from collections.abc import Callable
from importlib import resources

import numpy as np

Rate = Callable[[np.ndarray, float], np.ndarray]
SUBSTEPS = 5  # integration steps between two samples


def pendulum_rate(x: np.ndarray, push: float) -> np.ndarray:
    """The true pendulum: that of the template, with its drag and a mass of 0.8 kg."""
    position, velocity = x[:2], x[2:]
    drag = -(0.08 + 0.15 * np.linalg.norm(velocity)) * velocity
    free = np.array([push / 0.8, -9.81]) + drag
    rod = (free @ position + velocity @ velocity) / (position @ position)
    return np.concatenate([velocity, free - rod * position])


def motor_rate(x: np.ndarray, voltage: float) -> np.ndarray:
    """The true motor: that of the template, with dry and viscous friction and a resistance of 1.3 ohm."""
    current, speed = x
    friction = 0.012 * np.tanh(speed / 8) * (1 + 0.5 * np.exp(-((speed / 30) ** 2))) + 3e-5 * speed
    return np.array([(voltage - 1.3 * current - 0.05 * speed) / 5e-3, (0.05 * current - friction) / 5e-5])


def tank_rate(x: np.ndarray, pump: float) -> np.ndarray:
    """The true tanks: those of the template, with an outlet that widens above 0.15 m and a valve of 1.4e-3."""
    head = x[0] - x[1]
    between = 1.4e-3 * head / np.sqrt(np.sqrt(head**2 + 1e-4))
    level = max(x[1], 0.0)
    outlet = 6e-4 * np.sqrt(level + 1e-6) * (1 + 0.8 / (1 + np.exp(-(level - 0.15) / 0.02)))
    return np.array([(1e-3 * pump - between) / 0.05, (between - outlet) / 0.04])


def pendulum() -> str:
    """Ten swings of four seconds, released at rest; the position has a noise of 3 mm."""

    def start(rng: np.random.Generator) -> np.ndarray:
        angle = rng.uniform(0.5, 1.6) * rng.choice([-1, 1])
        return np.array([1.2 * np.sin(angle), -1.2 * np.cos(angle), 0.0, 0.0])

    return _table(pendulum_rate, start, {"push": (-3.0, 3.0, 0.0)}, {"x": 0, "y": 1}, dt=0.05, hold=12, noise=3e-3)


def motor() -> str:
    """Ten runs of 0.24 s under steps of the voltage; the current has a noise of 20 mA."""
    names = {"voltage": (-12.0, 12.0, 0.0)}
    return _table(motor_rate, lambda rng: np.zeros(2), names, {"current": 0}, dt=3e-3, hold=20, noise=2e-2)


def tank() -> str:
    """Ten runs of 800 s; both levels have a noise of 2 mm, and one value in ten is missing."""

    def start(rng: np.random.Generator) -> np.ndarray:
        return np.array([rng.uniform(0.1, 0.4), rng.uniform(0.02, 0.1)])

    levels = {"level1": 0, "level2": 1}
    return _table(tank_rate, start, {"pump": (0.0, 0.5, 0.1)}, levels, dt=10.0, hold=12, noise=2e-3, missing=0.1)


def battery() -> str:
    """Ten discharges of 1 to 3 A from a file, since the simulation of a cell needs JAX; noise of 2 mV and 0.05 K."""
    file = resources.files("twinfold.workspace") / "templates" / "battery" / "sample.csv"
    return file.read_text(encoding="utf-8")


SAMPLES: dict[str, Callable[[], str]] = {"pendulum": pendulum, "motor": motor, "tank": tank, "battery": battery}


def _table(
    rate: Rate,
    start: Callable[[np.random.Generator], np.ndarray],
    inputs: dict[str, tuple[float, float, float]],
    outputs: dict[str, int],
    *,
    dt: float,
    hold: int,
    noise: float,
    missing: float = 0.0,
    runs: int = 10,
    samples: int = 81,
) -> str:
    """The text of a CSV file: an input that is redrawn every `hold` samples, and the measured states with noise."""
    rng = np.random.default_rng(0)
    ((name, (low, high, first)),) = inputs.items()
    lines = [",".join(["run", "t", name, *outputs])]
    for run in range(runs):
        x, w = start(rng), first
        for sample in range(samples):
            if sample % hold == 0 and sample:
                w = round(rng.uniform(low, high), 3)
            measured = [x[index] + noise * rng.normal() for index in outputs.values()]
            # The first sample, from which the initial state is derived, is always complete.
            cells = [f"{value:.5g}" if not sample or rng.uniform() >= missing else "" for value in measured]
            lines.append(",".join([f"{run + 1}", f"{sample * dt:g}", f"{w:g}", *cells]))
            for _ in range(SUBSTEPS):
                x = _step(rate, x, w, dt / SUBSTEPS)
    return "\n".join(lines) + "\n"


def _step(rate: Rate, x: np.ndarray, w: float, dt: float) -> np.ndarray:
    """One step of the classical Runge-Kutta method."""
    a = rate(x, w)
    b = rate(x + 0.5 * dt * a, w)
    c = rate(x + 0.5 * dt * b, w)
    d = rate(x + dt * c, w)
    return x + dt / 6 * (a + 2 * b + 2 * c + d)
