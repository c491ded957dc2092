"""Export to C99: a source file and a header."""

import os
import tempfile
from pathlib import Path

import numpy as np

from twinfold.export._c.compiled import FLAGS, CompiledStep, build, code_size, find_compiler
from twinfold.export._c.source import write_source
from twinfold.export._reference import Reference, build_reference
from twinfold.export._report import ExportReport
from twinfold.export._spec import ExportSpec
from twinfold.export._step import build_step, precision
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
        files = write_source(build_step(twin, spec), Path(folder))
    compiler = find_compiler()
    if compiler is None:
        size = sum(file.stat().st_size for file in files)
        messages = ["C: no C compiler (cc, gcc, clang) was found. The files are written but not checked."]
        return ExportReport("c", files, False, None, None, size, messages)
    if reference is None:
        reference = build_reference(twin, spec, samples=samples, horizon=horizon)
    with tempfile.TemporaryDirectory() as scratch:
        library = build(compiler, [files[0]], Path(scratch) / f"{spec.name}.so")
        compiled, size = CompiledStep(library, reference.step), code_size(library)
        steps = reference.compare_steps(compiled.step)
        drift = reference.compare_simulation(compiled.init, compiled.step)
    messages = [
        f"C: {spec.name}.c compiled with {' '.join(FLAGS[:2])}: {size} bytes of code and constants.",
        *steps.messages("C", TOLERANCE),
        f"C: a simulation of {reference.simulation.length} steps differs from the twin by at most {drift:.1e}.",
    ]
    if skipped := reference.steps.skipped:
        messages.append(f"C: {skipped} sampled states could not be moved onto the manifold and were skipped.")
    return ExportReport("c", files, steps.passed(TOLERANCE), steps.difference, drift, size, messages)
