"""The twin as an FMU: FMI 2.0 for co-simulation, with its C source and the compiled binary."""

import hashlib
import os
import platform
import sys
import tempfile
import zipfile
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from twinfold.export._c.compiled import build, find_compiler
from twinfold.export._c.emit import literal
from twinfold.export._c.module import source_of
from twinfold.export._fmu.description import Variable, description_of, variables_of
from twinfold.export._fmu.host import Host
from twinfold.export._reference import Reference, difference, reference_of
from twinfold.export._report import ExportReport
from twinfold.export._spec import ExportSpec
from twinfold.export._step import Step, precision, step_of
from twinfold.io import atomic_write
from twinfold.model import Twin

TOLERANCE = 1e-9  # of a free run, relative


def export_fmu(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    horizon: int = 1000,
    reference: Reference | None = None,
) -> ExportReport:
    """Write NAME.fmu and run it beside the twin.

    The communication step of a host must be a multiple of the spec's `dt`. Inputs, outputs, states and parameters have
    their own names; `start.NAME` are the start values, `violation[k]` and `status` tell how the last step went.

    **Arguments:** `twin`, fitted; `spec`; `folder`; `horizon`, steps of the run that is compared; `reference`, what the
    twin does, where it is known already.

    **Returns:** an `ExportReport`. Without a C compiler the FMU has its source only and is not checked; with FMPy (the
    extra `fmu`) it is validated and simulated there too.
    """
    path = Path(folder) / f"{spec.name}.fmu"
    linear = twin.cell.input_interpolation == "linear"
    with precision(np.float64):
        step = step_of(twin, spec)
        source = source_of(step)
    guid = "{" + hashlib.sha256((source.code + repr(spec)).encode()).hexdigest()[:32] + "}"
    variables = variables_of(step)
    wrapper = _wrapper(step, guid, linear)
    files = {
        "modelDescription.xml": description_of(step, variables, guid, linear=linear).encode(),
        f"sources/{spec.name}.c": source.code.encode(),
        f"sources/{spec.name}.h": source.header.encode(),
        f"sources/{spec.name}_fmi2.c": wrapper.encode(),
    }
    compiler = find_compiler()
    with tempfile.TemporaryDirectory() as place:
        if compiler is None:
            _write(path, files)
            words = ["FMU: there is no C compiler here: it has its source but no binary, and was not checked."]
            return ExportReport("fmu", [path], False, None, None, path.stat().st_size, words)
        for name, text in files.items():
            (Path(place) / Path(name).name).write_bytes(text)
        folder_name, ending = binary_place()
        library = build(compiler, [Path(place) / f"{spec.name}_fmi2.c"], Path(place) / f"{spec.name}{ending}")
        files[f"binaries/{folder_name}/{library.name}"] = library.read_bytes()
        _write(path, files)
        if reference is None:
            reference = reference_of(twin, spec, states=1, horizon=horizon)
        run = reference.run
        rows = _run_by_host(library, guid, reference, run.w, linear)
        drift = _off(reference, rows, _seen_by_host(reference, linear))
        # FMPy sets the derivatives of inputs for nine of them only: where the twin has some, both hosts hold w.
        held = np.repeat(run.w[:1], len(run.w), axis=0)
        rows = _run_by_host(library, guid, reference, held, False) if linear else rows
    words = [f"FMU: {path.name}, {path.stat().st_size} bytes, binary for {folder_name}."]
    words.append(
        f"FMU: loaded by a plain host, it differs from the twin by at most {drift:.1e} over {run.length} steps."
    )
    if find_spec("fmpy") is None:
        words.append("FMU: FMPy is not installed (pip install 'twinfold[fmu]'): its validation was not run.")
        problems: list[str] = []
    else:
        problems, seen = _run_by_fmpy(path, variables, reference, held if linear else run.w)
        other = drift + _off(reference, seen, rows) if seen is not None else 0.0
        drift = max(drift, other)
        words.append(f"FMU: FMPy finds {'no problem' if not problems else '; '.join(problems)}.")
        words.append(
            f"FMU: simulated by FMPy, it differs from the twin by at most {other:.1e} ({TOLERANCE:.0e} allowed)."
        )
    passed = drift <= TOLERANCE and not problems
    if not passed:
        words.append("FMU: the check FAILED.")
    return ExportReport("fmu", [path], passed, None, drift, path.stat().st_size, words)


def binary_place() -> tuple[str, str]:
    """The folder of an FMU for binaries of this machine, and how their names end."""
    machine = platform.machine().lower()
    wide = machine in ("x86_64", "amd64")
    if sys.platform == "win32":
        return ("win64" if wide else f"{machine}-windows"), ".dll"
    if sys.platform == "darwin":
        return ("darwin64" if wide else "aarch64-darwin"), ".dylib"
    return ("linux64" if wide else f"{machine}-linux"), ".so"


def _wrapper(step: Step, guid: str, linear: bool) -> str:
    text = resources.files("twinfold.export._fmu").joinpath("wrapper.c.in").read_text()
    first = ", ".join(literal(value, np.dtype(float)) for value in step.spec.first_input) or "0"
    values = {"guid": guid, "linear": str(int(linear)), "first_w": first, "t0": repr(float(step.spec.t0))}
    for name, value in {"name": step.spec.name, "NAME": step.spec.name.upper(), **values}.items():
        text = text.replace(f"@{name}@", value)
    return text


def _write(path: Path, files: dict[str, bytes]) -> None:
    with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def _seen_by_host(reference: Reference, linear: bool) -> np.ndarray:
    """The twin's outputs and states as a host reads them after a step: with the inputs of that step still set."""
    run, step = reference.run, reference.step
    states = run.states[:, : len(step.spec.states)]
    if linear:
        return np.hstack([run.y, states])
    with precision(np.float64):
        outputs = jax.jit(jax.vmap(step.output, (0, 0, None, 0)))(run.t[1:], run.w[:-1], step.defaults, run.states)
    return np.hstack([np.asarray(outputs), states])


def _off(reference: Reference, seen: np.ndarray, expected: np.ndarray) -> float:
    """The largest relative difference between rows of outputs and states."""
    count, k = reference.run.length, len(reference.step.spec.outputs)
    return difference(reference.step, seen[:count, k:], seen[:count, :k], expected[:count, k:], expected[:count, :k])


def _run_by_host(library: Path, guid: str, reference: Reference, w: np.ndarray, linear: bool) -> np.ndarray:
    """Outputs and states after each step."""
    run, spec = reference.run, reference.step.spec
    inputs, shown = len(spec.inputs), len(spec.outputs) + len(spec.states)
    host, rows = Host(library, guid), []
    host.start(run.t[0], w[0])
    for k in range(run.length):
        host.set(0, w[k])
        if linear and inputs:
            host.slopes((w[k + 1] - w[k]) / spec.dt)
        host.advance(run.t[k], spec.dt)
        rows.append(host.get(inputs, shown))
    host.close()
    return np.array(rows).reshape(run.length, shown)


def _run_by_fmpy(
    path: Path, variables: list[Variable], reference: Reference, w: np.ndarray
) -> tuple[list[str], np.ndarray | None]:
    """What FMPy's validation finds, and outputs and states after each step where it finds nothing."""
    from fmpy import simulate_fmu
    from fmpy.validation import validate_fmu

    problems = list(validate_fmu(str(path)))
    run, spec = reference.run, reference.step.spec
    count, inputs = run.length, len(spec.inputs)
    if problems or count == 0:
        return problems, None
    kinds = [("time", float), *((name, float) for name in spec.inputs)]
    signals = np.array([(t, *row) for t, row in zip(run.t, w, strict=True)], dtype=kinds)
    shown = [variable.name for variable in variables[inputs : inputs + len(spec.outputs) + len(spec.states)]]
    given: dict[str, Any] = {"input": signals} if inputs else {}
    result = simulate_fmu(
        str(path),
        start_time=float(run.t[0]),
        stop_time=float(run.t[count]),
        output_interval=spec.dt,
        output=shown,
        **given,
    )
    return problems, np.array([[row[name] for name in shown] for row in result])[1:]
