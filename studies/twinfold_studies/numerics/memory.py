"""Long horizons: memory of the gradient of a rollout, with and without rematerialisation."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold.model import MLP, hrpinn
from twinfold.numerics import Tangent, rollout
from twinfold.report import format_number
from twinfold.systems import two_body
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.store import Store

HORIZONS = (256, 1024, 4096, 16384, 65536)
QUICK = (256, 1024)
WIDTH = 64
COMPARED_STEPS = 256  # over which the gradients are compared


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """Memory against the horizon, its exponents, and the difference of the gradients."""
    horizons = QUICK if quick else HORIZONS
    log("memory of long horizons")
    rows = cached(store, "numerics-memory", [horizons, WIDTH, quick], lambda: [measure(count) for count in horizons])
    difference = cached(store, "numerics-memory-gradient", [COMPARED_STEPS, WIDTH], gradient_difference)
    exponents = {
        kind: _exponent([row["steps"] for row in rows], [row[f"{kind}_mb"] - row["trajectory_mb"] for row in rows])
        for kind in ("plain", "recomputed")
    }
    last = rows[-1]
    sentences = [
        f"The gradient of a rollout of {last['steps']} steps takes {last['plain_mb']:.3g} MB, and with remat=True "
        f"{last['recomputed_mb']:.3g} MB, of which {last['trajectory_mb']:.3g} MB are the trajectory.",
        f"Memory in addition to the trajectory grows as the horizon to the power {exponents['plain']:.2f}, and "
        f"{exponents['recomputed']:.2f} with remat=True. The relative difference of the gradients is "
        f"{format_number(difference)}.",
    ]
    table = Table(
        "memory",
        "Memory of a gradient against the horizon",
        rows,
        caption=f"Two-body, a grey box with two layers of {WIDTH}, RK4, fast projection, float64, one trajectory: "
        "memory that the compiled program allocates in addition to inputs and outputs. trajectory_mb: the states "
        "alone.",
    )
    summary = {
        "memory_exponent_plain": exponents["plain"],
        "memory_exponent_recomputed": exponents["recomputed"],
        "memory_gradient_difference": difference,
    }
    return Findings(sentences, [table], [_picture(rows)], summary)


def _program(count: int, remat: bool) -> tuple[Any, Any]:
    """The compiled gradient of the square of the last state with respect to all weights, and its arguments."""
    system = two_body()
    residual = MLP(adds_to=list(system.residual_adds_to), width=WIDTH, depth=2)
    twin = hrpinn(system.truth, residual, constraint=system.constraint, projection=Tangent())
    weights, rest = eqx.partition(twin.initialise(jax.random.key(0), states=4), eqx.is_inexact_array)
    x0 = system.draw(jax.random.key(1), 1)[0]

    def last(weights: Any, ts: jax.Array) -> jax.Array:
        out = rollout(eqx.combine(weights, rest).cell, x0, ts, remat=remat, throw=False)
        return jnp.sum(out.xs[-1] ** 2)

    ts = 0.01 * jnp.arange(count + 1)
    compiled = jax.jit(jax.grad(last)).lower(weights, ts).compile()
    return compiled, (weights, ts)


def measure(count: int) -> dict[str, Any]:
    """Megabytes of a rollout of this many steps."""
    memory = {
        f"{name}_mb": _program(count, remat)[0].memory_analysis().temp_size_in_bytes / 2**20
        for name, remat in (("plain", False), ("recomputed", True))
    }
    return {"steps": count} | memory | {"trajectory_mb": 8 * 4 * (count + 1) / 2**20}


def gradient_difference() -> float:
    """The relative difference of the two gradients."""
    vectors = []
    for remat in (False, True):
        program, arguments = _program(COMPARED_STEPS, remat)
        leaves = jax.tree.leaves(program(*arguments))
        vectors.append(np.concatenate([np.asarray(leaf).ravel() for leaf in leaves]))
    return float(np.linalg.norm(vectors[1] - vectors[0]) / np.linalg.norm(vectors[0]))


def _exponent(steps: list[int], megabytes: list[float]) -> float:
    return float(np.polyfit(np.log(steps), np.log(megabytes), 1)[0])


def _picture(rows: list[dict[str, Any]]) -> Picture:
    steps = np.array([row["steps"] for row in rows])
    columns = {"plain": "plain_mb", "remat=True": "recomputed_mb", "trajectory": "trajectory_mb"}

    def draw() -> Any:
        panel = {name: (steps, np.array([row[key] for row in rows])) for name, key in columns.items()}
        return curves({"Two-body, one trajectory": panel}, "steps", "memory of a gradient / MB")

    return Picture("memory", "Memory of a gradient against the horizon", "float64, see the table.", draw)
