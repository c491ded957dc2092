"""Simulations by an FMU, in the minimal host and in FMPy. They run in a process of their own (`_isolated.py`).

A row holds the outputs and states after one step.
"""

from typing import Any

import numpy as np

from twinfold.export._fmu.host import Host


def run_fmu(
    *,
    library: str,
    guid: str,
    archive: str | None,
    inputs: list[str],
    observed: list[str],
    dt: float,
    linear: bool,
    t: np.ndarray,
    w: np.ndarray,
) -> dict[str, np.ndarray]:
    """The rows of the minimal host; with an `archive`, also the problems that FMPy's validation finds, and its rows."""
    rows = simulate_by_host(library, guid, t, w, dt, len(observed), linear=linear)
    if archive is None:
        return {"host": rows}
    from fmpy.validation import validate_fmu

    problems = "; ".join(validate_fmu(archive))
    # FMPy sets derivatives of inputs for nine inputs at most. If the twin interpolates, compare FMPy with the minimal
    # host at constant inputs instead.
    held = np.repeat(w[:1], len(w), axis=0) if linear else w
    return {
        "host": rows,
        "problems": np.frombuffer(problems.encode(), np.uint8),
        "held": simulate_by_host(library, guid, t, held, dt, len(observed), linear=False) if linear else rows,
        "fmpy": np.full_like(rows, np.nan) if problems else simulate_by_fmpy(archive, inputs, observed, t, held, dt),
    }


def simulate_by_host(
    library: str, guid: str, t: np.ndarray, w: np.ndarray, dt: float, columns: int, *, linear: bool
) -> np.ndarray:
    """Outputs and states after each step, by the minimal host."""
    count, inputs = len(t) - 1, w.shape[1]
    host, rows = Host(library, guid), []
    host.start(t[0], w[0])
    for k in range(count):
        host.set(0, w[k])
        if linear and inputs:
            host.set_slopes((w[k + 1] - w[k]) / dt)
        host.step(t[k], dt)
        rows.append(host.get(inputs, columns))
    host.close()
    return np.reshape(rows, (count, columns))


def simulate_by_fmpy(
    archive: str, inputs: list[str], observed: list[str], t: np.ndarray, w: np.ndarray, dt: float
) -> np.ndarray:
    """Outputs and states after each step, by FMPy."""
    from fmpy import simulate_fmu

    if len(t) == 1:
        return np.zeros((0, len(observed)))
    kinds = [("time", float), *((name, float) for name in inputs)]
    signals = np.array([(now, *row) for now, row in zip(t, w, strict=True)], dtype=kinds)
    given: dict[str, Any] = {"input": signals} if inputs else {}
    result = simulate_fmu(
        archive, start_time=float(t[0]), stop_time=float(t[-1]), output_interval=dt, output=observed, **given
    )
    return np.stack([result[name] for name in observed], axis=1)[1 : len(t)]
