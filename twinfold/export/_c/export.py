"""Export to C99: a source file and a header."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from twinfold.export._c.compiled import FLAGS, build, code_size, find_compiler
from twinfold.export._c.source import write_source
from twinfold.export._isolated import IsolatedError, run_isolated
from twinfold.export._reference import Reference, StepComparison, build_reference
from twinfold.export._report import ExportReport
from twinfold.export._spec import ExportSpec
from twinfold.export._step import AbstractStep, build_step, precision
from twinfold.model import Twin

TOLERANCE = 1e-12  # of one step from the same state, relative


def export_c(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    samples: int = 10_000,
    horizon: int = 1000,
    reference: Reference | None = None,
) -> ExportReport:
    """Write NAME.c and NAME.h, compile them and compare them with the twin.

    **Arguments:**

    - `twin`: the fitted twin.
    - `spec`: names, step length and ranges.
    - `folder`: the folder to write to; created if necessary.
    - `samples`: the number of states from which one step is compared.
    - `horizon`: the number of steps of the simulation that is compared.
    - `reference`: the results of the twin, if they are already known.

    **Returns:** an `ExportReport`; not checked if there is no C compiler.

    **Raises:** `NotExportable` if the step uses a JAX primitive that has no C form.

    **Example:**

    ```python
    import shutil

    twin = tw.Twin(lambda x, p: -p["k"] * x, params={"k": 2.0})
    spec = tw.export.ExportSpec("decay", ["x"], [], ["x"], dt=0.1, x0=[1.0])
    if shutil.which("cc"):
        report = tw.export.export_c(twin, spec, "exported", samples=100, horizon=20)
        [file.name for file in report.files], report.checked  # ['decay.c', 'decay.h'], True
    ```
    """
    with precision(np.float64):
        step = build_step(twin, spec)
    return export_step_c(
        step, Path(folder), lambda: reference or build_reference(twin, spec, samples=samples, horizon=horizon)
    )


def export_step_c(
    step: AbstractStep, folder: Path, reference: Callable[[], Reference], *, tolerance: float = TOLERANCE
) -> ExportReport:
    """Write the C of a step, compile it and compare it with what the twin computes, which `reference` returns.

    **Arguments:** `tolerance` of one step.
    """
    with precision(np.float64):
        files = write_source(step, folder)
    spec, compiler = step.spec, find_compiler()
    if compiler is None:
        size = sum(file.stat().st_size for file in files)
        messages = ["C: no C compiler (cc, gcc, clang) was found. The files are written but not checked."]
        return ExportReport("c", files, False, None, None, size, messages)
    known = reference()
    with tempfile.TemporaryDirectory() as scratch:
        library = build(compiler, [files[0]], Path(scratch) / f"{spec.name}.so")
        size = code_size(library)
        messages = [f"C: {spec.name}.c compiled with {' '.join(FLAGS[:2])}: {size} bytes of code and constants."]
        try:
            steps, drift = compare_library(library, known)
        except IsolatedError as error:
            messages.append(f"C: {error} The check FAILED; the files are written.")
            return ExportReport("c", files, False, None, None, size, messages)
    messages += [
        *steps.messages("C", tolerance),
        f"C: a simulation of {known.simulation.length} steps differs from the twin by at most {drift:.1e}.",
    ]
    if skipped := known.steps.skipped:
        messages.append(f"C: {skipped} sampled states could not be moved onto the manifold and were skipped.")
    return ExportReport("c", files, steps.passed(tolerance), steps.difference, drift, size, messages)


def compare_library(library: Path, reference: Reference) -> tuple[StepComparison, float]:
    """Single steps of the compiled library, and the relative difference of a simulation by it, against the twin.

    **Raises:** `IsolatedError` if the library crashes or does not return.
    """
    step, known, run = reference.step, reference.steps, reference.simulation
    count, length, outputs = len(known.t), run.length, len(step.spec.outputs)
    rows = run_isolated(
        "twinfold.export._c.compiled:run_library",
        {"library": str(library), "name": step.spec.name, "outputs": outputs},
        {
            "t": known.t,
            "w0": known.w0,
            "w1": known.w1,
            "state": known.state,
            "run_t": run.t[: length + 1],
            "run_w": run.w[: length + 1],
            "x0": np.asarray(step.spec.x0, step.dtype),
            "p": step.defaults,
        },
        {
            "states": (count, step.state_size),
            "y": (count, outputs),
            "status": (count,),
            "run_states": (length, step.state_size),
            "run_y": (length, outputs),
        },
    )
    steps = reference.compare_steps(rows["states"], rows["y"], rows["status"])
    return steps, reference.compare_simulation(rows["run_states"], rows["run_y"])
