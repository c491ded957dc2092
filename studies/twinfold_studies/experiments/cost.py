"""Time and memory of each projection and derivative; discrete against continuous adjoint."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from twinfold.model import hrpinn
from twinfold.numerics import RK4, AbstractProjection, Cell, Newton, NoProjection, Tangent, rollout
from twinfold.report import format_number
from twinfold.systems import two_body
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.contenders import Design
from twinfold_studies.bench.experiment import Experiment, Findings, Options, Picture, Table
from twinfold_studies.bench.figures import curves, scatter
from twinfold_studies.bench.problems import problem
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.timing import best_time

PROJECTIONS: dict[str, AbstractProjection] = {
    "none": NoProjection(),
    "fast, tangent": Tangent(),
    "fast, implicit": Tangent(derivative="implicit"),
    "fast, loop": Tangent(derivative="loop"),
    "frozen, tangent": Tangent(max_steps=20),
    "frozen, implicit": Tangent(max_steps=20, derivative="implicit"),
    "frozen, loop": Tangent(max_steps=20, derivative="loop"),
    "robust, tangent": Newton(derivative="tangent"),
    "robust, implicit": Newton(),
    "robust, loop": Newton(derivative="loop", max_steps=8),
}
QUICK = ("none", "fast, tangent", "robust, implicit", "robust, loop")
BATCH, SAMPLES, WEIGHTS = 16, 101, 300
REPEATS = 7
HALVINGS = 5


def analyse(store: Store, options: Options, log: Callable[[str], None]) -> Findings:
    """Time, memory and violation of a training step, and the errors of both adjoints against dt."""
    rows = []
    for system in options.systems:
        for name in QUICK if options.quick else PROJECTIONS:
            log(f"cost: {system}, {name}")
            settings = [system, name, BATCH, SAMPLES, WEIGHTS, jax.default_backend()]
            rows.append(cached(store, f"cost-{system}", settings, lambda s=system, n=name: training_step(s, n)))
    for row in rows:
        base = next(r for r in rows if (r["system"], r["projection"]) == (row["system"], "none"))
        row["time_ratio"] = row["step_ms"] / base["step_ms"]
    log("cost: adjoints")
    gradients = cached(store, "cost-adjoints", [HALVINGS], adjoints)
    tables = [
        Table(
            "summary",
            "One training step (forward and backward)",
            rows,
            caption=f"{BATCH} trajectories of {SAMPLES - 1} steps, RK4, {WEIGHTS} weights, float64; best of {REPEATS}. "
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
    points = [(r["projection"], r["step_ms"], r["violation_max"]) for r in rows]
    memory = [(r["projection"], r["memory_mb"], r["violation_max"]) for r in rows]
    pictures = [
        Picture(
            "time", "Violation against time", "", lambda: scatter(points, "ms per training step", "relative violation")
        ),
        Picture("memory", "Violation against memory", "", lambda: scatter(memory, "MB", "relative violation")),
        Picture("adjoints", "Gradient error of the two adjoints", "", lambda: _adjoint_figure(gradients)),
    ]
    return Findings(summarise(rows, gradients), tables, pictures)


def training_step(system: str, name: str) -> dict[str, Any]:
    """Time, memory and violation of one projection and derivative."""
    chosen = problem(system)
    design = Design(chosen, WEIGHTS, None)
    common = design.common | {"projection": PROJECTIONS[name]}
    twin = hrpinn(chosen.truth, design.residual(), **common)
    twin = twin.initialise(jax.random.key(0), states=len(chosen.state_names))
    # The true field plus a small network: the violation is that of a model in training.
    x0s, ts = chosen.draw(jax.random.key(1), BATCH), chosen.dt * jnp.arange(SAMPLES)
    arrays, rebuild = ravel_pytree([layer.weight for layer in _layers(twin)])
    small = 0.05 * arrays

    def loss(v: jax.Array) -> tuple[jax.Array, jax.Array]:
        model = _with_layers(twin, rebuild(v))
        out = jax.vmap(lambda x0: rollout(model.cell, x0, ts, throw=False))(x0s)
        return jnp.mean(out.xs**2), jnp.max(out.relative_violation)

    step = jax.jit(jax.value_and_grad(loss, has_aux=True))
    start = time.perf_counter()
    compiled = step.lower(small).compile()
    compile_s = time.perf_counter() - start
    ((_, violation), gradient), seconds = best_time(lambda: compiled(small), REPEATS)
    memory = compiled.memory_analysis()
    return {
        "system": system,
        "projection": name,
        "step_ms": 1e3 * seconds,
        "memory_mb": getattr(memory, "temp_size_in_bytes", float("nan")) / 2**20,
        "compile_s": compile_s,
        "violation_max": float(violation),
        "gradient_finite": bool(jnp.all(jnp.isfinite(gradient))),
    }


def _layers(twin: Any) -> list[Any]:
    return list(twin.field.residual.network.weights.layers)


def _with_layers(twin: Any, weights: list[jax.Array]) -> Any:
    return eqx.tree_at(lambda twin: [layer.weight for layer in _layers(twin)], twin, weights)


def adjoints() -> list[dict[str, Any]]:
    """Errors of d|x(T) - target|^2 / dGM by reverse mode through the projected steps, and by the continuous adjoint."""
    x0 = two_body().draw(jax.random.key(0), 1)[0]
    duration = float(np.pi)
    system = two_body()
    target = jnp.zeros_like(x0)

    def field(t: Any, x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
        q = x[:2]
        return jnp.concatenate([x[2:], -p["gm"] * q / jnp.sum(q**2) ** 1.5])

    def simulate(gm: jax.Array, ts: jax.Array) -> jax.Array:
        cell = Cell(field, None, RK4(), system.constraint, Newton())
        return rollout(cell, x0, ts, p={"gm": gm}, throw=False).xs

    def objective(gm: jax.Array, ts: jax.Array) -> jax.Array:
        return jnp.sum((simulate(gm, ts)[-1] - target) ** 2)

    gm = jnp.array(1.0)
    exact = float(jax.jit(jax.grad(objective))(gm, jnp.linspace(0.0, duration, 20001)))
    rows = []
    for halving in range(HALVINGS):
        ts = jnp.linspace(0.0, duration, 20 * 2**halving + 1)
        discrete = float(jax.jit(jax.grad(objective))(gm, ts))
        continuous, violation = _continuous_adjoint(field, simulate(gm, ts), ts, target, gm, system)
        rows.append(
            {
                "dt": float(ts[1] - ts[0]),
                "discrete_error": abs(discrete - exact) / abs(exact),
                "continuous_error": abs(continuous - exact) / abs(exact),
                "between_them": abs(continuous - discrete) / abs(discrete),
                "interpolant_violation": violation,
            }
        )
    return rows


def _continuous_adjoint(
    field: Callable, xs: jax.Array, ts: jax.Array, target: jax.Array, gm: jax.Array, system: Any
) -> tuple[float, float]:
    """The gradient by lambda' = -(df/dx)' lambda along the interpolant, and the violation of the interpolant."""
    h = ts[1] - ts[0]
    slopes = jax.vmap(lambda t, x: field(t, x, {"gm": gm}))(ts, xs)

    def state(t: jax.Array) -> jax.Array:
        index = jnp.clip(jnp.floor(t / h).astype(int), 0, len(ts) - 2)
        s = t / h - index
        a, b, c, d = xs[index], xs[index + 1], slopes[index], slopes[index + 1]
        return (1 + 2 * s) * (1 - s) ** 2 * a + s**2 * (3 - 2 * s) * b + h * (s * (1 - s) ** 2 * c - s**2 * (1 - s) * d)

    def backward(t: jax.Array, carry: tuple) -> tuple:
        adjoint, _ = carry
        _, pull = jax.vjp(lambda x, gm: field(t, x, {"gm": gm}), state(t), gm)
        by_x, by_gm = pull(adjoint)
        return -by_x, -by_gm

    steps = 4000
    step = -ts[-1] / steps

    def body(carry: tuple, index: jax.Array) -> tuple:
        t = ts[-1] + step * index

        def advanced(slope: tuple, size: float) -> tuple:
            return jax.tree.map(lambda value, rate: value + size * step * rate, carry, slope)

        k1 = backward(t, carry)
        k2 = backward(t + step / 2, advanced(k1, 0.5))
        k3 = backward(t + step / 2, advanced(k2, 0.5))
        k4 = backward(t + step, advanced(k3, 1.0))
        new = jax.tree.map(lambda x, a, b, c, d: x + step / 6 * (a + 2 * b + 2 * c + d), carry, k1, k2, k3, k4)
        return new, None

    start = (2 * (xs[-1] - target), jnp.zeros(()))
    (_, gradient), _ = jax.jit(lambda start: jax.lax.scan(body, start, jnp.arange(steps)))(start)
    between = jax.vmap(state)(ts[:-1] + h / 2)
    level = system.constraint.level(0.0, xs[0], {})
    violation = jax.vmap(lambda x: system.constraint.residual(0.0, x, {}, level))(between)
    return float(gradient), float(jnp.max(jnp.abs(violation)))


def _adjoint_figure(rows: list[dict[str, Any]]) -> Any:
    dt = np.array([row["dt"] for row in rows])
    columns = {
        "discrete": "discrete_error",
        "continuous": "continuous_error",
        "violation of the interpolant": "interpolant_violation",
    }
    panel = {name: (dt, np.array([row[key] for row in rows])) for name, key in columns.items()}
    return curves({"Two-body, half a period": panel}, "dt", "relative error of the gradient")


def summarise(rows: list[dict[str, Any]], gradients: list[dict[str, Any]]) -> list[str]:
    """Time, memory and violation of each projection, and the errors of the adjoints."""
    sentences = [
        f"{r['system']}, {r['projection']}: {r['time_ratio']:.2f} times the time of an unprojected step, "
        f"{r['memory_mb']:.1f} MB, largest relative violation {format_number(r['violation_max'])}."
        for r in rows
    ]
    last = gradients[-1]
    sentences.append(
        f"Adjoints at dt = {last['dt']:.3g}: the relative error of the gradient is "
        f"{format_number(last['discrete_error'])} "
        f"(discrete) and {format_number(last['continuous_error'])} (continuous); the violation of the interpolant is "
        f"{format_number(last['interpolant_violation'])}."
    )
    return sentences


COST = Experiment(
    "cost",
    "The cost of enforcing a constraint",
    "Violation against time and memory for every projection and derivative; discrete against continuous adjoint.",
    full=Options(("two_body",)),
    quick=Options(("two_body",)),
    requests=lambda options: [],
    analyse=analyse,
)
