"""Export to StableHLO: serialised functions of `jax.export`, which JAX loads without the twin, and MLIR text."""

import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.export

from twinfold.export._files import write_files
from twinfold.export._reference import Reference, build_reference
from twinfold.export._report import ExportReport
from twinfold.export._spec import ExportSpec
from twinfold.export._step import precision
from twinfold.model import Twin

TOLERANCE = 1e-12  # of one step from the same state, relative
PLATFORMS = ("cpu", "cuda", "tpu")


@dataclass(frozen=True)
class LoadedStep:
    """`init`, `step` and `output` of an exported twin, and the contents of its JSON file."""

    init: Callable
    step: Callable
    output: Callable
    about: dict[str, Any]


def export_stablehlo(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    samples: int = 1000,
    reference: Reference | None = None,
) -> ExportReport:
    """Write NAME_init, NAME_step and NAME_output as `.stablehlo` (for `load_stablehlo`), NAME_step.mlir and NAME.json.

    **Arguments:**

    - `twin`: the fitted twin.
    - `spec`: names, step length and ranges.
    - `folder`: the folder to write to; created if necessary.
    - `samples`: the number of states from which one step is compared.
    - `reference`: the results of the twin, if they are already known.

    **Returns:** an `ExportReport`.

    **Raises:** `ImportError` without the extra `stablehlo`.

    **Example:**

    ```python
    twin = tw.Twin(lambda x: -x)
    spec = tw.export.ExportSpec("decay", ["x"], [], ["x"], dt=0.1, x0=[1.0])
    report = tw.export.export_stablehlo(twin, spec, "exported", samples=20)
    report.checked  # True
    ```
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError("export to StableHLO needs flatbuffers: pip install 'twinfold[stablehlo]'.")
    if reference is None:
        reference = build_reference(twin, spec, samples=samples, horizon=1)
    step, platforms, contents = reference.step, PLATFORMS, {}
    with precision(step.dtype):
        for name, function in step.functions.items():
            arguments = [jax.ShapeDtypeStruct(shape, step.dtype) for shape in function.arguments.values()]
            exported, platforms = _export(function.call, arguments, platforms)
            contents[f"{spec.name}_{name}.stablehlo"] = bytes(exported.serialize())
            if name == "step":
                contents[f"{spec.name}_step.mlir"] = exported.mlir_module()
        about = {**step.description(), "platforms": platforms, "jax": jax.__version__}
        files = write_files(Path(folder), contents | {f"{spec.name}.json": json.dumps(about, indent=2)})
        steps = reference.compare_steps(*reference.each_step(jax.jit(load_stablehlo(files[-1]).step), samples))
    size = sum(len(content) for name, content in contents.items() if name.endswith(".stablehlo"))
    messages = [
        f"StableHLO: {size} bytes for {', '.join(platforms)}, {step.dtype.name}.",
        *steps.messages("StableHLO, loaded again", TOLERANCE),
    ]
    return ExportReport("stablehlo", files, steps.passed(TOLERANCE), steps.difference, None, size, messages)


def load_stablehlo(path: str | os.PathLike) -> LoadedStep:
    """Load the functions that `export_stablehlo` has written; the twin is not needed.

    **Arguments:** `path` of the file NAME.json.

    **Returns:** the functions `init(t, x0, w, p)`, `step(t, w0, w1, p, state)` and `output(t, w, p, state)`, and
    `about`, the contents of NAME.json.

    **Raises:** `ValueError` if JAX runs in another precision than that of the export.

    **Example:**

    ```python
    twin = tw.Twin(lambda x: -x)
    spec = tw.export.ExportSpec("decay", ["x"], [], ["x"], dt=0.1, x0=[1.0])
    tw.export.export_stablehlo(twin, spec, "exported", samples=20)
    loaded = tw.export.load_stablehlo("exported/decay.json")
    state, y, status = loaded.init(0.0, jnp.ones(1), jnp.zeros(0), jnp.zeros(0))
    state, y, status = loaded.step(0.0, jnp.zeros(0), jnp.zeros(0), jnp.zeros(0), state)
    y  # [0.9048375], exp(-0.1) by RK4
    ```
    """
    path = Path(path)
    about = json.loads(path.read_text())
    if about["dtype"] == "float64" and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            f"{path.name}: the step was exported in float64, but JAX runs in float32. Call `twinfold.enable_x64()` (or "
            "set JAX_ENABLE_X64=1) before the first array is created."
        )

    def load(name: str) -> Callable:
        data = (path.parent / f"{about['name']}_{name}.stablehlo").read_bytes()
        return jax.export.deserialize(bytearray(data)).call

    return LoadedStep(load("init"), load("step"), load("output"), about)


def _export(fn: Callable, arguments: list[Any], platforms: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """The function for all platforms, or for this one if another lacks an operation (a factorisation, for instance)."""
    try:
        return jax.export.export(jax.jit(fn), platforms=platforms)(*arguments), platforms
    except (NotImplementedError, ValueError):
        own = (jax.default_backend(),)
        return jax.export.export(jax.jit(fn), platforms=own)(*arguments), own
