"""Twins to export, and their compiled step called from Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import twinfold as tw
from twinfold.export import ExportSpec
from twinfold.export._c.compiled import FLAGS, CompiledStep, build, find_compiler
from twinfold.export._step import AbstractStep, precision

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
STRICT = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"]


def compiled_step(source: Path, step: AbstractStep, *, flags: Sequence[str] = FLAGS) -> CompiledStep:
    """The step of a C file, compiled beside it."""
    library = build(find_compiler() or "", [source], source.with_suffix(".so"), flags=flags)
    return CompiledStep(library, step.spec.name, step.state_size, len(step.spec.outputs), step.dtype)


def lag(names: Sequence[str] = ("x",), **options: Any) -> tuple[tw.Twin, ExportSpec]:
    """The smallest twin with an input."""
    spec = ExportSpec("lag", names, ["u"], ["y"], dt=0.1, x0=[1.0], w_low=[-1], w_high=[1], **options)
    return tw.Twin(lambda x, w: w - x), spec


def pendulum(t, x, w, p):
    """A pendulum in Cartesian coordinates with a force."""
    pull = (x[2:] @ x[2:] - p["g"] * x[1]) / p["l"] ** 2
    return jnp.concatenate([x[2:], w - pull * x[:2] - jnp.array([0.0, 1.0]) * p["g"]])


def pendulum_twin(projection=None, input_interpolation: Any = "hold"):
    twin = tw.Twin(
        tw.GreyBox(pendulum, tw.MLP(states=[2, 3], adds_to=[2, 3], width=16, depth=2)),
        params={"l": 1.0, "g": tw.Unknown(9.81)},
        observe=lambda x, w: jnp.stack([jnp.arctan2(x[0], -x[1]), x[2] * w[0]]),
        constraint=None if projection is None else tw.Constraint(lambda x, p: x[:2] @ x[:2] - p["l"] ** 2),
        projection=projection,
        input_interpolation=input_interpolation,
    )
    with precision(np.float64):
        return twin.initialise(jr.key(0), states=4, inputs=2)


PENDULUM_SPEC = ExportSpec(
    "pendulum",
    ["x", "y", "vx", "vy"],
    ["ux", "uy"],
    ["angle", "power"],
    dt=0.01,
    x0=[0.6, -0.8, 0.0, 0.0],
    x_low=[-1, -1, -2, -2],
    x_high=[1, 1, 2, 2],
    w_low=[-1, -1],
    w_high=[1, 1],
    units={"vx": "m/s", "angle": "rad"},
)
