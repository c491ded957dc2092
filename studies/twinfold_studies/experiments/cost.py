"""Time and memory of a training step with each projection: untrained, half trained and trained, on CPU and GPU."""

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from twinfold.model import hrpinn
from twinfold.numerics import AbstractProjection, Adaptive, Newton, NoProjection, Tangent, rollout
from twinfold.report import format_number
from twinfold.train import Adam, LevenbergMarquardt, fit, prepare
from twinfold_studies.bench.cache import cached, stored
from twinfold_studies.bench.contenders import Design
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import dots, scatter
from twinfold_studies.bench.problems import full_sizes, make_data, problem, quick_sizes
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.timing import best_times
from twinfold_studies.experiments.adjoints import HALVINGS, adjoint_figure, adjoint_sentence, adjoints
from twinfold_studies.systems import SYSTEMS

PROJECTIONS: dict[str, AbstractProjection] = {
    "none": NoProjection(),
    "fast": Tangent(),
    "frozen": Tangent(max_steps=20),
    "adaptive": Adaptive(),
    "robust": Newton(),
}
# Other derivatives, on one system only: each is another program, and compiling it takes longer than running it.
DERIVATIVES: dict[str, AbstractProjection] = {
    "fast-implicit": Tangent(derivative="implicit"),
    "fast-loop": Tangent(derivative="loop"),
    "frozen-implicit": Tangent(max_steps=20, derivative="implicit"),
    "frozen-loop": Tangent(max_steps=20, derivative="loop"),
    "adaptive-tangent": Adaptive(derivative="tangent"),
    "robust-tangent": Newton(derivative="tangent"),
    "robust-loop": Newton(derivative="loop", max_steps=8),
}
DERIVATIVES_ON = "two_body"
QUICK = ("none", "fast", "robust")
STATES = ("untrained", "half", "trained")
BACKENDS = ("cpu", "gpu")
SEEDS, RUNS, SAMPLES, WEIGHTS = 5, 10, 101, 300
REPEATS = 7
# The first stages of the protocol `best`, unprojected as there.
STAGES = (Adam(200, learning_rate=1e-2, window=11), LevenbergMarquardt(40, window=11))
QUICK_STAGES = (Adam(5, learning_rate=1e-2, window=11),)


class Program(NamedTuple):
    """A compiled training step, as a function of the weights [S, W] of all seeds, and what compiling it took."""

    run: Callable[[Float[Array, "S W"]], Any]
    compile_s: float
    memory_mb: float


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Time, memory and violation of a training step, and the errors of both adjoints against dt."""
    here = "cpu" if jax.default_backend() == "cpu" else "gpu"
    rows = []
    for system in options.systems:
        bench = Bench(system, store, options.quick)
        for name in names_of(system, options.quick):
            for backend in BACKENDS:
                title = f"cost-{system}-{backend}"
                settings = [system, name, SEEDS, RUNS, SAMPLES, WEIGHTS, options.quick, backend]
                if backend == here and name in (options.models or (name,)):
                    log(f"cost: {system}, {name}, {backend}")
                    rows += cached(store, title, settings, lambda name=name, bench=bench: bench.rows(name, here))
                else:
                    rows += stored(store, title, settings) or []
    log("cost: adjoints")
    gradients = cached(store, "cost-adjoints", [HALVINGS], adjoints)
    tables = [
        Table(
            "summary",
            "One training step (value and gradient)",
            rows,
            caption=f"{SEEDS} seeds x {RUNS} trajectories of {SAMPLES - 1} steps, about {WEIGHTS} weights, float64; "
            f"best of {REPEATS}, in turns with the same step without projection (none_ms), to which time_ratio refers. "
            "untrained: random weights; trained: after 200 epochs of Adam and 40 Levenberg-Marquardt steps without "
            "projection; half: the mean of both. failed: trajectories with a failed projection or a non-finite state. "
            "Memory: what the compiled program allocates in addition to inputs and outputs.",
        ),
        Table(
            "adjoints",
            "Discrete and continuous adjoint: relative error of the gradient in GM",
            gradients,
            caption="Two-body, true field, robust projection, half a period from the pericentre. The continuous "
            "adjoint is integrated backwards in small steps along the cubic Hermite interpolant of the projected "
            "samples.",
        ),
    ]
    return Findings([*summarise(rows), adjoint_sentence(gradients)], tables, pictures(rows, gradients))


def names_of(system: str, quick: bool) -> tuple[str, ...]:
    """The projections, and their derivatives, that are measured on a system."""
    if quick:
        return QUICK
    return (*PROJECTIONS, *(DERIVATIVES if system == DERIVATIVES_ON else ()))


class Bench:
    """The training steps of one system: the same weights and initial states for every projection."""

    def __init__(self, system: str, store: Store, quick: bool):
        self.system, self.store, self.quick = system, store, quick

    def rows(self, name: str, backend: str) -> list[dict[str, Any]]:
        """A row for each state of the training, with one projection."""
        step, base = self.program(name), self.program("none")
        calls: dict[Any, Callable[[], Any]] = {}
        for state, weights in self.weights.items():
            calls[name, state] = functools.partial(step.run, weights)
            calls["none", state] = functools.partial(base.run, weights)
        for call in calls.values():
            jax.block_until_ready(call())
        seconds = best_times(calls, REPEATS)
        rows = []
        for state, weights in self.weights.items():
            (_, (violation, failed)), gradient = step.run(weights)
            rows.append(
                {
                    "system": self.system,
                    "backend": backend,
                    "device": jax.devices()[0].device_kind,
                    "state": state,
                    "projection": name,
                    "time_ratio": seconds[name, state] / seconds["none", state],
                    "step_ms": 1e3 * seconds[name, state],
                    "none_ms": 1e3 * seconds["none", state],
                    "memory_mb": step.memory_mb,
                    "compile_s": step.compile_s,
                    # NumPy's maximum keeps NaN, which says that the constraint is not defined.
                    "violation_max": float(np.max(np.asarray(violation))),
                    "failed": int(np.sum(np.asarray(failed))),
                    "gradient_finite": bool(jnp.all(jnp.isfinite(gradient))),
                }
            )
        return rows

    @functools.cached_property
    def weights(self) -> dict[str, Float[Array, "S W"]]:
        """The weights of all seeds, by state of the training; both backends use those that were stored first."""
        stages = [f"{method.name} {method.epochs}" for method in self.stages]
        settings = [self.system, SEEDS, WEIGHTS, self.quick, stages]
        ends = cached(self.store, f"cost-weights-{self.system}", settings, self.train)
        untrained, trained = (jnp.asarray(ends[state]) for state in ("untrained", "trained"))
        return {"untrained": untrained, "half": 0.5 * (untrained + trained), "trained": trained}

    @property
    def stages(self) -> tuple[Any, ...]:
        return QUICK_STAGES if self.quick else STAGES

    def train(self) -> dict[str, list]:
        """Weights before and after a short fit."""
        fitted = fit(self.twin, self.data.train, seeds=range(SEEDS), method=self.stages, progress=False)
        return {
            "untrained": np.asarray(_flat(self.prepared[1])).tolist(),
            "trained": np.asarray(_flat(fitted.params)).tolist(),
        }

    @functools.cached_property
    def data(self) -> Any:
        sizes = (quick_sizes if self.quick else full_sizes)(problem(self.system))
        return make_data(self.system, sizes, Path(self.store.folder) / "data")

    @functools.cached_property
    def twin(self) -> Any:
        design = Design(problem(self.system), WEIGHTS, self.data.train.statistics(observed_states=True))
        return hrpinn(problem(self.system).physics, design.residual(), **design.common)

    @functools.cached_property
    def prepared(self) -> tuple[Any, Any]:
        """What is not trained, and the random parameters of all seeds."""
        _, problems, params = prepare(self.twin, self.data.train, seeds=tuple(range(SEEDS)), methods=self.stages[-1:])
        return problems[0].frozen, params

    def simulate(self, name: str, weights: Float[Array, " W"]) -> Any:
        """The trajectories of one seed."""
        of, (frozen, params) = problem(self.system), self.prepared
        rebuild = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], params))[1]
        cell = eqx.combine(rebuild(weights), frozen).twin.cell
        cell = eqx.tree_at(lambda cell: cell.projection, cell, (PROJECTIONS | DERIVATIVES)[name])
        x0s, ts = of.draw(jax.random.key(7), RUNS), of.dt * jnp.arange(SAMPLES)
        return jax.vmap(lambda x0: rollout(cell, x0, ts, throw=False))(x0s)

    @functools.cache  # noqa: B019 (lives as long as the experiment)
    def program(self, name: str) -> Program:
        """The compiled step of a projection."""

        def distance(weights: Float[Array, " W"]) -> tuple[Float[Array, ""], Any]:
            out = self.simulate(name, weights)
            far = jnp.mean((out.xs - out.xs[:, :1]) ** 2)  # from the start: the size may be the invariant
            return far, (out.relative_violation, out.failed)

        def loss(weights: Float[Array, "S W"]) -> tuple[Float[Array, ""], Any]:
            far, quality = jax.vmap(distance)(weights)
            return jnp.sum(far), quality

        weights, _ = self.weights["untrained"], self.prepared  # not part of the compilation
        start = time.perf_counter()
        compiled = jax.jit(jax.value_and_grad(loss, has_aux=True)).lower(weights).compile()
        seconds = time.perf_counter() - start
        memory = getattr(compiled.memory_analysis(), "temp_size_in_bytes", float("nan"))
        return Program(compiled, seconds, memory / 2**20)


def _flat(params: Any) -> Float[Array, "S W"]:
    return jax.vmap(lambda each: ravel_pytree(each)[0])(params)


def pictures(rows: list[dict[str, Any]], gradients: list[dict[str, Any]]) -> list[Picture]:
    """The cost of each projection by system, its violation, and the errors of the adjoints."""

    def panels(backend: str) -> dict[str, dict[str, np.ndarray]]:
        chosen = [row for row in rows if row["backend"] == backend and row["projection"] in PROJECTIONS]
        found: dict[str, dict[str, list]] = {}
        for row in chosen:
            if row["projection"] != "none":
                by_name = found.setdefault(problem(row["system"]).title, {})
                by_name.setdefault(row["projection"], []).append(row["time_ratio"])
        return {title: {name: np.array(each) for name, each in values.items()} for title, values in found.items()}

    shown = [row for row in rows if row["state"] == "untrained"]
    shown.sort(key=lambda row: row["system"] != DERIVATIVES_ON)  # the system with most rows, if it is there
    shown = [row for row in shown if (row["system"], row["backend"]) == (shown[0]["system"], shown[0]["backend"])]
    points = [(row["projection"], row["memory_mb"], row["violation_max"]) for row in shown]
    times = [
        Picture(
            f"time_{backend}",
            f"Time of a training step, {backend.upper()}",
            "Ratio to the same step without projection: dots for untrained, half trained and trained weights.",
            lambda backend=backend: dots(panels(backend), "time, over no projection"),
        )
        for backend in BACKENDS
        if panels(backend)
    ]
    memory = [
        Picture(
            "memory",
            "Violation against memory",
            f"{problem(shown[0]['system']).title}, untrained.",
            lambda: scatter(points, "MB", "relative violation"),
        )
        for _ in shown[:1]
    ]
    adjoint = Picture("adjoints", "Gradient error of the two adjoints", "", lambda: adjoint_figure(gradients))
    return [*times, *memory, adjoint]


def summarise(rows: list[dict[str, Any]]) -> list[str]:
    """The cost of each projection on each backend, from the cheapest system to the dearest, and the violation."""
    sentences = []
    for backend in dict.fromkeys(row["backend"] for row in rows):
        for name in PROJECTIONS:
            chosen = [row for row in rows if (row["backend"], row["projection"]) == (backend, name)]
            if name == "none" or not chosen:
                continue
            ratios = []
            for state in STATES:
                values = [row["time_ratio"] for row in chosen if row["state"] == state]
                ratios.append(f"{state} {min(values):.2f} to {max(values):.2f}")
            worst = format_number(float(np.max([row["violation_max"] for row in chosen])))
            failed = sum(row["failed"] for row in chosen)
            sentences.append(
                f"{backend.upper()}, {name}: {', '.join(ratios)} times the unprojected step; largest relative "
                f"violation {worst}, {failed} of {len(chosen) * SEEDS * RUNS} trajectories failed."
            )
    return sentences


COST = Experiment(
    "cost",
    "The cost of enforcing a constraint",
    "Violation against time and memory for every projection, untrained to trained; discrete against continuous "
    "adjoint.",
    full=Options(tuple(SYSTEMS)),
    quick=Options(("mass_spring",)),
    requests=lambda options: [],
    analyse=analyse,
    models=(*PROJECTIONS, *DERIVATIVES),  # `--models` chooses among the projections
    timed=True,
)
