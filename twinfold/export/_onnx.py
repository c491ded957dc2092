"""Export to ONNX: models of the step in float32 and float64, checked in onnxruntime."""

import contextlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from twinfold.export._files import write_files
from twinfold.export._onnx_rewrites import rewrite
from twinfold.export._reference import Reference, build_reference
from twinfold.export._report import ExportReport, NotExportable
from twinfold.export._spec import ExportSpec
from twinfold.export._step import AbstractStep, precision
from twinfold.model import Twin

# Of one step from the same state, relative: onnxruntime rounds differently, so projections stop at other iterates.
TOLERANCE = {"float32": 1e-4, "float64": 1e-9}


def export_onnx(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    dtypes: Sequence[str] = ("float64", "float32"),
    samples: int = 300,
    reference: Reference | None = None,
) -> ExportReport:
    """Write NAME_init_DTYPE.onnx and NAME_step_DTYPE.onnx, described by NAME_DTYPE.onnx.json, and check the steps.

    **Arguments:**

    - `twin`: the fitted twin.
    - `spec`: names, step length and ranges. Arguments without elements (a twin without inputs or parameters) are
      omitted from the models.
    - `folder`: the folder to write to; created if necessary.
    - `dtypes`: the precisions to write.
    - `samples`: the number of states from which one step is compared.
    - `reference`: the results of the twin in float64, if they are already known.

    **Returns:** an `ExportReport` with the largest difference over all dtypes.

    **Raises:** `ImportError` without the extra `onnx`; `NotExportable` if ONNX lacks an operation of the step.

    **Example:**

    ```python
    import importlib.util

    twin = tw.Twin(lambda x: -x)
    spec = tw.export.ExportSpec("decay", ["x"], [], ["x"], dt=0.1, x0=[1.0])
    if importlib.util.find_spec("jax2onnx") and importlib.util.find_spec("onnxruntime"):
        report = tw.export.export_onnx(twin, spec, "exported", dtypes=["float64"], samples=10)
        report.checked  # True
    ```
    """
    if find_spec("jax2onnx") is None or find_spec("onnxruntime") is None:
        raise ImportError("export to ONNX needs jax2onnx and onnxruntime: pip install 'twinfold[onnx]'.")
    if twin.events:
        raise NotExportable(
            "export to ONNX: the twin has events, whose nested branches ONNX runtimes do not load. Export it to C, "
            "FMU or StableHLO."
        )
    files, messages, sizes, comparisons = [], [], [], []
    for dtype in dtypes:
        known = reference if dtype == "float64" else None
        if known is None:
            known = build_reference(twin, spec, samples=samples, horizon=1, dtype=np.dtype(dtype))
        models = {name: _convert(known.step, name) for name in ("init", "step")}
        contents: dict[str, str | bytes] = {f"{spec.name}_{name}_{dtype}.onnx": models[name] for name in models}
        contents[f"{spec.name}_{dtype}.onnx.json"] = json.dumps(known.step.description(), indent=2)
        files += write_files(Path(folder), contents)
        compared = known.compare_steps(*known.each_step(_run_in_onnxruntime(models["step"], known.step.dtype), samples))
        messages += compared.messages(f"ONNX, {dtype} in onnxruntime ({len(models['step'])} bytes)", TOLERANCE[dtype])
        comparisons.append((compared.passed(TOLERANCE[dtype]), compared.difference))
        sizes.append(len(models["step"]))
    passed, differences = zip(*comparisons, strict=True)
    return ExportReport("onnx", files, all(passed), max(differences), None, sum(sizes), messages)


@contextlib.contextmanager
def _contained() -> Iterator[None]:
    """Suppress the warnings of jax2onnx about itself, and undo its replacement of `jnp.cumsum`, which takes no axis."""
    cumsum = jnp.cumsum
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        jnp.cumsum = cumsum


def _convert(step: AbstractStep, name: str) -> bytes:
    """One function of a step as an ONNX model."""
    with _contained():
        from jax2onnx import to_onnx

        function = step.functions[name]
        shapes = {argument: shape for argument, shape in function.arguments.items() if 0 not in shape}
        with precision(step.dtype):
            arguments = [jax.ShapeDtypeStruct(shape, step.dtype) for shape in shapes.values()]
            traced = jax.make_jaxpr(_without_empty(function.call, function.arguments, step.dtype))(*arguments)
            jaxpr = jax.make_jaxpr(rewrite(traced))(*arguments)
            try:
                model = to_onnx(
                    core.jaxpr_as_fun(jaxpr),
                    inputs=arguments,
                    input_names=list(shapes),
                    output_names=function.results,
                    model_name=f"{step.spec.name}_{name}",
                    enable_double_precision=step.dtype == np.float64,
                )
            except (NotImplementedError, KeyError, TypeError, ValueError) as error:
                raise NotExportable(
                    f"export to ONNX: the step could not be converted ({type(error).__name__}: {error}). C and "
                    "StableHLO support more operations; or use `projection=Tangent()`, fewer than 9 constraints, or "
                    "an explicit integrator."
                ) from error
    return model.SerializeToString()


def _without_empty(fn: Callable, shapes: dict[str, tuple[int, ...]], dtype: np.dtype) -> Callable:
    """The function with its empty arguments filled in."""

    def call(*given: Any) -> Any:
        rest = iter(given)
        return fn(*(np.zeros(shape, dtype) if 0 in shape else next(rest) for shape in shapes.values()))

    return call


def _run_in_onnxruntime(model: bytes, dtype: np.dtype) -> Callable[..., Any]:
    """The step of an ONNX model as a function of NumPy arrays."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no common class for these
        raise NotExportable(
            f"export to ONNX in {dtype.name}: onnxruntime cannot run the step ({error}). It has some functions in "
            'float32 only: try dtypes=["float32"], or another activation.'
        ) from error
    names = {argument.name for argument in session.get_inputs()}

    def step(*arguments: Any) -> Any:
        values = zip(("t", "w0", "w1", "p", "state"), arguments, strict=True)
        given = {name: np.asarray(value, dtype) for name, value in values if name in names}
        return session.run(["state_next", "y", "status"], given)

    return step
