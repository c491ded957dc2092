"""An FMU under FMPy, in a process of its own: `python -m campaign.fmpy_host WHAT ARCHIVE [STEPS]`."""

import sys
from typing import Any

import numpy as np
from fmpy import read_model_description, simulate_fmu
from fmpy.validation import validate_fmu

HOSTILE_TIMES = (float("nan"), float("inf"), float("-inf"), 1e300, -1e300)


def validate(archive: str) -> None:
    """FMPy finds nothing wrong."""
    problems = validate_fmu(archive)
    assert not problems, problems


def simulate(archive: str, steps: int) -> None:
    """A long simulation with inputs: as many rows as steps, all finite."""
    dt = step_length(archive)
    names = [each.name for each in read_model_description(archive).modelVariables if each.causality == "input"]
    kinds = [(name, float) for name in ("time", *names)]
    ts = dt * np.arange(0, steps + 1, max(steps // 100, 1))
    signals = np.array([(t, *np.sin(t + np.arange(len(names)))) for t in ts], kinds)
    result = simulate_fmu(archive, start_time=0.0, stop_time=steps * dt, output_interval=dt, input=signals)
    assert len(result) >= steps, len(result)
    assert_finite(result)


def wrong_times(archive: str) -> None:
    """Times that make no sense end in an exception, or in finite numbers."""
    dt = step_length(archive)
    attempts: list[dict[str, Any]] = [
        {"start_time": 0.0, "stop_time": 10 * dt, "output_interval": bad} for bad in (0.37 * dt, 1.5 * dt, 1e-9 * dt)
    ]
    attempts += [{"start_time": bad, "stop_time": 10 * dt, "output_interval": dt} for bad in HOSTILE_TIMES]
    attempts += [{"start_time": -5.0, "stop_time": -10.0, "output_interval": dt}]
    for given in attempts:
        try:
            result = simulate_fmu(archive, timeout=5.0, **given)
        except Exception as error:
            print(f"{given}: {type(error).__name__}: {error}")
        else:
            assert_finite(result)


def step_length(archive: str) -> float:
    """The step length that the FMU recommends."""
    experiment = read_model_description(archive).defaultExperiment
    assert experiment is not None
    return float(experiment.stepSize or 0.0)


def assert_finite(result: np.ndarray) -> None:
    """All outputs are finite."""
    for name in result.dtype.names or ():
        assert np.isfinite(result[name]).all(), name


if __name__ == "__main__":
    what, path, *counts = sys.argv[1:]
    {"validate": validate, "simulate": simulate, "wrong_times": wrong_times}[what](path, *map(int, counts))
