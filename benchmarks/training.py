"""What a robust projection costs in training: `python -m benchmarks.training`, the second part of `make bench`.

- `robust_untrained`: value and gradient of a rollout with random weights, where projections are hardest, over the same
  without projection (5 seeds x 10 trajectories x 100 steps, float64);
- `fit_ratio`: the default `fit` of PHRPINN robust over that of HRPINN, compilation included as users wait for it.

Adds its figures to `latest.json`, or on an accelerator writes `gpu.json`.
"""

import argparse
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree
from rich.console import Console
from rich.table import Table
from twinfold_studies.bench.contenders import model_for
from twinfold_studies.bench.problems import full_sizes, make_data
from twinfold_studies.systems import SYSTEMS, system

import twinfold as tw
from benchmarks.surroundings import machine, versions

SEEDS, RUNS, STEPS, ROUNDS = 5, 10, 100, 5
WEIGHTS = 450
TARGETS = {"cpu": {"robust_untrained_max": 1.8, "fit_ratio_max": 1.3}, "gpu": {"robust_untrained_max": 3.0}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="names, separated by commas")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--without-fits", action="store_true", help="leave out `fit_ratio`, which takes minutes")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    tw.enable_x64()
    backend = "cpu" if jax.default_backend() == "cpu" else "gpu"
    out = options.out or Path(__file__).parent / ("latest.json" if backend == "cpu" else "gpu.json")
    console = Console(width=130)
    names = options.systems.split(",")
    untrained = {}
    for name in names:
        untrained[name] = untrained_cost(name, options.seeds)
        console.print(f"{name}: {untrained[name]}", highlight=False)
    fits = {}
    for name in () if options.without_fits else names:
        fits[name] = fit_cost(name)
        console.print(f"{name}: {fits[name]}", highlight=False)
    figures = figures_of(untrained, fits, TARGETS[backend])
    show(console, untrained, fits)
    about = {"versions": versions(), "machine": machine() | {"device": jax.devices()[0].device_kind}}
    before = json.loads(out.read_text()) if out.exists() else about
    out.write_text(json.dumps(before | figures, indent=2) + "\n")
    console.print(f"Written to {out}.", highlight=False)


def untrained_cost(name: str, seeds: int) -> dict[str, float]:
    """Seconds of value and gradient without and with the robust projection, best of interleaved rounds."""
    projected = model_for("phrpinn_robust", system(name), parameters=WEIGHTS)
    twins = {"none": eqx.tree_at(lambda twin: twin.cell.projection, projected, tw.NoProjection()), "robust": projected}
    work: dict[str, Callable[[], Any]] = {}
    compiled = {}
    for label, twin in twins.items():
        step, weights = value_and_gradient(name, twin, seeds)
        began = time.perf_counter()
        jax.block_until_ready(step(weights))
        compiled[label] = time.perf_counter() - began
        work[label] = lambda step=step, weights=weights: jax.block_until_ready(step(weights))
    best = dict.fromkeys(work, float("inf"))
    for _ in range(ROUNDS):
        for label, call in work.items():
            began = time.perf_counter()
            call()
            best[label] = min(best[label], time.perf_counter() - began)
    return {
        "ratio": round(best["robust"] / best["none"], 3),
        "none_ms": round(1e3 * best["none"], 2),
        "robust_ms": round(1e3 * best["robust"], 2),
        "none_compile_s": round(compiled["none"], 1),
        "robust_compile_s": round(compiled["robust"], 1),
    }


def value_and_gradient(name: str, twin: tw.Twin, seeds: int) -> tuple[Callable, PyTree]:
    """The compiled function of the weights of all seeds, and random weights."""
    of = system(name)
    ts, starts = of.dt * jnp.arange(STEPS + 1), of.draw(jax.random.key(7), RUNS)
    drawn = [twin.initialise(jax.random.key(seed), states=len(of.state_names)) for seed in range(seeds)]
    parts = [eqx.partition(each, eqx.is_inexact_array) for each in drawn]
    weights = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(part[0] for part in parts))

    def loss(weights: PyTree) -> Float[Array, ""]:
        def one(weights: PyTree) -> Float[Array, ""]:
            cell = eqx.combine(weights, parts[0][1]).cell
            return jnp.mean(jax.vmap(lambda x: tw.rollout(cell, x, ts, throw=False).xs)(starts) ** 2)

        return jnp.sum(jax.vmap(one)(weights))

    return jax.jit(jax.value_and_grad(loss)), weights


def fit_cost(name: str) -> dict[str, float]:
    """Seconds of the default fits with one seed, as a user runs them."""
    of = system(name)
    data = make_data(name, full_sizes(of), Path("runs") / "benchmarks" / "data")
    seconds = {}
    for label in ("hrpinn", "phrpinn_robust"):
        jax.clear_caches()
        began = time.perf_counter()
        tw.fit(model_for(label, of, parameters=WEIGHTS), data.train, valid=data.valid, progress=False)
        seconds[label] = time.perf_counter() - began
    return {
        "ratio": round(seconds["phrpinn_robust"] / seconds["hrpinn"], 3),
        **{f"{label}_s": round(value, 1) for label, value in seconds.items()},
    }


def figures_of(untrained: dict, fits: dict, targets: dict[str, float]) -> dict[str, Any]:
    """The figures by the keys of the file."""
    figures: dict[str, Any] = {
        "robust_untrained": {name: row["ratio"] for name, row in untrained.items()},
        "robust_untrained_max": max(row["ratio"] for row in untrained.values()),
        "robust_untrained_details": untrained,
    }
    if fits:
        figures |= {
            "fit_ratio": {name: row["ratio"] for name, row in fits.items()},
            "fit_ratio_max": max(row["ratio"] for row in fits.values()),
            "fit_ratio_details": fits,
        }
    # The other figures of the file may be of another day.
    about = {"training_date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
    return figures | about | {"training_targets": {key: f"<= {limit}" for key, limit in targets.items()}}


def show(console: Console, untrained: dict, fits: dict) -> None:
    """The ratios as a table."""
    table = Table(title="Robust projection in training, over none", title_justify="left")
    for column in ("system", "untrained", "compile s", "default fit"):
        table.add_column(column, justify="left" if column == "system" else "right")
    for name, row in untrained.items():
        compiled = f"{row['robust_compile_s']:.1f} ({row['none_compile_s']:.1f})"
        table.add_row(name, f"{row['ratio']:.2f}", compiled, f"{fits[name]['ratio']:.2f}" if name in fits else "-")
    console.print(table)


if __name__ == "__main__":
    main()
