"""Simulations by an FMU, in the minimal host and in FMPy, to compare with the twin.

A row holds the outputs and states after one step.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from twinfold.export._fmu.host import Host
from twinfold.export._fmu.variables import Variable
from twinfold.export._reference import Reference
from twinfold.export._step import precision


def expected_rows(reference: Reference, linear: bool) -> np.ndarray:
    """Outputs and states of the twin as a host reads them after a step, with the inputs of that step still set."""
    run, step = reference.simulation, reference.step
    outputs = run.y
    if not linear:
        with precision(np.float64):
            each = jax.jit(jax.vmap(step.output, (0, 0, None, 0)))
            outputs = np.asarray(each(run.t[1:], run.w[:-1], step.defaults, run.states))
    return np.hstack([outputs, run.states[:, : len(step.spec.states)]])


def difference(reference: Reference, rows: np.ndarray, expected: np.ndarray) -> float:
    """The largest relative difference between rows of outputs and states."""
    count, k = reference.simulation.length, len(reference.step.spec.outputs)
    return reference.difference(rows[:count, k:], rows[:count, :k], expected[:count, k:], expected[:count, :k])


def simulate_by_host(library: Path, guid: str, reference: Reference, w: np.ndarray, linear: bool) -> np.ndarray:
    """Outputs and states after each step."""
    run, spec = reference.simulation, reference.step.spec
    inputs, columns = len(spec.inputs), len(spec.outputs) + len(spec.states)
    host, rows = Host(library, guid), []
    host.start(run.t[0], w[0])
    for k in range(run.length):
        host.set(0, w[k])
        if linear and inputs:
            host.set_slopes((w[k + 1] - w[k]) / spec.dt)
        host.step(run.t[k], spec.dt)
        rows.append(host.get(inputs, columns))
    host.close()
    return np.array(rows).reshape(run.length, columns)


def simulate_by_fmpy(
    path: Path, variables: list[Variable], reference: Reference, w: np.ndarray
) -> tuple[list[str], np.ndarray | None]:
    """The problems that FMPy's validation finds; if there are none, outputs and states after each step."""
    from fmpy import simulate_fmu
    from fmpy.validation import validate_fmu

    problems = list(validate_fmu(str(path)))
    run, spec = reference.simulation, reference.step.spec
    count, inputs = run.length, len(spec.inputs)
    if problems or count == 0:
        return problems, None
    kinds = [("time", float), *((name, float) for name in spec.inputs)]
    signals = np.array([(t, *row) for t, row in zip(run.t, w, strict=True)], dtype=kinds)
    names = [variable.name for variable in variables[inputs : inputs + len(spec.outputs) + len(spec.states)]]
    given: dict[str, Any] = {"input": signals} if inputs else {}
    result = simulate_fmu(
        str(path),
        start_time=float(run.t[0]),
        stop_time=float(run.t[count]),
        output_interval=spec.dt,
        output=names,
        **given,
    )
    return problems, np.array([[row[name] for name in names] for row in result])[1:]
