"""The twin as StableHLO: artefacts of `jax.export`, which JAX loads without the twin, and the program as text."""

import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np

from twinfold.export._reference import Reference, difference, reference_of
from twinfold.export._report import ExportReport
from twinfold.export._spec import ExportSpec
from twinfold.export._step import precision
from twinfold.io import atomic_write
from twinfold.model import Twin

TOLERANCE = 1e-12
PLATFORMS = ("cpu", "cuda", "tpu")


@dataclass(frozen=True)
class LoadedStep:
    """`init`, `step` and `output` of an exported twin, and what its JSON file says of them."""

    init: Callable
    step: Callable
    output: Callable
    about: dict[str, Any]


def export_stablehlo(
    twin: Twin,
    spec: ExportSpec,
    folder: str | os.PathLike,
    *,
    states: int = 1000,
    reference: Reference | None = None,
) -> ExportReport:
    """Write NAME_init, NAME_step and NAME_output as `.stablehlo` (for `load_stablehlo`), NAME_step.mlir and NAME.json.

    **Arguments:** `twin`, fitted; `spec`; `folder`; `states` from which one step of what was written is compared with
    the twin; `reference`, what the twin does, where it is known already.

    **Returns:** an `ExportReport`.
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError("StableHLO is written with flatbuffers: pip install 'twinfold[stablehlo]'.")
    folder = Path(folder)
    if reference is None:
        reference = reference_of(twin, spec, states=states, horizon=1)
    step, files, size = reference.step, [], 0
    platforms: tuple[str, ...] = PLATFORMS
    with precision(step.dtype):
        for name, (fn, shapes, _) in step.functions.items():
            arguments = [jax.ShapeDtypeStruct(shape, step.dtype) for shape in shapes.values()]
            exported, platforms = _exported(fn, arguments, platforms)
            contents = {f"{spec.name}_{name}.stablehlo": bytes(exported.serialize())}
            if name == "step":
                contents[f"{spec.name}_step.mlir"] = exported.mlir_module().encode()
            files += [_written(folder / file, data) for file, data in contents.items()]
            size += len(contents[f"{spec.name}_{name}.stablehlo"])
    about = {**step.description(), "platforms": platforms, "jax": jax.__version__}
    files.append(_written(folder / f"{spec.name}.json", json.dumps(about, indent=2).encode()))
    with precision(step.dtype):
        loaded, known = load_stablehlo(files[-1]), reference.steps
        several = jax.jit(lambda *samples: jax.lax.map(lambda s: loaded.step(*s[:3], step.defaults, s[3]), samples))
        count = min(states, len(known.t))
        found = several(known.t[:count], known.w0[:count], known.w1[:count], known.state[:count])
        after, y, status = (np.asarray(value) for value in found)
    off = difference(step, after, y, known.after[:count], known.y[:count])
    passed = off <= TOLERANCE and bool((status == known.status[:count]).all())
    words = [
        f"StableHLO: {size} bytes for {', '.join(platforms)}, {step.dtype.name}.",
        f"StableHLO: loaded again, one step from {count} states differs from the twin by at most {off:.1e} "
        f"({TOLERANCE:.0e} allowed): {'passed' if passed else 'FAILED'}.",
    ]
    return ExportReport("stablehlo", files, passed, off, None, size, words)


def load_stablehlo(path: str | os.PathLike) -> LoadedStep:
    """The functions that `export_stablehlo` has written, from its NAME.json; without the twin they came from.

    **Raises:** `ValueError` where JAX runs in another precision than that of the export.
    """
    path = Path(path)
    about = json.loads(path.read_text())
    if about["dtype"] == "float64" and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            f"{path.name}: the step was exported in float64, and JAX runs in float32 here. Call "
            "`twinfold.enable_x64()` (or set JAX_ENABLE_X64=1) before the first array is made, or export in float32."
        )

    def loaded(name: str) -> Callable:
        data = (path.parent / f"{about['name']}_{name}.stablehlo").read_bytes()
        return jax.export.deserialize(bytearray(data)).call

    return LoadedStep(loaded("init"), loaded("step"), loaded("output"), about)


def _exported(fn: Callable, arguments: list[Any], platforms: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """The function for all platforms, or for this one where another lacks something (a factorisation, say)."""
    try:
        return jax.export.export(jax.jit(fn), platforms=platforms)(*arguments), platforms
    except (NotImplementedError, ValueError):
        alone = (jax.default_backend(),)
        return jax.export.export(jax.jit(fn), platforms=alone)(*arguments), alone


def _written(path: Path, data: bytes) -> Path:
    with atomic_write(path) as file:
        file.write(data)
    return path
