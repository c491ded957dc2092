"""Why most seeds of a projected model are stuck under the protocol `paper`, and which stages avoid it.

On an oscillator the loss of whole trajectories has a local minimum at a wrong frequency; see `landscape_rows`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.metrics import evaluate
from twinfold.numerics import RK4, AbstractProjection, Cell, Newton, NoProjection, rollout
from twinfold.report import format_number
from twinfold.train import AbstractMethod, Adam, fit
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.problems import problem
from twinfold_studies.bench.protocols import describe_stages, protocol
from twinfold_studies.bench.queue import Request
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.tables import CONVERGED, constant_job, constant_mae

MODEL, SYSTEM = "phrpinn_fast", "mass_spring"
WINDOWS = (101, 51, 26, 11)  # samples
STIFFNESSES = np.linspace(-0.3, 1.6, 77)


def adam(epochs: int, window: int | None = None, batch: int = 1) -> AbstractMethod:
    """A stage with the settings of the paper; a batch has the windows of one trajectory: 30 updates in an epoch."""
    return Adam(epochs, learning_rate=1e-3, batch_size=batch, plateau=(0.5, 25), window=window)


# Which stages are projected, and the stages: 500 epochs in all, as in the paper.
SCHEDULES: dict[str, tuple[Any, tuple[AbstractMethod, ...]]] = {
    "250 unprojected, 250 projected": ("late", (adam(250), adam(250))),
    "250 on windows of 51 samples, 250 on whole trajectories": ("always", (adam(250, 51, 2), adam(250))),
    "100 on windows of 11 samples, 400 on whole trajectories": ("always", (adam(100, 11, 10), adam(400))),
}


def job_of(options: Options) -> Job:
    return Job(SYSTEM, MODEL, "paper", quick=options.quick)


def requests(options: Options) -> list[Request]:
    """The fit of the protocol itself, and the constant."""
    return [Request(job_of(options), options.seeds, dtw=not options.quick), Request(constant_job(job_of(options)), 1)]


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """The share of seeds that converge under each schedule, and the loss against the frequency."""
    job = job_of(options)
    limit = CONVERGED * constant_mae(job, store)
    found = {}
    result = store.result(job, options.seeds, allow_fewer=True)
    if result is not None:
        found["500 on whole trajectories, projected (`paper`)"] = result.by_seed("train", "mae")
    for name in () if options.quick else SCHEDULES:
        log(f"trap: {name}")
        settings = [SYSTEM, MODEL, name, options.seeds, describe_stages(protocol("paper"))]
        errors = cached(store, f"trap-{SYSTEM}", settings, lambda name=name: scheduled(job, name, options.seeds, store))
        found[name] = np.array(errors)
    rows = [
        {
            "epochs": name,
            "seeds": len(mae),
            "converged": int((mae <= limit).sum()),
            "mae_mean": float(mae.mean()),
            "mae_median": float(np.median(mae)),
            "mae_max": float(mae.max()),
        }
        for name, mae in found.items()
    ]
    losses = cached(store, f"trap-landscape-{SYSTEM}", [WINDOWS, options.quick], lambda: landscape_rows(job, store))
    tables = [
        Table(
            "summary",
            f"PHRPINN fast on {problem(SYSTEM).title}, by schedule",
            rows,
            caption="Adam 1e-3, learning rate halved on plateaus, 500 epochs of 30 updates, raw data. converged: seeds "
            f"whose MAE is at most {CONVERGED:g} times that of a constant.",
        ),
        Table(
            "landscape",
            "Loss of the force -k x",
            _by_stiffness(losses),
            caption="Mean squared error of the training trajectories by samples per trajectory, with and without "
            "projection onto the energy; k = 1 is the truth, and k = 0 about what a random network starts from.",
        ),
    ]
    picture = Picture(
        "landscape",
        "Loss against the frequency",
        "The force -k x in place of the network. Projected whole trajectories have a minimum at a wrong frequency.",
        lambda: _figure(losses),
    )
    return Findings(_sentences(rows, losses), tables, [picture])


def scheduled(job: Job, name: str, seeds: int, store: Store) -> list[float]:
    """The MAE of each seed over the test trajectories."""
    project, stages = SCHEDULES[name]
    data = job.data(store.folder)
    model = fit(
        job.twin(data),
        data.train,
        valid=data.valid,
        seeds=range(seeds),
        method=stages,
        loss=protocol("paper").loss(job.contender),
        project=project,
        progress=False,
    )
    return np.asarray(evaluate(model, data.test, dtw=False).by_seed()["mae"]).tolist()


def landscape_rows(job: Job, store: Store) -> list[dict[str, Any]]:
    """The loss of the training trajectories where the force is -k x, for each k."""
    batch, constraint = job.data(store.folder).train.batch(), problem(SYSTEM).constraint
    projections: dict[str, AbstractProjection] = {"projected": Newton(), "unprojected": NoProjection()}
    rows = []
    for kind, projection in projections.items():

        @jax.jit
        def squares(k: Any, projection: AbstractProjection = projection) -> Any:
            field = lambda x: jnp.stack([x[1], -k * x[0]])  # noqa: E731
            cell = Cell(field, integrator=RK4(), constraint=constraint, projection=projection)
            run = jax.vmap(lambda x0, ts: rollout(cell, x0, ts, throw=False).xs)
            return jnp.mean((run(batch.y[:, 0], batch.ts) - batch.y) ** 2, axis=(0, 2))

        curve = np.stack([np.asarray(squares(jnp.array(k))) for k in STIFFNESSES])
        rows += [
            {"samples": samples, "kind": kind, "k": float(k), "loss": float(values[:samples].mean())}
            for samples in WINDOWS
            for k, values in zip(STIFFNESSES, curve, strict=True)
        ]
    return rows


def false_minima(rows: list[dict[str, Any]], samples: int, kind: str) -> list[tuple[float, float]]:
    """(k, loss) of the local minima with positive k that are not the truth."""
    chosen = [(row["k"], row["loss"]) for row in rows if (row["samples"], row["kind"]) == (samples, kind)]
    inner = zip(chosen, chosen[1:], chosen[2:], strict=False)
    return [here for a, here, b in inner if here[1] < min(a[1], b[1]) and 0 < here[0] < 0.9]


def _by_stiffness(rows: list[dict[str, Any]]) -> list[dict[str, float]]:
    """A row for each k, with a column for each window."""
    wide: dict[float, dict[str, float]] = {}
    for row in rows:
        wide.setdefault(row["k"], {"k": row["k"]})[f"{row['kind']}, {row['samples']} samples"] = row["loss"]
    return list(wide.values())


def _sentences(rows: list[dict[str, Any]], losses: list[dict[str, Any]]) -> list[str]:
    sentences = [
        f"{row['epochs']}: {row['converged']} of {row['seeds']} seeds converge, mean MAE "
        f"{format_number(row['mae_mean'])}, largest {format_number(row['mae_max'])}."
        for row in rows
    ]
    for kind in ("projected", "unprojected"):
        listed = []
        for samples in WINDOWS:
            found = false_minima(losses, samples, kind)
            text = " and ".join(f"k = {k:.3g} (loss {format_number(loss)})" for k, loss in found) or "none"
            listed.append(f"{samples} samples: {text}")
        sentences.append(f"Minima of the loss at a wrong frequency, {kind}. {'; '.join(listed)}.")
    return sentences


def _figure(rows: list[dict[str, Any]]) -> Any:
    panels: dict[str, dict] = {}
    for kind in ("projected", "unprojected"):
        for samples in WINDOWS:
            chosen = [row for row in rows if (row["samples"], row["kind"]) == (samples, kind)]
            line = np.array([row["k"] for row in chosen]), np.array([row["loss"] for row in chosen])
            panels.setdefault(kind, {})[f"{samples} samples"] = line
    return curves(panels, "k", "loss", log=(False, True), markers=False, columns=2)


TRAP = Experiment(
    "trap",
    "The trap of the protocol `paper`",
    "Why most seeds of a projected oscillator are stuck under the paper's settings, and which stages avoid it.",
    full=Options((SYSTEM,), (MODEL,), 25, ("paper",)),
    quick=Options((SYSTEM,), (MODEL,), 1, ("paper",)),
    requests=requests,
    analyse=analyse,
)
