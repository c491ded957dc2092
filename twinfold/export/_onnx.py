"""The twin as ONNX models of its step, in float32 and float64, run by onnxruntime for the check."""

import json
import os
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import core

from twinfold.export._c.interpret import NotExportable
from twinfold.export._onnx_ready import ready
from twinfold.export._reference import Reference, difference, reference_of
from twinfold.export._report import ExportReport
from twinfold.export._spec import ExportSpec
from twinfold.export._step import Step, precision
from twinfold.io import atomic_write
from twinfold.model import Twin

# Of one step from the same state, relative: a projection ends within a few roundings, not at the same one.
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


def export_onnx(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    dtypes: Sequence[str] = ("float64", "float32"),
    states: int = 300,
    reference: Reference | None = None,
) -> ExportReport:
    """Write NAME_init_DTYPE.onnx and NAME_step_DTYPE.onnx with a JSON file that describes them, and run the steps.

    **Arguments:** `twin`, fitted; `spec`; `folder`; `dtypes`; `states` from which one step is compared; `reference`,
    what the twin does in float64, where it is known already. Arguments that the twin does not have (inputs,
    parameters) are left out of the models.

    **Returns:** an `ExportReport` with the largest difference of all dtypes.

    **Raises:** `ImportError` without the extra `onnx`; `NotExportable` where ONNX lacks something.
    """
    if find_spec("jax2onnx") is None or find_spec("onnxruntime") is None:
        raise ImportError("export to ONNX needs jax2onnx and onnxruntime: pip install 'twinfold[onnx]'.")
    folder, files, words = Path(folder), [], []
    largest, passed, size = 0.0, True, 0
    for dtype in dtypes:
        known = reference if dtype == "float64" and reference is not None else None
        if known is None:
            known = reference_of(twin, spec, states=states, horizon=1, dtype=np.dtype(dtype))
        step, models = known.step, {}
        for name in ("init", "step"):
            models[name] = _converted(step, name)
            files.append(folder / f"{spec.name}_{name}_{dtype}.onnx")
            with atomic_write(files[-1]) as file:
                file.write(models[name])
        off, disagree = _compared(models["step"], known, states)
        good = off <= TOLERANCE[dtype] and disagree == 0
        words.append(
            f"ONNX: {dtype} ({len(models['step'])} bytes): one step from {min(states, len(known.steps.t))} states in "
            f"onnxruntime differs from the twin by at most {off:.1e} ({TOLERANCE[dtype]:.0e} allowed): "
            f"{'passed' if good else 'FAILED'}."
        )
        largest, passed, size = max(largest, off), passed and good, size + len(models["step"])
        files.append(folder / f"{spec.name}_{dtype}.onnx.json")
        with atomic_write(files[-1]) as file:
            file.write(json.dumps(step.description(), indent=2).encode())
    return ExportReport("onnx", files, passed, largest, None, size, words)


def _converted(step: Step, name: str) -> bytes:
    """One function of a step as an ONNX model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports and its tracing warn of their own doings
        from jax2onnx import to_onnx

        fn, shapes, results = step.functions[name]
        shapes = {argument: shape for argument, shape in shapes.items() if 0 not in shape}
        with precision(step.dtype):
            whole = _with_empty(fn, step.functions[name][1], step.dtype)
            arguments = [jax.ShapeDtypeStruct(shape, step.dtype) for shape in shapes.values()]
            jaxpr = jax.make_jaxpr(ready(jax.make_jaxpr(whole)(*arguments)))(*arguments)
            try:
                model = to_onnx(
                    core.jaxpr_as_fun(jaxpr),
                    inputs=arguments,
                    input_names=list(shapes),
                    output_names=results,
                    model_name=f"{step.spec.name}_{name}",
                    enable_double_precision=step.dtype == np.float64,
                )
            except (NotImplementedError, KeyError, TypeError, ValueError) as error:
                raise NotExportable(
                    f"export to ONNX: the step was not converted ({type(error).__name__}: {error}). C and StableHLO "
                    "have more; or use `projection=Tangent()`, fewer than 9 constraints, an explicit integrator."
                ) from error
    return model.SerializeToString()


def _with_empty(fn: Callable, shapes: dict[str, tuple[int, ...]], dtype: np.dtype) -> Callable:
    """A function of those arguments alone that have elements."""

    def called(*given: Any) -> Any:
        rest = iter(given)
        return fn(*(np.zeros(shape, dtype) if 0 in shape else next(rest) for shape in shapes.values()))

    return called


def _compared(model: bytes, reference: Reference, states: int) -> tuple[float, int]:
    """The largest relative difference of a step in onnxruntime, and how many ended with another status."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # it has no common class for these
        raise NotExportable(
            f"export to ONNX in {reference.step.dtype.name}: onnxruntime cannot run the step ({error}). Some functions "
            'it has in float32 alone: try dtypes=["float32"], or another activation.'
        ) from error
    names = {argument.name for argument in session.get_inputs()}
    step, known = reference.step, reference.steps
    count = min(states, len(known.t))
    rows = []
    for t, w0, w1, state in zip(known.t[:count], known.w0, known.w1, known.state, strict=False):
        values = {"t": np.asarray(t), "w0": w0, "w1": w1, "p": step.defaults, "state": state}
        given = {name: np.asarray(value, step.dtype) for name, value in values.items() if name in names}
        rows.append(session.run(["state_next", "y", "status"], given))
    after, y, status = (np.array([row[k] for row in rows]) for k in range(3))
    off = difference(step, after, y, known.after[:count], known.y[:count])
    return off, int((status.reshape(-1) != known.status[:count]).sum())
