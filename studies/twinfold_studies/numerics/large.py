"""Many constraints: what a projection costs, in time and memory, as a hanging chain and a power grid grow.

Sparse direct and matrix-free projections beside the dense one, as far as that goes, and beside the same Newton
iteration written with SciPy's sparse solver.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import RESULTS
from twinfold.model import Constraint
from twinfold.numerics import AbstractProjection, Krylov, Newton, Sparse
from twinfold.numerics._project.base import ProjectionProblem
from twinfold.numerics._project.matrices import SaddleMatrix
from twinfold.numerics._project.pattern import find_pattern
from twinfold.report import number
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.kept import kept
from twinfold_studies.bench.store import Store
from twinfold_studies.systems.chain import Chain
from twinfold_studies.systems.power_grid import PowerGrid

LINKS = (50, 150, 500, 1500, 5000, 15_000, 50_000)
QUICK_LINKS = (50, 500, 2000)
DECADES = (50, 500, 5000, 50_000)  # links of the chains that all methods are timed with, and their derivatives
MOST_DENSE = 150  # links that a dense projection is tried with
SIDES = (8, 16, 32, 48)
QUICK_SIDES = (6,)
STRAIN = 1e-5  # of the chain as a step leaves it
GENTLE = 2.0  # a strain of this over links^2 is what a step as long as its waves take from node to node leaves
MOVED = 1e-2  # of the grid's states
REPEATS, PATIENCE = 5, 4.0  # of each timing, unless they take longer than this, in seconds
DIRECT, FREE, DENSE, PEER = "sparse direct", "matrix-free", "dense", "SciPy sparse"


def find(store: Store, quick: bool, tell: Callable[[str], None]) -> Findings:
    """Time and memory against the number of states, and the exponents that they grow with."""
    links = QUICK_LINKS if quick else LINKS
    sides = QUICK_SIDES if quick else SIDES
    settings = [links, sides, STRAIN, GENTLE, MOVED, MOST_DENSE, REPEATS]
    found = kept(store, "numerics-large", [settings, quick], lambda: _measured(links, sides, quick, tell))
    chain, grid = found["chain"], found["grid"]
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
            "A hanging chain projected",
            chain,
            caption=f"One projection, compiled, best of {REPEATS}, float64. The predictor is stretched by {STRAIN:.0e} "
            f"(the matrix-free one's by {GENTLE:g} / links^2, that of a small time step). Memory is what the compiled "
            "program allocates, and the factors where there are any (counted by SuperLU).",
        ),
        Table(
            "grid",
            "A power grid projected",
            grid,
            caption=f"AC power flow on a square mesh, all states moved by {MOVED:g}; two constraints for four states.",
        ),
    ]
    pictures = [
        Picture(
            "growth",
            "Cost of a projection against the size of the chain",
            f"Between 1e3 and 1e5 states the time of the sparse direct one grows as n^{exponents['seconds']:.2f}, its "
            f"memory as n^{exponents['memory_mb']:.2f}.",
            lambda: _figure(chain),
        )
    ]
    return Findings(_words(chain, grid, exponents), tables, pictures, summary)


def _measured(links: Sequence[int], sides: Sequence[int], quick: bool, tell: Callable[[str], None]) -> dict[str, Any]:
    chain, grid = [], []
    for count in links:
        of = Chain(count)
        runs: list[tuple[str, AbstractProjection, float]] = [(DIRECT, Sparse(), STRAIN)]
        if count in DECADES and (count == DECADES[0] or not quick):
            runs += [(FREE, Krylov(), GENTLE / count**2)]
        if count <= MOST_DENSE:
            runs += [(DENSE, Newton(), STRAIN)]
        for name, projection, strain in runs:
            tell(f"large: chain of {count} links, {name}")
            x = of.predictor(strain)
            with_gradient = count in DECADES and name != DENSE and not quick
            chain.append(_row(name, of.constraint, x, projection, with_gradient) | {"strain": strain})
        tell(f"large: chain of {count} links, {PEER}")
        peer = _scipy(of.constraint, of.predictor(STRAIN))
        chain.append(peer | {"strain": STRAIN})
        chain[-len(runs) - 1]["memory_mb"] += peer["memory_mb"]
    for side in sides:
        of = PowerGrid(side)
        methods: dict[str, AbstractProjection] = {f"{DIRECT}, saddle": Sparse(factorise="saddle")}
        if not quick:
            methods |= {f"{DIRECT}, G G'": Sparse(factorise="normal"), FREE: Krylov(bandwidth=0)}
        for name, projection in methods.items():
            tell(f"large: grid of {side}^2 buses, {name}")
            grid.append(_row(name, of.constraint, of.predictor(MOVED), projection, False))
        tell(f"large: grid of {side}^2 buses, {PEER}")
        grid.append(_scipy(of.constraint, of.predictor(MOVED)))
    return {"chain": chain, "grid": grid}


def _row(
    name: str, constraint: Constraint, x: jax.Array, projection: AbstractProjection, with_gradient: bool
) -> dict[str, Any]:
    """Time, memory and violation of one projection, and the time with the reverse derivative."""
    level = constraint.level(0.0, x, {})

    def project(x: jax.Array) -> Any:
        return projection.project(constraint, 0.0, x, {}, level)

    began = time.perf_counter()
    compiled = jax.jit(project).lower(x).compile()
    compile_s = time.perf_counter() - began
    out, seconds = _timed(compiled, x)
    both = None
    if with_gradient:
        pull = jax.jit(lambda x, u: jax.vjp(lambda x: project(x).x, x)[1](u)[0]).lower(x, x).compile()
        _, both = _timed(pull, x, x)
    return {
        "method": name,
        "states": x.shape[0],
        "constraints": level.shape[0],
        "seconds": seconds,
        "with_gradient_s": both,
        "memory_mb": getattr(compiled.memory_analysis(), "temp_size_in_bytes", float("nan")) / 2**20,
        "steps": int(out.steps),
        "violation_before": float(jnp.max(jnp.abs(constraint.residual(0.0, x, {}, level)))),
        "violation": float(jnp.max(out.violation)),
        "solved": bool(out.result == RESULTS.successful),
        "compile_s": compile_s,
    }


def _timed(call: Callable, *arguments: Any) -> tuple[Any, float]:
    """What it returns, and the best of several times."""
    out = jax.block_until_ready(call(*arguments))
    times = []
    while len(times) < REPEATS and sum(times) < PATIENCE:
        began = time.perf_counter()
        jax.block_until_ready(call(*arguments))
        times.append(time.perf_counter() - began)
    return out, min(times)


def _scipy(constraint: Constraint, x: jax.Array) -> dict[str, Any]:
    """Newton's method on the KKT system with `scipy.sparse.linalg.splu`; matrices filled in by the same products."""
    import scipy.sparse
    import scipy.sparse.linalg

    level = constraint.level(0.0, x, {})
    pattern = find_pattern(ProjectionProblem(constraint, 0.0, x, {}, level, None))
    matrix = SaddleMatrix.of(pattern)
    n, m = pattern.n, pattern.m

    def residual(x: jax.Array) -> jax.Array:
        return constraint.residual(0.0, x, {}, level)

    @jax.jit
    def system(at: jax.Array, multiplier: jax.Array) -> tuple[jax.Array, jax.Array]:
        g, pull = jax.vjp(residual, at)
        values = matrix.values(pattern.curvatures(residual, at, multiplier), pattern.gradients(residual, at))
        return values, jnp.concatenate([x - at - pull(multiplier)[0], -g])

    def solve() -> tuple[jax.Array, int, float]:
        at, multiplier, factors = x, jnp.zeros(m), 0.0
        for step in range(30):
            values, right = system(at, multiplier)
            if step and np.max(np.abs(right[n:])) < 1e-10 and np.max(np.abs(right[:n])) < 1e-10:
                return at, step, factors
            sparse = scipy.sparse.csc_matrix((np.asarray(values), (matrix.rows, matrix.columns)), (n + m, n + m))
            lu = scipy.sparse.linalg.splu(sparse)
            factors = 12 * (lu.L.nnz + lu.U.nnz) / 2**20
            both = lu.solve(np.asarray(right))
            at, multiplier = at + both[:n], multiplier + both[n:]
        return at, 30, factors

    (at, steps, factors), seconds = _timed(solve)
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
    """The slope on two log axes, from a thousand states on."""
    large = [row for row in rows if row["states"] >= 1000]
    return float(np.polyfit(np.log([row["states"] for row in large]), np.log([row[name] for row in large]), 1)[0])


def _figure(rows: list[dict[str, Any]]) -> Any:
    panels = {}
    for title, key in (("Seconds", "seconds"), ("Megabytes", "memory_mb")):
        panel = {}
        for name in (DIRECT, FREE, DENSE, PEER):
            own = [row for row in rows if row["method"] == name]
            panel[name] = (np.array([row["states"] for row in own]), np.array([row[key] for row in own]))
        panels[title] = panel
    return curves(panels, "states", "per projection", columns=2)


def _words(chain: list[dict[str, Any]], grid: list[dict[str, Any]], exponents: dict[str, float]) -> list[str]:
    direct = [row for row in chain if row["method"] == DIRECT][-1]
    free = [row for row in chain if row["method"] == FREE][-1]
    dense = [row for row in chain if row["method"] == DENSE][-1]
    peer = [row for row in chain if row["method"] == PEER][-1]
    wide = max(grid, key=lambda row: (row["states"], -row["seconds"]))
    failed = [f"{row['method']} with {row['states']} states" for row in chain + grid if not row["solved"]]
    said = [
        f"Chain of {direct['constraints']:,} links, {direct['states']:,} states: projected from a violation of "
        f"{number(direct['violation_before'])} to {number(direct['violation'])} in {direct['seconds']:.2g} s and "
        f"{direct['steps']} steps by the sparse direct method; SciPy's sparse solver in the same iteration takes "
        f"{peer['seconds']:.2g} s.",
        f"Its time grows as n^{exponents['seconds']:.2f} and its memory as n^{exponents['memory_mb']:.2f}. "
        f"The dense projection takes {dense['seconds']:.2g} s at {dense['states']} states already.",
        f"Without any matrix: {free['seconds']:.2g} s and {free['memory_mb']:.2g} MB for {free['states']:,} states, "
        f"from a violation of {number(free['violation_before'])} (a small time step's) to {number(free['violation'])}.",
        f"Power grid, {wide['states']:,} states and {wide['constraints']:,} constraints: {wide['seconds']:.2g} s "
        f"({wide['method']}).",
        "All of them converged." if not failed else f"Not solved: {', '.join(failed)}.",
    ]
    if direct["with_gradient_s"] is not None:
        said.insert(1, f"With the exact reverse derivative it takes {direct['with_gradient_s']:.2g} s.")
    return said
