"""Export to FMI 2.0 for co-simulation: an FMU with C source and the binary for this machine."""

import hashlib
import os
import platform
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from twinfold._version import __version__
from twinfold.export._c.compiled import build, find_compiler
from twinfold.export._c.source import generate_source
from twinfold.export._c.writer import literal
from twinfold.export._files import render, write_files
from twinfold.export._fmu.comparison import FmuComparison, compare_fmu
from twinfold.export._fmu.variables import Variable, fmu_variables
from twinfold.export._isolated import IsolatedError
from twinfold.export._reference import Reference, build_reference
from twinfold.export._report import ExportReport
from twinfold.export._spec import ExportSpec
from twinfold.export._step import AbstractStep, build_step, precision
from twinfold.io import atomic_write
from twinfold.model import Twin

TOLERANCE = 1e-9  # of a simulation, relative


def export_fmu(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    horizon: int = 1000,
    reference: Reference | None = None,
) -> ExportReport:
    """Write NAME.fmu and compare a simulation by it with the twin.

    The communication step of a host must be a multiple of `dt`. Inputs, outputs, states and parameters keep their
    names; `start.NAME` are the start values, `violation[k]` and `status` report on the last step.

    **Arguments:**

    - `twin`: the fitted twin.
    - `spec`: names, step length and ranges.
    - `folder`: the folder to write to; created if necessary.
    - `horizon`: the number of steps of the simulation that is compared.
    - `reference`: the results of the twin, if they are already known.

    **Returns:** an `ExportReport`. Without a C compiler the FMU contains source only and is not checked. If FMPy (extra
    `fmu`) is installed, the FMU is also validated and simulated by it.

    **Raises:** `NotExportable` if the step uses a JAX primitive that has no C form.

    **Example:**

    ```python
    import shutil

    twin = tw.Twin(lambda x, w: w - x)
    spec = tw.export.ExportSpec("lag", ["x"], ["u"], ["x"], dt=0.1, x0=[1.0], w_low=[-1], w_high=[1])
    if shutil.which("cc"):
        report = tw.export.export_fmu(twin, spec, "exported", horizon=20)
        report.files[0].name, report.checked  # 'lag.fmu', True
    ```
    """
    with precision(np.float64):
        step = build_step(twin, spec)
    return export_step_fmu(
        step,
        Path(folder),
        lambda: reference or build_reference(twin, spec, samples=1, horizon=horizon),
        linear=twin.cell.input_interpolation == "linear",
    )


def export_step_fmu(
    step: AbstractStep, folder: Path, reference: Callable[[], Reference], *, linear: bool
) -> ExportReport:
    """Write the FMU of a step and compare it with what the twin computes, which `reference` returns.

    **Arguments:** `linear`: inputs change during a step, as their derivatives say.
    """
    spec = step.spec
    path = folder / f"{spec.name}.fmu"
    variables = fmu_variables(step)
    files, guid = _contents(step, variables, linear)
    compiler = find_compiler()
    if compiler is None:
        _write_archive(path, files)
        messages = ["FMU: no C compiler was found. The FMU contains source but no binary, and is not checked."]
        return ExportReport("fmu", [path], False, None, None, path.stat().st_size, messages)
    known = reference()
    with tempfile.TemporaryDirectory() as scratch:
        write_files(Path(scratch), {Path(name).name: content for name, content in files.items()})
        target, suffix = binary_target()
        library = build(compiler, [Path(scratch) / f"{spec.name}_fmi2.c"], Path(scratch) / f"{spec.name}{suffix}")
        _write_archive(path, files | {f"binaries/{target}/{library.name}": library.read_bytes()})
        size = path.stat().st_size
        messages = [f"FMU: {path.name}, {size} bytes, binary for {target}."]
        try:
            compared = compare_fmu(library, guid, path, variables, known, linear=linear)
        except IsolatedError as error:
            messages.append(f"FMU: {error} The check FAILED; the file is written.")
            return ExportReport("fmu", [path], False, None, None, size, messages)
    messages += _messages(compared, known.simulation.length)
    drift = max(compared.by_host, compared.by_fmpy or 0.0)
    return ExportReport("fmu", [path], compared.passed(TOLERANCE), None, drift, size, messages)


def _messages(compared: FmuComparison, steps: int) -> list[str]:
    """The outcome of the comparison as sentences."""
    found = [
        f"FMU: simulated by a minimal host, it differs from the twin by at most {compared.by_host:.1e} over "
        f"{steps} steps."
    ]
    if compared.problems is None:
        found.append("FMU: not validated, since FMPy is not installed (pip install 'twinfold[fmu]').")
    else:
        found.append(f"FMU: validation by FMPy: {compared.problems or 'no problems'}.")
    if compared.by_fmpy is not None:
        found.append(
            f"FMU: simulated by FMPy, it differs from the twin by at most {compared.by_fmpy:.1e} "
            f"(tolerance {TOLERANCE:.0e})."
        )
    if not compared.passed(TOLERANCE):
        found.append("FMU: the check FAILED.")
    return found


def binary_target() -> tuple[str, str]:
    """The folder for binaries of this machine inside an FMU, and their suffix."""
    machine = platform.machine().lower()
    wide = machine in ("x86_64", "amd64")
    if sys.platform == "win32":
        return ("win64" if wide else f"{machine}-windows"), ".dll"
    if sys.platform == "darwin":
        return ("darwin64" if wide else "aarch64-darwin"), ".dylib"
    return ("linux64" if wide else f"{machine}-linux"), ".so"


def _contents(step: AbstractStep, variables: list[Variable], linear: bool) -> tuple[dict[str, str | bytes], str]:
    """The text files of the FMU by name, and its GUID."""
    spec = step.spec
    with precision(np.float64):
        source = generate_source(step)
    guid = "{" + hashlib.sha256((source.code + repr(spec)).encode()).hexdigest()[:32] + "}"
    description = render(
        "modelDescription.xml.j2",
        name=spec.name,
        version=__version__,
        guid=guid,
        linear=linear,
        t0=spec.t0,
        dt=spec.dt,
        units=sorted({variable.unit for variable in variables} - {""}),
        variables=variables,
        outputs=[k for k, variable in enumerate(variables, start=1) if variable.causality == "output"],
    )
    slave = render(
        "fmi2.c.j2",
        name=spec.name,
        guid=guid,
        hash=guid[1:17],
        linear=int(linear),
        t0=float(spec.t0),
        initial_inputs=[literal(value, np.dtype(float)) for value in spec.initial_inputs],
    )
    return {
        "modelDescription.xml": description,
        f"sources/{spec.name}.c": source.code,
        f"sources/{spec.name}.h": source.header,
        f"sources/{spec.name}_fmi2.c": slave,
    }, guid


def _write_archive(path: Path, files: Mapping[str, str | bytes]) -> None:
    with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
