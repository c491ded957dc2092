"""Many constraints: time and memory of a projection against the size of a hanging chain and of a power grid.

Sparse direct and matrix-free projections, the dense one for small sizes, and the same Newton iteration with SciPy's
sparse solver.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold import RESULTS
from twinfold.model import Constraint
from twinfold.numerics import AbstractProjection, Krylov, Newton, Sparse
from twinfold.report import format_number
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.timing import best_time
from twinfold_studies.systems.chain import Chain
from twinfold_studies.systems.power_grid import PowerGrid

LINKS = (50, 150, 500, 1500, 5000, 15_000, 50_000)
QUICK_LINKS = (50, 500, 2000)
DECADES = (50, 500, 5000, 50_000)  # links for which all methods and their derivatives are timed
MAX_DENSE_LINKS = 150  # for which the dense projection is timed
SIDES = (8, 16, 32, 48)
QUICK_SIDES = (6,)
STRAIN = 1e-5  # of the chain after a step
GENTLE = 2.0  # over links^2: the strain after a time step in which waves travel from node to node
MOVED = 1e-2  # displacement of the states of the grid
REPEATS, MAX_SECONDS = 5, 4.0  # of each timing, and in total
SHIFT = 4e-15  # of the diagonal of the KKT matrix, so that no pivot is exactly zero
DIRECT, FREE, DENSE, PEER = "sparse direct", "matrix-free", "dense", "SciPy sparse"


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """Time and memory against the number of states, and their exponents."""
    links = QUICK_LINKS if quick else LINKS
    sides = QUICK_SIDES if quick else SIDES
    settings = [links, sides, STRAIN, GENTLE, MOVED, MAX_DENSE_LINKS, REPEATS]
    measured = cached(store, "numerics-large", [settings, quick], lambda: _measure(links, sides, quick, log))
    chain, grid = measured["chain"], measured["grid"]
    direct = [row for row in chain if row["method"] == DIRECT]
    long = direct[-1]
    exponents = {name: _exponent(direct, name) for name in ("seconds", "memory_mb")}
    summary = {
        "chain_growth_exponent": exponents["seconds"],
        "chain_memory_exponent": exponents["memory_mb"],
    }
    if long["states"] == 100_000:
        summary |= {"chain_100k_seconds": long["seconds"], "chain_100k_violation": long["violation"]}
    tables = [
        Table(
            "chain",
            "Projection of a hanging chain",
            chain,
            caption=f"One projection, compiled, best of {REPEATS}, float64. The predictor is stretched by "
            f"{STRAIN:.0e} (by {GENTLE:g} / links^2 for the matrix-free projection, as after a small time step). "
            "Memory: allocations of the compiled program, and the factors of direct methods (counted by SuperLU).",
        ),
        Table(
            "grid",
            "Projection of a power grid",
            grid,
            caption=f"AC power flow on a square mesh, all states moved by {MOVED:g}; two constraints for four states.",
        ),
    ]
    pictures = [
        Picture(
            "growth",
            "Cost of a projection against the size of the chain",
            f"Between 1e3 and 1e5 states the time of the sparse direct projection grows as "
            f"n^{exponents['seconds']:.2f}, its memory as n^{exponents['memory_mb']:.2f}.",
            lambda: _figure(chain),
        )
    ]
    return Findings(_summarise(chain, grid, exponents), tables, pictures, summary)


def _measure(links: Sequence[int], sides: Sequence[int], quick: bool, log: Callable[[str], None]) -> dict[str, Any]:
    chain, grid = [], []
    for count in links:
        model = Chain(count)
        runs: list[tuple[str, AbstractProjection, float]] = [(DIRECT, Sparse(), STRAIN)]
        if count in DECADES and (count == DECADES[0] or not quick):
            runs += [(FREE, Krylov(), GENTLE / count**2)]
        if count <= MAX_DENSE_LINKS:
            runs += [(DENSE, Newton(), STRAIN)]
        for name, projection, strain in runs:
            log(f"large: chain of {count} links, {name}")
            x = model.predictor(strain)
            with_gradient = count in DECADES and name != DENSE and not quick
            chain.append(_row(name, model.constraint, x, projection, with_gradient) | {"strain": strain})
        log(f"large: chain of {count} links, {PEER}")
        peer = _scipy_row(model.constraint, model.predictor(STRAIN))
        chain.append(peer | {"strain": STRAIN})
        chain[-len(runs) - 1]["memory_mb"] += peer["memory_mb"]
    for side in sides:
        model = PowerGrid(side)
        methods: dict[str, AbstractProjection] = {f"{DIRECT}, saddle": Sparse(factorise="saddle")}
        if not quick:
            methods |= {f"{DIRECT}, G G'": Sparse(factorise="normal"), FREE: Krylov(bandwidth=0)}
        for name, projection in methods.items():
            log(f"large: grid of {side}^2 buses, {name}")
            grid.append(_row(name, model.constraint, model.predictor(MOVED), projection, False))
        log(f"large: grid of {side}^2 buses, {PEER}")
        grid.append(_scipy_row(model.constraint, model.predictor(MOVED)))
    return {"chain": chain, "grid": grid}


def _row(
    name: str, constraint: Constraint, x: jax.Array, projection: AbstractProjection, with_gradient: bool
) -> dict[str, Any]:
    """Time, memory and violation of one projection, and the time including the reverse-mode derivative."""
    level = constraint.level(0.0, x, {})

    def project(x: jax.Array) -> Any:
        return projection.project(constraint, 0.0, x, {}, level)

    start = time.perf_counter()
    compiled = jax.jit(project).lower(x).compile()
    compile_s = time.perf_counter() - start
    out, seconds = best_time(lambda: compiled(x), REPEATS, max_seconds=MAX_SECONDS)
    with_gradient_s = None
    if with_gradient:
        pull = jax.jit(lambda x, u: jax.vjp(lambda x: project(x).x, x)[1](u)[0]).lower(x, x).compile()
        _, with_gradient_s = best_time(lambda: pull(x, x), REPEATS, max_seconds=MAX_SECONDS)
    return {
        "method": name,
        "states": x.shape[0],
        "constraints": level.shape[0],
        "seconds": seconds,
        "with_gradient_s": with_gradient_s,
        "memory_mb": getattr(compiled.memory_analysis(), "temp_size_in_bytes", float("nan")) / 2**20,
        "steps": int(out.steps),
        "violation_before": float(jnp.max(jnp.abs(constraint.residual(0.0, x, {}, level)))),
        "violation": float(jnp.max(out.violation)),
        "solved": bool(out.result == RESULTS.successful),
        "compile_s": compile_s,
    }


def _scipy_row(constraint: Constraint, x: jax.Array) -> dict[str, Any]:
    """Newton's method on the KKT system [I + H G'; G 0] with `scipy.sparse.linalg.splu` and derivatives by asdex."""
    import asdex
    import scipy.sparse
    import scipy.sparse.linalg

    level = constraint.level(0.0, x, {})
    n, m = x.shape[0], level.shape[0]

    def residual(x: jax.Array) -> jax.Array:
        return constraint.residual(0.0, x, {}, level)

    jacobian = asdex.jacobian(residual, x)
    hessian = asdex.hessian(lambda x, multiplier: jnp.sum(multiplier * residual(x)), x, level)
    g_rows, g_columns = np.asarray(jacobian(x).indices).T
    h_rows, h_columns = np.asarray(hessian(x, level).indices).T
    diagonal = np.arange(n + m)
    shift = SHIFT * (1 + 0.5 * np.sin(diagonal))
    identity = np.where(diagonal < n, 1 + shift, -shift)
    rows = np.concatenate([h_rows, n + g_rows, g_columns, diagonal])
    columns = np.concatenate([h_columns, g_columns, n + g_rows, diagonal])

    @jax.jit
    def system(at: jax.Array, multiplier: jax.Array) -> tuple[jax.Array, jax.Array]:
        g, pull = jax.vjp(residual, at)
        gradients = jacobian(at).data
        values = jnp.concatenate([hessian(at, multiplier).data, gradients, gradients, identity])
        return values, jnp.concatenate([x - at - pull(multiplier)[0], -g])

    def solve() -> tuple[jax.Array, int, float]:
        at, multiplier, factors = x, jnp.zeros(m), 0.0
        for step in range(30):
            values, right = system(at, multiplier)
            if step and np.max(np.abs(right[n:])) < 1e-10 and np.max(np.abs(right[:n])) < 1e-10:
                return at, step, factors
            matrix = scipy.sparse.csc_matrix((np.asarray(values), (rows, columns)), (n + m, n + m))
            lu = scipy.sparse.linalg.splu(matrix)
            factors = 12 * (lu.L.nnz + lu.U.nnz) / 2**20
            both = lu.solve(np.asarray(right))
            at, multiplier = at + both[:n], multiplier + both[n:]
        return at, 30, factors

    (at, steps, factors), seconds = best_time(solve, REPEATS, max_seconds=MAX_SECONDS)
    violation = float(jnp.max(jnp.abs(residual(at))))
    return {
        "method": PEER,
        "states": n,
        "constraints": m,
        "seconds": seconds,
        "with_gradient_s": None,
        "memory_mb": factors,
        "steps": steps,
        "violation_before": float(jnp.max(jnp.abs(residual(x)))),
        "violation": violation,
        "solved": violation < 1e-10,
        "compile_s": None,
    }


def _exponent(rows: list[dict[str, Any]], name: str) -> float:
    """The slope on log-log axes, from a thousand states on."""
    large = [row for row in rows if row["states"] >= 1000]
    return float(np.polyfit(np.log([row["states"] for row in large]), np.log([row[name] for row in large]), 1)[0])


def _figure(rows: list[dict[str, Any]]) -> Any:
    panels = {}
    for title, key in (("Seconds", "seconds"), ("Megabytes", "memory_mb")):
        panel = {}
        for name in (DIRECT, FREE, DENSE, PEER):
            here = [row for row in rows if row["method"] == name]
            panel[name] = (np.array([row["states"] for row in here]), np.array([row[key] for row in here]))
        panels[title] = panel
    return curves(panels, "states", "per projection", columns=2)


def _summarise(chain: list[dict[str, Any]], grid: list[dict[str, Any]], exponents: dict[str, float]) -> list[str]:
    direct = [row for row in chain if row["method"] == DIRECT][-1]
    free = [row for row in chain if row["method"] == FREE][-1]
    dense = [row for row in chain if row["method"] == DENSE][-1]
    peer = [row for row in chain if row["method"] == PEER][-1]
    wide = max(grid, key=lambda row: (row["states"], -row["seconds"]))
    failed = [f"{row['method']} with {row['states']} states" for row in chain + grid if not row["solved"]]
    sentences = [
        f"Chain of {direct['constraints']:,} links, {direct['states']:,} states: the sparse direct projection reduces "
        f"the violation from {format_number(direct['violation_before'])} to {format_number(direct['violation'])} in "
        f"{direct['seconds']:.2g} s and {direct['steps']} steps; the same iteration with SciPy's sparse solver takes "
        f"{peer['seconds']:.2g} s.",
        f"Its time grows as n^{exponents['seconds']:.2f} and its memory as n^{exponents['memory_mb']:.2f}. "
        f"The dense projection takes {dense['seconds']:.2g} s for {dense['states']} states.",
        f"Matrix-free: {free['seconds']:.2g} s and {free['memory_mb']:.2g} MB for {free['states']:,} states, from a "
        f"violation of {format_number(free['violation_before'])} (a small time step) to "
        f"{format_number(free['violation'])}.",
        f"Power grid, {wide['states']:,} states and {wide['constraints']:,} constraints: {wide['seconds']:.2g} s "
        f"({wide['method']}).",
        "All projections converged." if not failed else f"Not solved: {', '.join(failed)}.",
    ]
    if direct["with_gradient_s"] is not None:
        sentences.insert(1, f"With the exact reverse-mode derivative it takes {direct['with_gradient_s']:.2g} s.")
    return sentences
