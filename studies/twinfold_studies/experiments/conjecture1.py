"""Conjecture 1, projection improves the convergence of training: final losses, and the proposed mechanism."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from twinfold.numerics import RK4, Cell, Newton, NoProjection, rollout
from twinfold.report import format_number
from twinfold.systems import System
from twinfold_studies.bench.cache import cached, record_skips
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves, dots
from twinfold_studies.bench.job import Job, restored_fit, training_problem
from twinfold_studies.bench.paper import CONJECTURE1 as PAPER
from twinfold_studies.bench.problems import problem
from twinfold_studies.bench.queue import Request
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import available, title
from twinfold_studies.systems import SYSTEMS

MODELS = ("phrpinn_robust", "pnode_robust", "pinn")
CONVERGED = 10.0  # a seed has converged if its final loss is within this factor of the lowest loss of its model
STEPS = (0.4, 0.2, 0.1, 0.05, 0.025)
SPAN = 4.0  # time over which step Jacobians are multiplied


def jobs(options: Options) -> list[Job]:
    return [
        Job(system, model, protocol, quick=options.quick)
        for protocol in options.protocols
        for system in options.systems
        for model in options.models
    ]


def requests(options: Options) -> list[Request]:
    return [Request(job, options.seeds) for job in jobs(options)]


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Final losses, singular values of steps and their products, spectra of the Gauss-Newton Hessian."""
    losses, spectra = [], []
    panels: dict[str, dict[str, np.ndarray]] = {}
    for _, job, result in available(((None, job) for job in jobs(options)), store, options.seeds):
        losses.append(_loss_row(job, result.losses))
        panels.setdefault(f"{problem(job.system_name).title}, {job.protocol}", {})[title(job.model)] = result.losses
        with record_skips(store):
            log(f"conjecture1: Gauss-Newton Hessian of {job.system_name} {job.model} {job.protocol}")
            spectrum = cached(store, f"hessian-{job.key}", [], lambda job=job: hessian_spectrum(job, store))
            spectra.append({"system": job.system_name, "model": job.model, "protocol": job.protocol} | spectrum)
    values = []
    for name in options.systems:
        values += cached(store, f"singular-{name}", [STEPS, SPAN], lambda name=name: singular_values(problem(name)))
    tables = [
        Table(
            "losses",
            "Final training loss",
            losses,
            caption=f"converged: the share of seeds whose final loss is within {CONVERGED:g} times the lowest. Losses "
            "of one protocol have the same scale; the scale of the paper's losses is not known.",
        ),
        Table(
            "hessian",
            "Gauss-Newton Hessian at the solution of the first seed",
            [{k: v for k, v in row.items() if k != "eigenvalues"} for row in spectra],
            caption="Eigenvalues below 1e-14 of the largest count as zero: the data do not determine their directions.",
        ),
        Table(
            "singular",
            "Singular values of the step Jacobian, and of its product over the span",
            values,
            caption=f"True field, RK4, {SPAN:g} units of time. A projected step has one zero singular value per "
            "constraint; `smallest` is the smallest of the others.",
        ),
    ]
    pictures = [Picture("losses", "Final training loss of every seed", "", lambda: dots(panels, "final training loss"))]
    if spectra:
        pictures.append(Picture("hessian", "Spectrum of the Gauss-Newton Hessian", "", lambda: _spectra(spectra)))
    return Findings(summarise(losses, spectra, values), tables, pictures if losses else [])


def _loss_row(job: Job, losses: np.ndarray) -> dict[str, Any]:
    finite = losses[np.isfinite(losses)]
    column = {"phrpinn_robust": 0, "pnode_robust": 1, "pinn": 2}.get(job.model)
    paper = PAPER.get(job.system_name, (None, None, None))[column] if column is not None else None
    lowest = finite.min() if len(finite) else np.nan
    return {
        "system": job.system_name,
        "model": job.model,
        "protocol": job.protocol,
        "seeds": len(losses),
        "loss_mean": float(losses.mean()),
        "loss_std": float(losses.std()),
        "loss_median": float(np.median(losses)),
        "loss_lowest": float(lowest),
        "converged": float(np.mean(losses <= CONVERGED * lowest)),
        "paper_mean": np.nan if paper is None else paper,
    }


def hessian_spectrum(job: Job, store: Store) -> dict[str, Any]:
    """Eigenvalues of J'J at the solution of the first seed, over all training data."""
    data = job.data(store.folder)
    stored = store.load(job, "fit", 1)
    assert stored is not None
    fitted = restored_fit(job, data, *stored)
    last_problem, _ = training_problem(job, data)
    v, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], fitted.params))

    @jax.jit
    def gramian(v: jax.Array) -> jax.Array:
        _, jacobian, _ = last_problem.residuals_and_jacobian(unravel(v))
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
    """Singular values of the step Jacobians and of their product, largest and smallest nonzero, against dt."""
    x0, rows = system.draw(jax.random.key(3), 1)[0], []
    level = system.constraint.level(0.0, x0, {})
    free = x0.shape[0] - level.shape[0]
    for projected in (False, True):
        cell = Cell(system.truth, None, RK4(), system.constraint, Newton() if projected else NoProjection())
        nonzero = free if projected else x0.shape[0]
        for dt in STEPS:
            ts = dt * jnp.arange(round(SPAN / dt) + 1)

            @jax.jit
            def values(ts: jax.Array, cell: Cell = cell, dt: float = dt) -> tuple[jax.Array, jax.Array]:
                xs = rollout(cell, x0, ts, throw=False).xs

                def jacobian(t: jax.Array, x: jax.Array) -> jax.Array:
                    return jax.jacfwd(lambda x: cell.step(t, jnp.array(dt), x, None, None, {}, level)[0].x)(x)

                steps = jax.vmap(jacobian)(ts[:-1], xs[:-1])
                product = jax.lax.fori_loop(0, steps.shape[0], lambda i, m: steps[i] @ m, jnp.eye(x0.shape[0]))
                return jnp.linalg.svd(steps, compute_uv=False), jnp.linalg.svd(product, compute_uv=False)

            single, product = (np.asarray(value) for value in values(ts))
            rows.append(
                {
                    "system": system.name,
                    "projected": projected,
                    "dt": dt,
                    "step_largest": float(single.max()),
                    "step_smallest": float(single[:, :nonzero].min()),
                    "product_largest": float(product.max()),
                    "product_smallest": float(product[:nonzero].min()),
                    "product_condition": float(product.max() / product[:nonzero].min()),
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


def summarise(losses: list[dict], spectra: list[dict], values: list[dict]) -> list[str]:
    """Final losses, determined directions and condition numbers of each system."""
    sentences = []
    for system, protocol in dict.fromkeys((r["system"], r["protocol"]) for r in losses):
        here = [r for r in losses if (r["system"], r["protocol"]) == (system, protocol)]
        listed = ", ".join(
            f"{title(r['model'])} {format_number(r['loss_mean'])} ({100 * r['converged']:.0f} % converged)"
            for r in here
        )
        sentences.append(f"{system}, {protocol}: mean final loss {listed}.")
    for row in spectra:
        sentences.append(
            f"{row['system']}, {title(row['model'])}: {row['determined']} of {row['weights']} directions determined, "
            f"condition {format_number(row['condition'])}."
        )
    for system in dict.fromkeys(r["system"] for r in values):
        pair = {r["projected"]: r for r in values if r["system"] == system and r["dt"] == STEPS[2]}
        sentences.append(
            f"{system}: over {SPAN:g} units of time the product of step Jacobians has condition "
            f"{format_number(pair[False]['product_condition'])} unprojected and "
            f"{format_number(pair[True]['product_condition'])} "
            "along the manifold when projected."
        )
    return sentences


CONJECTURE1 = Experiment(
    "conjecture1",
    "Conjecture 1: convergence of training",
    "Final training loss over 50 seeds, singular values of steps and products, Gauss-Newton spectrum at the solution.",
    full=Options(tuple(SYSTEMS), MODELS, 50, ("best",)),
    quick=Options(("mass_spring",), ("phrpinn_robust", "pinn"), 2, ("best",)),
    requests=requests,
    analyse=analyse,
)
