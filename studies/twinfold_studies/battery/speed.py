"""Times of the battery: simulation of one discharge, one gradient over thirty, one joint fit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from twinfold.model import simulate_unchecked
from twinfold.train import prepare
from twinfold_studies.battery.calibrate import shared_fit
from twinfold_studies.battery.cells import SAMPLE_INTERVAL, Cells, pairs, runs_of
from twinfold_studies.battery.models import MODELS
from twinfold_studies.bench.timing import best_time

DISCHARGES = 30
REPEATS = 7


def speed(cells: Cells) -> list[dict[str, Any]]:
    """Best times after compilation; that of the fit includes compilation."""
    all_pairs = pairs(cells)
    model = MODELS["hrpinn"]
    fitted = shared_fit(model, all_pairs, 1)
    run = runs_of([all_pairs[0].next], interval=SAMPLE_INTERVAL).runs[0]
    twin = fitted.twin
    p = twin.parameters(all_pairs[0].first.name)
    assert run.w is not None
    ts, w = jnp.asarray(run.ts), jnp.asarray(run.w)
    x0 = twin.initial_state(ts[0], jnp.asarray(run.y[0]), w[0], p)
    _, simulation = best_time(lambda: simulate_unchecked(twin, x0, ts, w, p), REPEATS)
    several = runs_of(
        [each for pair in all_pairs for each in (pair.first, pair.next)][:DISCHARGES], interval=SAMPLE_INTERVAL
    )
    _, (problem,), params = prepare(model.build(True), several, loss=model.loss, methods=model.method[-1:])
    first = jax.tree.map(lambda leaf: leaf[0], params)
    gradient = eqx.filter_jit(jax.value_and_grad(problem.training_loss))
    _, slope = best_time(lambda: gradient(first), REPEATS)
    return [
        _row("one discharge simulated", simulation, 5e-3, 3.51),
        _row(f"one gradient over {len(several)} discharges", slope, 0.1, None),
        _row(f"joint fit of {len(all_pairs)} cells, compiling included", fitted.seconds, 60.0, 1372.0),
    ]


def _row(what: str, seconds: float, target: float, paper: float | None) -> dict[str, Any]:
    return {"what": what, "seconds": seconds, "asked_s": target, "paper_s": float("nan") if paper is None else paper}
