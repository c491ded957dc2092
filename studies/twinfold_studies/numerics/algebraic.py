"""A rectifier by modified nodal analysis: z solved in every stage, comparison with DAE solvers, a learned diode law."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from twinfold.data import Dataset
from twinfold.model import Implicit, Network, Simulation, Twin, simulate_unchecked
from twinfold.numerics import RK4, Heun
from twinfold.plot import COLOURS, DASHES, GREY, INK, PALE, subplots
from twinfold.report import format_number
from twinfold.train import LevenbergMarquardt, fit
from twinfold_studies.bench.cache import cached
from twinfold_studies.bench.experiment import Findings, Picture, Table
from twinfold_studies.bench.store import Store
from twinfold_studies.bench.timing import best_time
from twinfold_studies.systems.circuit import PERIOD, RECTIFIER, LearnedLaw, high_injection, rectifier, shockley

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AMPLITUDE = 5.0  # V
STEP = 0.25  # ms between samples
SUBSTEPS = (1, 2, 4, 8, 16, 32)
TRUTH = 4  # substeps of the simulation for data and figures
TOLERANCES = (1e-4, 1e-6, 1e-8, 1e-10)
# Parameters as from a data sheet, without the knee; the network corrects them.
ROUGH = {"I_s": 1.2e-5, "V_T": 0.053}
REPEATS = 3  # of each timing
NOISE = (1e-3, 1e-2)  # V, mA
AMPLITUDES = (2.0, 3.5, 5.0)


def analyse(store: Store, quick: bool, log: Callable[[str], None]) -> Findings:
    """Errors and times, iterations with and without warm start, residuals, and the learned law."""
    periods, epochs = (1, 10) if quick else (3, 60)
    settings = [AMPLITUDE, STEP, SUBSTEPS, TOLERANCES, RECTIFIER, periods, quick]
    log("algebraic: circuit")
    errors = cached(store, "numerics-algebraic-errors", settings, lambda: against_peers(periods, quick))
    log("algebraic: residuals and iterations")
    solved = cached(store, "numerics-algebraic-solved", settings, lambda: solutions(periods))
    log("algebraic: learned law")
    law = cached(
        store,
        "numerics-algebraic-law",
        [settings, ROUGH, NOISE, AMPLITUDES, epochs],
        lambda: learned_law(epochs, quick),
    )
    waves, residuals, steps = solved["waves"], solved["residuals"], solved["steps"]
    return Findings(
        summarise(errors, residuals, steps, law),
        [
            Table(
                "circuit_errors",
                "Rectifier: largest error of the load voltage, and time",
                errors,
                caption="Wall time of one simulation in seconds, best of three, without compilation; 'batch': time per "
                "trajectory of a batch of 64.",
            ),
            Table(
                "circuit_residuals",
                "Residual of the algebraic equations at the samples",
                residuals,
                caption="max |h_i| / (sum_j |dh_i/dz_j| (|z_j| + 1)), and the same in units of the machine epsilon.",
            ),
            Table("circuit_steps", "Newton iterations per solution", steps),
            Table("circuit_law", "The diode law, learned inside the algebraic equations", law["rows"]),
        ],
        [
            Picture(
                "circuit_waves",
                "Half-wave rectifier",
                "Node voltages and currents are solved for in every stage; the capacitor voltage is the only state.",
                lambda: wave_figure(waves),
            ),
            Picture(
                "circuit_errors",
                "Error against time",
                "SciPy integrates the reduced equation with a root finder inside; IDAS solves the DAE itself.",
                lambda: error_figure(errors),
            ),
            Picture(
                "circuit_law",
                "Learned diode law",
                "Learned from load voltage and source current; grey: no information in the data.",
                lambda: law_figure(law),
            ),
        ],
        {
            "circuit_residual_max": next(row["largest"] for row in residuals if row["dtype"] == "float64"),
            "circuit_law_error": law["error"],
        },
    )


def summarise(errors: list[dict], residuals: list[dict], steps: list[dict], law: dict) -> list[str]:
    """Residuals, errors, iterations, the learned law and times."""
    best = min((row for row in errors if row["method"] == "twinfold"), key=lambda row: row["error"])
    cold, warm = (next(row["mean"] for row in steps if row["start"] == start) for start in ("zero", "last sample"))
    lines = [
        f"Circuit: the algebraic equations hold to {format_number(residuals[0]['largest'])} (relative, float64) and "
        f"{format_number(residuals[1]['largest'])} (float32) at every sample; the error of the voltage "
        f"against a reference with a tolerance of 1e-12 is at most {format_number(best['error'])} V.",
        f"Circuit: {format_number(cold)} Newton iterations per solution from zero, {format_number(warm)} from the last "
        "sample.",
        f"Circuit: the error of the learned diode law is {format_number(100 * law['error'])} % of the largest current, "
        f"from {format_number(100 * law['before'])} % before training.",
    ]
    fastest = {
        method: 1e3 * min(row["seconds"] for row in errors if row["method"] == method and row["error"] < 1e-6)
        for method in dict.fromkeys(row["method"] for row in errors if row["error"] < 1e-6)
    }
    ordered = sorted(fastest.items(), key=lambda item: item[1])
    listed = ", ".join(f"{method} {format_number(ms)} ms" for method, ms in ordered)
    lines.append(f"Circuit: time of a trajectory with an error below 1e-6 V: {listed} (batch: per trajectory).")
    if not any(row["method"] == "CasADi IDAS" for row in errors):
        lines.append("Circuit: CasADi is not installed; IDAS is missing from the comparison.")
    return lines


def _samples(periods: int) -> np.ndarray:
    return np.arange(0.0, periods * PERIOD + STEP / 2, STEP)


# Cached, because JAX reuses a compiled program only for the same object.
@functools.cache
def _twin(substeps: int) -> Twin:
    return rectifier(integrator=RK4(substeps))


def _simulate(
    substeps: int, times: np.ndarray, dtype: DTypeLike = jnp.float64, amplitude: float = AMPLITUDE
) -> Simulation:
    p = {name: value.astype(dtype) for name, value in _twin(substeps).parameters().items()}
    ts, w = jnp.asarray(times, dtype), jnp.full((len(times), 1), amplitude, dtype)
    return simulate_unchecked(_twin(substeps), jnp.zeros(1, dtype), ts, w, p)


def against_peers(periods: int, quick: bool) -> list[dict[str, Any]]:
    """Error and time of the twin with several substeps, and of SciPy and IDAS with several tolerances."""
    times = _samples(periods)
    exact = scipy_solution(times, "DOP853", 1e-12)
    rows = []
    for substeps in (TRUTH,) if quick else SUBSTEPS:
        xs, seconds = best_time(lambda substeps=substeps: _simulate(substeps, times).xs, REPEATS)
        error = np.abs(np.asarray(xs)[:, 0] - exact).max()
        rows.append(_row("twinfold", f"RK4({substeps})", error, seconds))
        if not quick:
            rows.append(_row("twinfold, batch", f"RK4({substeps})", error, _batch_seconds(substeps, times)))
    for method in ("Radau", "BDF"):
        for tolerance in TOLERANCES[:2] if quick else TOLERANCES:
            solve = functools.partial(scipy_solution, times, method, tolerance)
            xs, seconds = best_time(solve, 1 if quick else REPEATS)
            rows.append(_row(f"SciPy {method}", f"{tolerance:g}", np.abs(xs - exact).max(), seconds))
    for tolerance in TOLERANCES[:2] if quick else TOLERANCES:
        run = idas(times, tolerance)
        if run is not None:
            xs, seconds = best_time(run, REPEATS)
            rows.append(_row("CasADi IDAS", f"{tolerance:g}", np.abs(xs - exact).max(), seconds))
    return rows


def _batch_seconds(substeps: int, times: np.ndarray, size: int = 64) -> float:
    """Time per trajectory of a batch."""
    twin, ts, w = _twin(substeps), jnp.asarray(times), jnp.full((len(times), 1), AMPLITUDE)
    p, starts = twin.parameters(), jnp.linspace(0.0, 1e-3, size)[:, None]
    run = jax.jit(jax.vmap(lambda x0: simulate_unchecked(twin, x0, ts, w, p).xs))
    return best_time(lambda: run(starts), REPEATS)[1] / size


def _row(method: str, setting: str, error: float, seconds: float) -> dict[str, Any]:
    return {"method": method, "setting": setting, "error": float(error), "seconds": float(seconds)}


def scipy_solution(times: np.ndarray, method: str, tolerance: float) -> np.ndarray:
    """The load voltage: the circuit is reduced to one equation for the diode, solved in every evaluation."""
    from scipy.integrate import solve_ivp
    from scipy.optimize import brentq

    p = RECTIFIER

    def rate(t: float, x: np.ndarray) -> list[float]:
        free = AMPLITUDE * np.sin(2 * np.pi / PERIOD * t) - x[0]  # across resistor and diode

        def excess(across: float) -> float:
            i = p["I_s"] * np.expm1(across / p["V_T"])
            return i / np.sqrt(1 + max(i, 0.0) / p["I_k"]) - (free - across) / p["R_s"]

        ends = min(free, 0.0) - 1e-9, max(free, 0.0) + 1e-9
        across: Any = brentq(excess, *ends, xtol=1e-15, rtol=np.float64(1e-14))
        return [((free - across) / p["R_s"] - x[0] / p["R"]) / p["C"]]

    solution = solve_ivp(rate, (0.0, times[-1]), [0.0], method, times, rtol=tolerance, atol=tolerance, max_step=1.0)
    return solution.y[0]


def idas(times: np.ndarray, tolerance: float) -> Callable[[], np.ndarray] | None:
    """The load voltage from the DAE with its five algebraic variables; None without CasADi."""
    try:
        import casadi
    except ImportError:
        return None
    p = RECTIFIER
    t, x, z = casadi.SX.sym("t"), casadi.SX.sym("x"), casadi.SX.sym("z", 5)
    source, anode, out, delivered, charging = (z[index] for index in range(5))
    i = p["I_s"] * casadi.expm1((anode - out) / p["V_T"])
    diode = i / casadi.sqrt(1 + casadi.fmax(i, 0) / p["I_k"])
    through = (source - anode) / p["R_s"]
    h = casadi.vertcat(
        delivered + through,
        diode - through,
        charging + out / p["R"] - diode,
        source - AMPLITUDE * casadi.sin(2 * casadi.pi / PERIOD * t),
        out - x,
    )
    dae = {"t": t, "x": x, "z": z, "ode": charging / p["C"], "alg": h}
    # With algebraic variables in the error test it fails at 1e-10: their slopes jump where the diode starts to conduct.
    options = {"abstol": tolerance, "reltol": tolerance, "suppress_algebraic": True, "max_step_size": 1.0}
    options |= {"max_num_steps": 100_000, "show_eval_warnings": False}
    solver = casadi.integrator("circuit", "idas", dae, 0.0, times.tolist(), options)
    return lambda: np.asarray(solver(x0=0.0, z0=np.zeros(5))["xf"])[0]


def solutions(periods: int) -> dict[str, Any]:
    """Solutions, residuals in both dtypes, and iterations from several initial guesses."""
    times, residuals = _samples(periods), []
    waves, twin = _simulate(TRUTH, times), _twin(TRUTH)
    algebraic = twin.algebraic
    assert isinstance(algebraic, Implicit)
    for dtype in (jnp.float64, jnp.float32):
        simulation = waves if dtype == jnp.float64 else _simulate(TRUTH, times, dtype)
        p = {name: value.astype(dtype) for name, value in twin.parameters().items()}

        def relative(t: jax.Array, x: jax.Array, z: jax.Array, p: dict = p, dtype: Any = dtype) -> jax.Array:
            def residual(z: jax.Array) -> jax.Array:
                return algebraic.residual(t, x, z, jnp.full(1, AMPLITUDE, dtype), p)

            return jnp.max(jnp.abs(residual(z)) / (jnp.abs(jax.jacfwd(residual)(z)) @ (jnp.abs(z) + 1)))

        largest = float(jnp.max(jax.jit(jax.vmap(relative))(simulation.ts, simulation.xs, simulation.zs)))
        eps = float(jnp.finfo(dtype).eps)
        residuals.append({"dtype": jnp.dtype(dtype).name, "largest": largest, "in_eps": largest / eps})
    values = twin.parameters()
    count = jax.jit(
        jax.vmap(lambda z, t, x: algebraic.solve(t, x, jnp.full(1, AMPLITUDE), values, z).steps, in_axes=(0, 0, 0))
    )
    starts = {"zero": 0 * waves.zs[1:], "last sample": waves.zs[:-1], "solution": waves.zs[1:]}
    steps = []
    for start, z in starts.items():
        taken = np.asarray(count(z, waves.ts[1:], waves.xs[1:]))
        steps.append({"start": start, "mean": float(taken.mean()), "largest": int(taken.max())})
    columns = {name: waves.zs[:, index].tolist() for index, name in enumerate(algebraic.names or ())}
    return {"waves": {"t": times.tolist()} | columns, "residuals": residuals, "steps": steps}


def learned_law(epochs: int, quick: bool) -> dict[str, Any]:
    """The diode law learned from noisy outputs of the circuit, and its error."""
    times, p = _samples(1), _twin(TRUTH).parameters()
    runs = [_simulate(TRUTH, times, amplitude=each) for each in AMPLITUDES]
    ys = np.stack([np.asarray(run.ys) for run in runs])
    ys = ys + np.random.default_rng(0).normal(size=ys.shape) * NOISE
    inputs = np.stack([np.full((len(times), 1), each) for each in AMPLITUDES])
    data = Dataset.from_arrays(times, ys, inputs=inputs, x0=np.zeros((len(runs), 1)))
    # The law compensates the error of the integrator: 1 mV with Heun's method, small enough for a quick run.
    integrator = Heun(4) if quick else RK4(2)
    twin = rectifier(LearnedLaw(Network(1, 1, 8, 1, zero_last=True)), ROUGH, integrator)
    fitted = fit(twin, data, method=LevenbergMarquardt(epochs), progress=False)
    zs = np.stack([np.asarray(run.zs) for run in runs])
    highest = float((zs[..., 1] - zs[..., 2]).max())
    v = np.linspace(0.0, 1.15 * highest, 116)
    laws = {
        "true": _law(high_injection, v, p),
        "rough": _law(shockley, v, p | ROUGH),
        "learned": _law(_learned_law(fitted.twin), v, fitted.twin.parameters()),
    }
    inside = v <= highest
    largest = laws["true"][inside].max()
    error = {name: float(np.abs(law - laws["true"])[inside].max() / largest) for name, law in laws.items()}
    conducting = inside & (laws["true"] > 0.01 * largest)
    rows = [
        {
            "law": name,
            "error_of_largest_current": error[name],
            "relative_error_above_1_percent": float(np.abs(law[conducting] / laws["true"][conducting] - 1).max()),
        }
        for name, law in laws.items()
        if name != "true"
    ]
    return {
        "error": error["learned"],
        "before": error["rough"],
        "seen": highest,
        "v": v.tolist(),
        "laws": {name: law.tolist() for name, law in laws.items()},
        "rows": rows,
    }


def _learned_law(twin: Twin) -> Callable:
    """The learned law inside the equations of a fitted twin."""
    leaves = jax.tree.leaves(twin.algebraic, is_leaf=lambda node: isinstance(node, LearnedLaw))
    return next(node for node in leaves if isinstance(node, LearnedLaw))


def _law(law: Callable, v: np.ndarray, p: Any) -> np.ndarray:
    return np.asarray(jax.vmap(lambda v: law(v, p))(jnp.asarray(v)))


def error_figure(rows: list[dict[str, Any]]) -> "Figure":
    """Error against time, one curve per method."""
    methods = dict.fromkeys(row["method"] for row in rows)
    with subplots(1, 1, width=8.5, height=3.4) as (figure, (axis,)):
        for method, colour, dashes in zip(methods, COLOURS, DASHES, strict=False):
            here = [row for row in rows if row["method"] == method]
            seconds, errors = [row["seconds"] for row in here], [row["error"] for row in here]
            axis.loglog(seconds, errors, color=colour, linestyle=dashes, marker="o", markersize=3.5, label=method)
        axis.set_xlabel("seconds for a simulation")
        axis.set_ylabel("largest error of the voltage [V]")
        figure.legend(loc="outside right upper", handlelength=2.6)
    return figure


def wave_figure(waves: dict[str, list[float]]) -> "Figure":
    """Voltages in the upper panel, currents in the lower one."""
    t = np.array(waves["t"])
    with subplots(2, 1, width=8.5, height=2.2, sharex=True) as (figure, (volts, amps)):
        for name, label, colour, axis, sign in (
            ("v(in)", "source", GREY, volts, 1),
            ("v(anode)", "anode", COLOURS[0], volts, 1),
            ("v(out)", "load", COLOURS[1], volts, 1),
            ("i(Source in-0)", "source", GREY, amps, -1),
            ("i(Capacitor out-0)", "capacitor", COLOURS[2], amps, 1),
        ):
            axis.plot(t, sign * np.array(waves[name]), label=label, color=colour)
        volts.set_ylabel("voltage [V]")
        amps.set_ylabel("current [mA]")
        amps.set_xlabel("time [ms]")
        volts.set_ylim(-1.15 * AMPLITUDE, 1.7 * AMPLITUDE)
        for axis in (volts, amps):
            axis.legend(fontsize=8, loc="upper right", ncols=3)
    return figure


def law_figure(law: dict[str, Any]) -> "Figure":
    """Current against voltage, linear and logarithmic; grey outside the data and below the noise."""
    v = np.array(law["v"])
    lowest = float(np.interp(NOISE[1], law["laws"]["true"], v))
    with subplots(1, 2, width=9.5, height=3.4) as (figure, axes):
        for axis, scale in zip(axes, ("linear", "log"), strict=True):
            for unknown in ((0.0, lowest), (law["seen"], v[-1])):
                axis.axvspan(*unknown, color=PALE, zorder=0)
            axis.plot(v, law["laws"]["true"], color=INK, linewidth=5, alpha=0.25, label="true")
            axis.plot(v, law["laws"]["rough"], color=GREY, linestyle=(0, (3, 1.2)), label="before training")
            axis.plot(v, law["laws"]["learned"], color=COLOURS[4], label="learned")
            axis.set_yscale(scale)
            axis.set_xlim(v[0], v[-1])
            axis.set_xlabel("voltage across the diode [V]")
            axis.set_ylabel("current [mA]")
        inside = np.array(law["laws"]["true"])[v <= law["seen"]]
        axes[0].set_ylim(0, 1.6 * inside.max())
        axes[1].set_ylim(1e-5 * inside.max(), 3 * inside.max())
        axes[1].text(0.02, inside.max(), "below the noise", color=GREY, fontsize=8)
        axes[1].text(law["seen"], 3e-5 * inside.max(), " no data", color=GREY, fontsize=8)
        axes[0].legend(fontsize=8, loc="center left")
    return figure
