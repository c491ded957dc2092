"""The twin as C99: a file, a header, and the check that both do what the twin does."""

import os
import tempfile
from pathlib import Path

import numpy as np

from twinfold.export._c.compiled import FLAGS, Compiled, build, code_size, find_compiler
from twinfold.export._c.module import source_of
from twinfold.export._reference import Reference, Run, Steps, difference, reference_of
from twinfold.export._report import ExportReport
from twinfold.export._spec import ExportSpec
from twinfold.export._step import Step, precision, step_of
from twinfold.io import atomic_write
from twinfold.model import Twin

TOLERANCE = 1e-12  # of one step from the same state, relative


def export_c(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    states: int = 10_000,
    horizon: int = 1000,
    reference: Reference | None = None,
) -> ExportReport:
    """Write NAME.c and NAME.h, compile them and compare with the twin.

    **Arguments:** `twin`, fitted; `spec`; `folder`, made if it is not there; `states` from which one step is compared;
    `horizon`, steps of the free run that is compared; `reference`, what the twin does, where it is known already.

    **Returns:** an `ExportReport`; its check is not run where the machine has no C compiler.

    **Raises:** `NotExportable` where the step uses what has no form in C, with the name of the primitive.
    """
    with precision(np.float64):
        files = write_source(step_of(twin, spec), Path(folder))
    compiler = find_compiler()
    if compiler is None:
        words = ["C: there is no C compiler (cc, gcc, clang) here: the files are written, the check was not run."]
        return ExportReport("c", files, False, None, None, sum(file.stat().st_size for file in files), words)
    if reference is None:
        reference = reference_of(twin, spec, states=states, horizon=horizon)
    with tempfile.TemporaryDirectory() as place:
        library = build(compiler, [files[0]], Path(place) / f"{spec.name}.so")
        compiled, size = Compiled(library, reference.step), code_size(library)
        off, disagree = compare_steps(compiled, reference.steps)
        drift = compare_run(compiled, reference.run)
    passed = off <= TOLERANCE and disagree == 0
    words = [
        f"C: {spec.name}.c compiled with {' '.join(FLAGS[:2])}: {size} bytes of code and constants.",
        f"C: one step from {len(reference.steps.t)} states differs from the twin by at most {off:.1e} (relative; "
        f"{TOLERANCE:.0e} allowed): {'passed' if passed else 'FAILED'}.",
        f"C: running freely over {reference.run.length} steps it differs by at most {drift:.1e}.",
    ]
    if reference.steps.left_out:
        words.append(f"C: {reference.steps.left_out} drawn states could not be projected and were left out.")
    if disagree:
        words.append(f"C: {disagree} steps ended with another status than the twin's.")
    return ExportReport("c", files, passed, off, drift, size, words)


def write_source(step: Step, folder: Path) -> list[Path]:
    """NAME.c and NAME.h of a step in a folder."""
    source, files = source_of(step), []
    for ending, text in (("c", source.code), ("h", source.header)):
        files.append(folder / f"{step.spec.name}.{ending}")
        with atomic_write(files[-1]) as file:
            file.write(text.encode())
    return files


def compare_steps(compiled: Compiled, reference: Steps) -> tuple[float, int]:
    """The largest relative difference of a step, and how many ended with another status."""
    step = compiled.step_of
    samples = zip(reference.t, reference.w0, reference.w1, reference.state, strict=True)
    results = [compiled.step(t, w0, w1, step.defaults, state) for t, w0, w1, state in samples]
    states, y, status = (np.array(list(column)) for column in zip(*results, strict=True))
    off = difference(step, states, y.reshape(len(results), -1), reference.after, reference.y)
    return off, int((status != reference.status).sum())


def compare_run(compiled: Compiled, run: Run) -> float:
    """The largest relative difference of a free run, up to the step at which that of the twin failed."""
    step, states, ys = compiled.step_of, [], []
    state, _, _ = compiled.init(run.t[0], np.asarray(step.spec.x0), run.w[0], step.defaults)
    for k in range(run.length):
        state, y, _ = compiled.step(run.t[k], run.w[k], run.w[k + 1], step.defaults, state)
        states.append(state)
        ys.append(y)
    count = run.length
    if count == 0:
        return 0.0
    return difference(step, np.array(states), np.array(ys).reshape(count, -1), run.states[:count], run.y[:count])
