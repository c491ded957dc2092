"""Conjecture 1: projection makes training converge better. The losses, and the mechanism that is said to cause them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from twinfold.numerics import RK4, Cell, Newton, NoProjection, rollout
from twinfold.report import number
from twinfold.systems import System
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves, dots
from twinfold_studies.bench.job import Job, prepared, restored
from twinfold_studies.bench.kept import kept, unless_left
from twinfold_studies.bench.paper import CONJECTURE1 as PAPER
from twinfold_studies.bench.problems import problem
from twinfold_studies.bench.queue import Wanted
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import computed, title
from twinfold_studies.systems.registry import SYSTEMS

MODELS = ("phrpinn_robust", "pnode_robust", "pinn")
NEAR = 10.0  # converged: a final loss within this factor of the lowest of all seeds of the model
STEPS = (0.4, 0.2, 0.1, 0.05, 0.025)
SPAN = 4.0  # units of time over which products of step Jacobians are taken


def jobs(options: Options) -> list[Job]:
    return [
        Job(system, model, protocol, quick=options.quick)
        for protocol in options.protocols
        for system in options.systems
        for model in options.models
    ]


def wanted(options: Options) -> list[Wanted]:
    return [Wanted(job, options.seeds) for job in jobs(options)]


def find(store: Store, options: Options, tell: Callable[[str], None]) -> Findings:
    """Final losses, singular values of steps and their products, spectra of the Gauss-Newton Hessian."""
    losses, spectra = [], []
    panels: dict[str, dict[str, np.ndarray]] = {}
    for _, job, cell in computed(((None, job) for job in jobs(options)), store, options.seeds):
        losses.append(_loss_row(job, cell.losses))
        panels.setdefault(f"{problem(job.system).title}, {job.protocol}", {})[title(job.model)] = cell.losses
        with unless_left(store):
            tell(f"conjecture1: Gauss-Newton Hessian of {job.system} {job.model} {job.protocol}")
            found = kept(store, f"hessian-{job.key}", [], lambda job=job: spectrum(job, store))
            spectra.append({"system": job.system, "model": job.model, "protocol": job.protocol} | found)
    values = []
    for name in options.systems:
        values += kept(store, f"singular-{name}", [STEPS, SPAN], lambda name=name: singular_values(problem(name)))
    tables = [
        Table(
            "losses",
            "Final training loss",
            losses,
            caption=f"converged: the share of seeds whose final loss is within {NEAR:g} times the lowest. Losses "
            "of one protocol are in the same units; the paper's are in its own.",
        ),
        Table(
            "hessian",
            "Gauss-Newton Hessian at the first seed's solution",
            [{k: v for k, v in row.items() if k != "eigenvalues"} for row in spectra],
            caption="Eigenvalues below 1e-14 of the largest count as zero: directions that the data do not determine.",
        ),
        Table(
            "singular",
            "Singular values of the step Jacobian, and of its product over the span",
            values,
            caption=f"Exact field, RK4, {SPAN:g} units of time. A projected step has a singular value of zero for each "
            "constraint; smallest is the smallest of the others.",
        ),
    ]
    pictures = [Picture("losses", "Final training loss of every seed", "", lambda: dots(panels, "final training loss"))]
    if spectra:
        pictures.append(Picture("hessian", "Spectrum of the Gauss-Newton Hessian", "", lambda: _spectra(spectra)))
    return Findings(words(losses, spectra, values), tables, pictures if losses else [])


def _loss_row(job: Job, losses: np.ndarray) -> dict[str, Any]:
    finite = losses[np.isfinite(losses)]
    place = {"phrpinn_robust": 0, "pnode_robust": 1, "pinn": 2}.get(job.model)
    paper = PAPER.get(job.system, (None, None, None))[place] if place is not None else None
    lowest = finite.min() if len(finite) else np.nan
    return {
        "system": job.system,
        "model": job.model,
        "protocol": job.protocol,
        "seeds": len(losses),
        "loss_mean": float(losses.mean()),
        "loss_std": float(losses.std()),
        "loss_median": float(np.median(losses)),
        "loss_lowest": float(lowest),
        "converged": float(np.mean(losses <= NEAR * lowest)),
        "paper_mean": np.nan if paper is None else paper,
    }


def spectrum(job: Job, store: Store) -> dict[str, Any]:
    """Eigenvalues of J'J at the solution of the first seed, on all training data."""
    data = job.data(store.folder)
    stored = store.load(job, "fit", 1)
    assert stored is not None
    fitted = restored(job, data, *stored)
    whole, _ = prepared(job, data)
    v, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], fitted.params))

    @jax.jit
    def gramian(v: jax.Array) -> jax.Array:
        _, jacobian, _ = whole.objective.residuals_and_jacobian(
            lambda v: whole.estimate(unravel(v)), v, whole.batch, whole.windows
        )
        return jacobian.T @ jacobian

    values = np.linalg.eigvalsh(np.asarray(gramian(v)))[::-1]
    usable = values[values > 1e-14 * values[0]]
    return {
        "weights": len(values),
        "determined": len(usable),
        "largest": float(values[0]),
        "smallest": float(usable[-1]),
        "condition": float(usable[0] / usable[-1]),
        "eigenvalues": [float(value) for value in np.maximum(values, 0)],
    }


def singular_values(system: System) -> list[dict[str, Any]]:
    """Of one step (largest, and smallest that is not zero by construction) and of their product, against dt."""
    x0, rows = system.draw(jax.random.key(3), 1)[0], []
    level = system.constraint.level(0.0, x0, {})
    free = x0.shape[0] - level.shape[0]
    for projected in (False, True):
        cell = Cell(system.truth, None, RK4(), system.constraint, Newton() if projected else NoProjection())
        kept_values = free if projected else x0.shape[0]
        for dt in STEPS:
            ts = dt * jnp.arange(round(SPAN / dt) + 1)

            @jax.jit
            def along(ts: jax.Array, cell: Cell = cell, dt: float = dt) -> tuple[jax.Array, jax.Array]:
                xs = rollout(cell, x0, ts, throw=False).xs

                def jacobian(t: jax.Array, x: jax.Array) -> jax.Array:
                    return jax.jacfwd(lambda x: cell.step(t, jnp.array(dt), x, lambda _: None, {}, level).x)(x)

                each = jax.vmap(jacobian)(ts[:-1], xs[:-1])
                product = jax.lax.fori_loop(0, each.shape[0], lambda i, m: each[i] @ m, jnp.eye(x0.shape[0]))
                return jnp.linalg.svd(each, compute_uv=False), jnp.linalg.svd(product, compute_uv=False)

            single, whole = (np.asarray(value) for value in along(ts))
            rows.append(
                {
                    "system": system.name,
                    "projected": projected,
                    "dt": dt,
                    "step_largest": float(single.max()),
                    "step_smallest": float(single[:, :kept_values].min()),
                    "product_largest": float(whole.max()),
                    "product_smallest": float(whole[:kept_values].min()),
                    "product_condition": float(whole.max() / whole[:kept_values].min()),
                }
            )
    return rows


def _spectra(rows: list[dict[str, Any]]) -> Any:
    panels: dict[str, dict] = {}
    for row in rows:
        values = np.array(row["eigenvalues"])
        panel = panels.setdefault(f"{problem(row['system']).title}, {row['protocol']}", {})
        panel[title(row["model"])] = (1.0 + np.arange(len(values)), values / values[0])
    return curves(panels, "index", "eigenvalue / largest", log=(False, True), markers=False)


def words(losses: list[dict], spectra: list[dict], values: list[dict]) -> list[str]:
    """Whether the conjecture holds on each system, and what the mechanism does."""
    said = []
    for system, protocol in dict.fromkeys((r["system"], r["protocol"]) for r in losses):
        here = [r for r in losses if (r["system"], r["protocol"]) == (system, protocol)]
        listed = ", ".join(
            f"{title(r['model'])} {number(r['loss_mean'])} ({100 * r['converged']:.0f} % converged)" for r in here
        )
        said.append(f"{system}, {protocol}: mean final loss {listed}.")
    for row in spectra:
        said.append(
            f"{row['system']}, {title(row['model'])}: {row['determined']} of {row['weights']} directions determined, "
            f"condition {number(row['condition'])}."
        )
    for system in dict.fromkeys(r["system"] for r in values):
        pair = {r["projected"]: r for r in values if r["system"] == system and r["dt"] == STEPS[2]}
        said.append(
            f"{system}: over {SPAN:g} units of time the product of step Jacobians has condition "
            f"{number(pair[False]['product_condition'])} unprojected and {number(pair[True]['product_condition'])} "
            "along the manifold when projected."
        )
    return said


CONJECTURE1 = Experiment(
    "conjecture1",
    "Conjecture 1: convergence of training",
    "Final training loss over 50 seeds, singular values of steps and products, Gauss-Newton spectrum at the solution.",
    full=Options(tuple(SYSTEMS), MODELS, 50, ("best",)),
    quick=Options(("mass_spring",), ("phrpinn_robust", "pinn"), 2, ("best",)),
    wanted=wanted,
    find=find,
)
