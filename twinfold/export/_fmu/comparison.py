"""An FMU compared with the twin: a simulation by the minimal host and, if it is installed, by FMPy."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np

from twinfold.export._fmu.variables import Variable
from twinfold.export._isolated import run_isolated
from twinfold.export._reference import Reference
from twinfold.export._step import precision


@dataclass(frozen=True)
class FmuComparison:
    """The largest relative differences from the twin, by the minimal host and by FMPy, and what FMPy objects to.

    `by_fmpy` and `problems` are None if FMPy is not installed; `by_fmpy` also if there are problems.
    """

    by_host: float
    problems: str | None
    by_fmpy: float | None

    def passed(self, tolerance: float) -> bool:
        """Whether the FMU agrees with the twin and has no problems."""
        return max(self.by_host, self.by_fmpy or 0.0) <= tolerance and not self.problems


def compare_fmu(
    library: Path, guid: str, archive: Path, variables: list[Variable], reference: Reference, *, linear: bool
) -> FmuComparison:
    """Simulate by the binary and the archive, in a process of its own. **Raises:** `IsolatedError`."""
    run, spec = reference.simulation, reference.step.spec
    names, count = [variable.name for variable in variables], run.length
    observed = names[len(spec.inputs) :][: len(spec.outputs) + len(spec.states)]
    shape, validated = (count, len(observed)), find_spec("fmpy") is not None
    settings = {
        "library": str(library),
        "guid": guid,
        "archive": str(archive.resolve()) if validated else None,
        "inputs": names[: len(spec.inputs)],
        "observed": observed,
        "dt": float(spec.dt),
        "linear": linear,
    }
    rows = run_isolated(
        "twinfold.export._fmu.simulation:run_fmu",
        settings,
        {"t": run.t[: count + 1], "w": run.w[: count + 1]},
        {"host": shape} | ({"problems": (None,), "held": shape, "fmpy": shape} if validated else {}),
    )
    by_host = _difference(reference, rows["host"], _expected_rows(reference, linear))
    if not validated:
        return FmuComparison(by_host, None, None)
    text = rows["problems"].astype(np.uint8).tobytes().decode(errors="replace")
    problems = "".join(filter(str.isprintable, text))
    if problems:
        return FmuComparison(by_host, problems, None)
    return FmuComparison(by_host, "", by_host + _difference(reference, rows["fmpy"], rows["held"]))


def _expected_rows(reference: Reference, linear: bool) -> np.ndarray:
    """Outputs and states of the twin as a host reads them after a step, with the inputs of that step still set."""
    run, step = reference.simulation, reference.step
    outputs = run.y
    if not linear:
        with precision(np.float64):
            each = jax.jit(jax.vmap(step.output, (0, 0, None, 0)))
            outputs = np.asarray(each(run.t[1:], run.w[:-1], step.defaults, run.states))
    return np.hstack([outputs, run.states[:, : len(step.spec.states)]])[: run.length]


def _difference(reference: Reference, rows: np.ndarray, expected: np.ndarray) -> float:
    """The largest relative difference between rows of outputs and states."""
    k = len(reference.step.spec.outputs)
    return reference.difference(rows[:, k:], rows[:, :k], expected[:, k:], expected[:, :k])
