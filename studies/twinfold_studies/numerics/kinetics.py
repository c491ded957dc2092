"""Robertson's kinetics: error against time, the metric of the projection, and rates learned from samples."""

import functools
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold.data import Dataset
from twinfold.model import Network, Twin, Unknown
from twinfold.numerics import (
    BDF,
    AbstractIntegrator,
    AbstractProjection,
    Cell,
    DiffraxStep,
    Newton,
    NoProjection,
    Radau,
    Trajectory,
    rollout,
)
from twinfold.train import LevenbergMarquardt, fit
from twinfold.typing import Parameters, State
from twinfold_studies.bench.timing import best_time
from twinfold_studies.systems import robertson

LAST = 1e5
PROJECTIONS: dict[str, AbstractProjection] = {
    "none": NoProjection(),
    "unweighted": Newton(),
    "weighted": Newton(metric=robertson.METRIC),
}
UNBALANCED = 1e-3  # share of the product that is created without educts
TINY = 1e-12  # added before a logarithm is taken
NOISE = 1e-3  # relative
MIN_TIME = 1e-3  # before it the middle species is still being formed
REPEATS = 5


def rates(dtype: Any = jnp.float64, excess: float = 0.0) -> dict[str, jax.Array]:
    """The true rate constants, and the excess of the product."""
    return {name: jnp.asarray(value, dtype) for name, value in (robertson.RATES | {"excess": excess}).items()}


def field(x: State, p: Parameters) -> State:
    """Robertson's kinetics; with an excess the field does not conserve mass, as a learned one may not."""
    created = p["excess"] * p["k3"] * x[1] ** 2
    return robertson.robertson(x, p) + jnp.stack([jnp.zeros_like(created), jnp.zeros_like(created), created])


@functools.cache
def solver(integrator: AbstractIntegrator, projection: str) -> Callable:
    """The compiled function (x0, ts, p) -> trajectory; `projection` is one of `PROJECTIONS`."""
    cell = Cell(field, integrator=integrator, constraint=robertson.mass(), projection=PROJECTIONS[projection])
    return jax.jit(lambda x0, ts, p: rollout(cell, x0, ts, p=p, throw=False))


def run(
    integrator: AbstractIntegrator,
    projection: str,
    *,
    last: float = LAST,
    dtype: Any = jnp.float64,
    excess: float = 0.0,
) -> Callable[[], Trajectory]:
    """The run from the standard initial state."""
    arguments = jnp.asarray(robertson.START, dtype), robertson.log_times(last).astype(dtype), rates(dtype, excess)
    return lambda: jax.block_until_ready(solver(integrator, projection)(*arguments))


def reference() -> np.ndarray:
    """The solution at the samples, with negligible error of the integrator."""
    return np.asarray(run(Radau(32), "weighted")().xs)


def relative_errors(xs: Any, exact: np.ndarray) -> np.ndarray:
    """The largest relative error of each species after the initial time."""
    return np.abs(np.asarray(xs)[1:] / exact[1:] - 1).max(axis=0)


def timed(solve: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the best time in milliseconds."""
    result, seconds = best_time(solve, REPEATS)
    return result, 1e3 * seconds


def work_precision(quick: bool, log: Callable[[str], None]) -> list[dict[str, Any]]:
    """Error and time of cells, and of the adaptive solvers of SciPy and Diffrax."""
    exact = reference()
    ts = np.asarray(robertson.log_times(LAST))
    cells: dict[str, list[tuple[str, AbstractIntegrator]]] = {
        "Radau cell": [(f"substeps={n}", Radau(n)) for n in ((1,) if quick else (1, 2, 4, 8))]
    }
    if not quick:
        cells["BDF(5) cell"] = [(f"substeps={n}", BDF(5, n)) for n in (8, 16, 32)]
        cells["Kvaerno5 cell"] = [(f"substeps={n}", DiffraxStep(diffrax.Kvaerno5(), n)) for n in (1, 4, 16)]
    rows = []

    def record(method: str, setting: str, xs: Any, milliseconds: float, failed: bool) -> None:
        xs = np.asarray(xs)
        row = {
            "method": method,
            "setting": setting,
            "ms": milliseconds,
            "error": float(relative_errors(xs, exact).max()),
        }
        rows.append(row | {"mass": float(np.abs(xs.sum(axis=1) - 1).max()), "failed": bool(failed)})

    for method, choices in cells.items():
        for setting, integrator in choices:
            log(f"stiff: {method}, {setting}")
            out, ms = timed(run(integrator, "weighted"))
            record(method, setting, out.xs, ms, bool(out.failed))
    tolerances = (1e-4, 1e-7) if quick else (1e-3, 1e-5, 1e-7, 1e-9, 1e-11)
    for method in ("Radau", "BDF"):
        for rtol in tolerances:
            xs, ms = timed(lambda method=method, rtol=rtol: scipy_run(method, rtol, ts))
            record(f"SciPy {method}", f"rtol={rtol:g}", xs, ms, not np.isfinite(xs).all())
    if not quick:
        log("stiff: Diffrax, adaptive")
        solve = kvaerno_run(ts)
        for rtol in tolerances[:-1]:
            (xs, success), ms = timed(lambda rtol=rtol: jax.block_until_ready(solve(rtol)))
            record("Diffrax Kvaerno5", f"rtol={rtol:g}", xs, ms, not bool(success))
    return rows


def scipy_run(method: Any, rtol: float, ts: np.ndarray) -> np.ndarray:
    """SciPy's solver with a given Jacobian and an absolute tolerance for each species."""
    from scipy.integrate import solve_ivp

    k1, k2, k3 = robertson.RATES.values()

    def field(t: float, x: np.ndarray) -> list[float]:
        first, second, third = k1 * x[0], k2 * x[1] * x[2], k3 * x[1] ** 2
        return [second - first, first - second - third, third]

    def jacobian(t: float, x: np.ndarray) -> np.ndarray:
        back = [k2 * x[2], k2 * x[1]]
        return np.array([[-k1, *back], [k1, -back[0] - 2 * k3 * x[1], -back[1]], [0.0, 2 * k3 * x[1], 0.0]])

    atol = 1e-3 * rtol * robertson.SIZES
    return solve_ivp(
        field, (0, ts[-1]), robertson.START, method=method, t_eval=ts, rtol=rtol, atol=atol, jac=jacobian
    ).y.T


def kvaerno_run(ts: np.ndarray) -> Callable:
    """Diffrax's Kvaerno5 with adaptive steps, saved at the same times."""
    term = diffrax.ODETerm(lambda t, x, p: robertson.robertson(x, p))

    @jax.jit
    def solve(rtol: Any) -> tuple[Any, jax.Array]:
        out = diffrax.diffeqsolve(
            term,
            diffrax.Kvaerno5(),
            0.0,
            ts[-1],
            1e-6,
            jnp.asarray(robertson.START),
            rates(),
            saveat=diffrax.SaveAt(ts=jnp.asarray(ts)),
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-3 * rtol * jnp.asarray(robertson.SIZES)),
            max_steps=100_000,
            throw=False,
        )
        return out.ys, out.result == diffrax.RESULTS.successful

    return solve


def metric_rows(quick: bool) -> list[dict[str, Any]]:
    """Violation and error of each species by projection: true field, unbalanced field, long time, float32."""
    exact, rows = reference(), []
    cases: dict[str, dict[str, Any]] = {"t = 1e5": {}, "t = 1e5, unbalanced law": {"excess": UNBALANCED}}
    if not quick:
        cases |= {"t = 1e11": {"last": robertson.FAR_TIME}, "t = 1e5, float32": {"dtype": jnp.float32}}
    for case, options in cases.items():
        for name in PROJECTIONS if not quick else ("unweighted", "weighted") if options else ("weighted",):
            out = run(Radau(), name, **options)()
            far = "last" in options
            errors = np.abs(out.xs[-1] / robertson.FAR_STATE - 1) if far else relative_errors(out.xs, exact)
            rows.append(
                {"case": case, "projection": name, "violation_max": float(out.relative_violation.max())}
                | {f"error_x{i + 1}": float(error) for i, error in enumerate(errors)}
                | {"lowest_x2": float(out.xs[1:, 1].min()), "failed": bool(out.failed)}
            )
    return rows


class Law(eqx.Module):
    """The rate of the third reaction as a learned function of x2 that vanishes at x2 = 0."""

    network: Network

    def __call__(self, x: State) -> jax.Array:
        scaled = jnp.log10(jnp.maximum(x[1], 0) / robertson.SIZES[1] + 1e-4)
        return 300 * x[1] * jnp.exp(self.network(scaled[None])[0])


class LearnedKinetics(eqx.Module):
    """Two known reactions, and one with a learned rate."""

    law: Law

    def __call__(self, x: State, p: Parameters) -> State:
        return robertson.kinetics(p["k1"] * x[0], p["k2"] * x[1] * x[2], self.law(x))


def observe(x: State) -> jax.Array:
    """The outputs: logarithms, because the measurement errors are relative."""
    return jnp.log(jnp.maximum(x, 0) + TINY)


def samples(initial: tuple[float, ...]) -> tuple[Dataset, np.ndarray]:
    """Noisy samples of runs with these initial amounts of the first species, and the true states."""
    cell = Cell(robertson.robertson, integrator=Radau(8))
    ts = robertson.log_times(LAST)
    x0 = np.stack([[a, 0.0, 1 - a] for a in initial])
    xs = np.asarray(jax.jit(jax.vmap(lambda x: rollout(cell, x, ts, p=rates()).xs))(jnp.asarray(x0)))
    ys = np.log(xs + TINY) + NOISE * np.random.default_rng(0).normal(size=xs.shape)
    ys[:, 0] = np.nan
    return Dataset.from_arrays(np.asarray(ts), list(ys), x0=list(x0)), xs


def learn(quick: bool, log: Callable[[str], None]) -> dict[str, Any]:
    """Rate constants, and the rate law of a reaction, from noisy samples between t = 1e-4 and 1e5."""
    data, _ = samples((1.0, 0.7) if quick else (1.0, 0.85, 0.7, 0.55))
    cell: dict[str, Any] = {
        "observe": observe,
        "integrator": Radau(),
        "constraint": robertson.mass(),
        "projection": PROJECTIONS["weighted"],
    }
    starts = {name: value * off for (name, value), off in zip(robertson.RATES.items(), (3.0, 0.3, 3.0), strict=True)}
    unknowns = {name: Unknown(value, positive=True) for name, value in starts.items()}
    log("stiff: rate constants")
    estimated = fit(
        Twin(robertson.robertson, params=unknowns, **cell), data, method=LevenbergMarquardt(20), progress=False
    ).twin.parameters()
    rows = [
        {"learned": name, "start": starts[name], "found": float(estimated[name]), "true": value}
        | {"error": abs(float(estimated[name]) / value - 1)}
        for name, value in robertson.RATES.items()
    ]
    if quick:
        return {"rows": rows, "law": []}
    log("stiff: a rate law")
    known = {name: robertson.RATES[name] for name in ("k1", "k2")}
    network = Network(1, 1, 8, 1, zero_last=True)
    twin = fit(
        Twin(LearnedKinetics(Law(network)), params=known, **cell),
        data,
        method=LevenbergMarquardt(60),
        seeds=2,
        progress=False,
    ).twin
    assert isinstance(twin.field, LearnedKinetics)
    # Evaluated on an unseen run.
    _, (xs,) = samples((0.92,))
    xs = jnp.asarray(xs[np.asarray(robertson.log_times(LAST)) >= MIN_TIME])
    learned, true = np.asarray(jax.vmap(twin.field.law)(xs)), np.asarray(robertson.RATES["k3"] * xs[:, 1] ** 2)
    worst = float(np.abs(learned / true - 1).max())
    rows.append({"learned": "k3 x2^2 (a network)", "start": None, "found": None, "true": None, "error": worst})
    simulated = twin.simulate([0.92, 0.0, 0.08], np.asarray(robertson.log_times(LAST)))
    law = np.stack([np.asarray(xs[:, 1]), learned, true], axis=1)
    violation = float(simulated.trajectory.relative_violation.max())
    return {"rows": rows, "law": law.tolist(), "violation": violation}
