"""How long the battery takes: one discharge simulated, one gradient over thirty, one joint fit; the paper's beside."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from twinfold.model._simulation import simulate_unchecked
from twinfold.train import prepare
from twinfold_studies.battery.calibrate import shared_fit
from twinfold_studies.battery.cells import EVERY, Cells, pairs, runs_of
from twinfold_studies.battery.models import MODELS

DISCHARGES = 30
REPEATS = 7


def speed(cells: Cells) -> list[dict[str, Any]]:
    """Seconds of each, the best of several, compiled before; those of the fit with what it compiles."""
    found = pairs(cells)
    model = MODELS["hrpinn"]
    fitted = shared_fit(model, found, 1)
    run = runs_of([found[0].next], every=EVERY).runs[0]
    twin = fitted.twin
    p = twin.parameters(found[0].first.name)
    assert run.w is not None
    ts, w = jnp.asarray(run.ts), jnp.asarray(run.w)
    x0 = twin.initial_state(ts[0], jnp.asarray(run.y[0]), w[0], p)
    one = _best(lambda: simulate_unchecked(twin, x0, ts, w, p, None))
    several = runs_of([each for pair in found for each in (pair.first, pair.next)][:DISCHARGES], every=EVERY)
    _, (problem,), params = prepare(model.build(True), several, loss=model.loss, methods=model.method[-1:])
    first = jax.tree.map(lambda leaf: leaf[0], params)
    gradient = eqx.filter_jit(jax.value_and_grad(problem.training_loss))
    slope = _best(lambda: gradient(first))
    return [
        _row("one discharge simulated", one, 5e-3, 3.51),
        _row(f"one gradient over {len(several)} discharges", slope, 0.1, None),
        _row(f"joint fit of {len(found)} cells, compiling included", fitted.seconds, 60.0, 1372.0),
    ]


def _row(what: str, seconds: float, asked: float, paper: float | None) -> dict[str, Any]:
    return {"what": what, "seconds": seconds, "asked_s": asked, "paper_s": float("nan") if paper is None else paper}


def _best(run: Callable[[], Any]) -> float:
    jax.block_until_ready(run())
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - began)
    return min(times)
