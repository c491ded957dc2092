"""Time per step of an exported twin: C, onnxruntime and jitted JAX (`python -m benchmarks.exported`).

An attitude twin with 7 states, RK4 and a residual network of 2x16, in float64, unprojected and with one constraint held
by each projection. Prints a table and writes `exported.json` next to this file. C is timed in a loop in C; the others
one step per call, as in a host that waits for each prediction, and JAX also inside one scan.
"""

import argparse
import datetime
import importlib.metadata
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from rich.console import Console
from rich.table import Table

import twinfold as tw
from twinfold.export import ExportSpec, export_onnx
from twinfold.export._c.compiled import build, code_size, find_compiler
from twinfold.export._c.source import write_source
from twinfold.export._step import Step, build_step

TARGETS = {"unprojected": 3.0, "Tangent": 5.0, "Newton": 5.0, "Adaptive": 5.0}  # microseconds per step in C
STEPS = 500  # of one timed run

LOOP = r"""
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "attitude.h"
int main(int count, char **args)
{
    double state[ATTITUDE_STATE_SIZE], y[ATTITUDE_OUTPUTS], w[ATTITUDE_INPUTS] = {0.1, -0.2, 0.05};
    int rounds = count > 1 ? atoi(args[1]) : 1, steps = count > 2 ? atoi(args[2]) : 1, bad = 0;
    for (int r = 0; r < rounds; r++) {
        struct timespec a, b;
        bad |= attitude_init(0, attitude_start, w, 0, state, y);
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int k = 0; k < steps; k++) bad |= attitude_step(k * ATTITUDE_DT, w, w, 0, state, y);
        clock_gettime(CLOCK_MONOTONIC, &b);
        printf("%.9g\n", ((b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec)) / steps);
    }
    fprintf(stderr, "%.17g\n", state[0]);
    return bad;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exported", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="timed runs of each contender (default: 200)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "exported.json")
    options = parser.parse_args()
    tw.enable_x64()
    console = Console()
    if not console.is_terminal:
        console = Console(width=130)
    compiler = find_compiler()
    if compiler is None:
        raise SystemExit("This benchmark needs a C compiler (cc, gcc or clang).")
    results = {}
    for name, projection in projections().items():
        console.print(f"{name} ...", style="dim")
        results[name] = measured(attitude_twin(projection), compiler, options.rounds)
    show(console, results)
    from benchmarks.surroundings import machine, versions

    report = {
        **{f"c_us_{name.lower()}": row["C"]["best_us"] for name, row in results.items()},
        "targets_us": TARGETS,
        "steps": results,
        "versions": {**versions(), **{name: importlib.metadata.version(name) for name in ("jax2onnx", "onnxruntime")}},
        "compiler": subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0],
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"Written to {options.out}.", highlight=False)


def projections() -> dict[str, Any]:
    """The projections to measure, by name."""
    return {"unprojected": None, "Tangent": tw.Tangent(), "Newton": tw.Newton(), "Adaptive": tw.Adaptive()}


def attitude(x: jax.Array, w: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    """A rotating rigid body: quaternion and angular rates."""
    q, o = x[:4], x[4:]
    turn = jnp.stack(
        [
            -q[1] * o[0] - q[2] * o[1] - q[3] * o[2],
            q[0] * o[0] + q[2] * o[2] - q[3] * o[1],
            q[0] * o[1] - q[1] * o[2] + q[3] * o[0],
            q[0] * o[2] + q[1] * o[1] - q[2] * o[0],
        ]
    )
    return jnp.concatenate([0.5 * turn, (w - jnp.cross(o, p["I"] * o)) / p["I"]])


def attitude_twin(projection: Any) -> tw.Twin:
    """The twin to measure; its weights are random, which does not change the time."""
    twin = tw.Twin(
        tw.GreyBox(attitude, tw.MLP(states=list(range(7)), adds_to=[4, 5, 6], width=16, depth=2)),
        params={"I": tw.Unknown([1.6, 1.0, 0.7], positive=True)},
        constraint=None if projection is None else tw.Constraint(lambda x: x[:4] @ x[:4] - 1),
        projection=projection,
    )
    return twin.initialise(jr.key(0), states=7, inputs=3)


def spec() -> ExportSpec:
    """Names and ranges of the twin."""
    names = ["q0", "q1", "q2", "q3", "ox", "oy", "oz"]
    ends: dict[str, Any] = {"x_low": [-1.0] * 7, "x_high": [1.0] * 7, "w_low": [-1.0] * 3, "w_high": [1.0] * 3}
    x0 = [1.0, 0.0, 0.0, 0.0, 0.3, -0.2, 0.5]
    return ExportSpec("attitude", names, ["tx", "ty", "tz"], names, 0.02, x0, [0.1, -0.2, 0.05], **ends)


def measured(twin: tw.Twin, compiler: str, rounds: int) -> dict[str, dict[str, Any]]:
    """Microseconds per step of each contender, and the size of its file."""
    step = build_step(twin, spec())
    with tempfile.TemporaryDirectory() as place:
        times, last, size = in_c(step, compiler, Path(place), rounds)
        rows = {"C": summary(times, size)}
        own, final = in_jax(step, max(rounds // 10, 5))
        if not np.allclose(last, final, atol=1e-9):
            raise SystemExit(f"C and JAX differ: {last} and {final} after {STEPS} steps.")
        for name, times in own.items():
            rows[name] = summary(times, None)
        times, size = in_onnxruntime(twin, Path(place), max(rounds // 10, 5))
        rows["onnxruntime, a call a step"] = summary(times, size)
    return rows


def summary(times: list[float], size: int | None) -> dict[str, Any]:
    """Best and median in microseconds, and bytes."""
    best, median = 1e6 * min(times), 1e6 * float(np.median(times))
    return {"best_us": round(best, 3), "median_us": round(median, 3), "bytes": size}


def in_c(step: Step, compiler: str, place: Path, rounds: int) -> tuple[list[float], float, int]:
    """Seconds per step of the C code in a loop in C, the first state at the end, and the code size."""
    files = write_source(step, place)
    name, inputs = step.spec.name, ", ".join(map(str, step.spec.w0))
    loop = LOOP.replace("0.1, -0.2, 0.05", inputs).replace("ATTITUDE", name.upper()).replace("attitude", name)
    (place / "loop.c").write_text(loop)
    program = build(
        compiler, [place / "loop.c", files[0]], place / "loop", flags=["-std=c99", "-O2", "-ffp-contract=off"]
    )
    done = subprocess.run([str(program), str(rounds), str(STEPS)], capture_output=True, text=True, check=True)
    library = build(compiler, [files[0]], place / f"{name}.so")
    return [float(line) for line in done.stdout.split()], float(done.stderr), code_size(library)


def in_jax(step: Step, rounds: int) -> tuple[dict[str, list[float]], float]:
    """Seconds per step of the jitted twin, one call per step and inside one scan, and the first state at the end."""
    w, p, dt = jnp.asarray(step.spec.w0), jnp.asarray(step.defaults), step.spec.dt
    first = jax.jit(step.init)(0.0, jnp.asarray(step.spec.x0), w, p)[0]
    one = jax.jit(lambda t, state: step.step(t, w, w, p, state)[0])
    ts = dt * np.arange(STEPS)
    whole = jax.jit(lambda state: jax.lax.scan(lambda s, t: (one(t, s), None), state, jnp.asarray(ts))[0])

    def call_by_call() -> Any:
        state = first
        for t in ts:
            state = one(t, state)
        return state.block_until_ready()

    return {
        "JAX, a call a step": timed(call_by_call, rounds),
        "JAX, in one scan": timed(lambda: whole(first).block_until_ready(), rounds),
    }, float(whole(first)[0])


def in_onnxruntime(twin: tw.Twin, place: Path, rounds: int) -> tuple[list[float], int]:
    """Seconds per step of the ONNX model, and its size."""
    import onnxruntime

    report = export_onnx(twin, spec(), place, dtypes=["float64"], samples=20)
    (path,) = (file for file in report.files if file.name == "attitude_step_float64.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    names, step = {argument.name for argument in session.get_inputs()}, build_step(twin, spec())
    first = np.asarray(jax.jit(step.init)(0.0, np.asarray(spec().x0), np.asarray(spec().w0), step.defaults)[0])
    w = np.asarray(spec().w0)

    def run() -> None:
        state = first
        for k in range(STEPS):
            given = {"t": np.asarray(0.02 * k), "w0": w, "w1": w, "p": step.defaults, "state": state}
            (state,) = session.run(["state_next"], {name: value for name, value in given.items() if name in names})

    return timed(run, rounds), path.stat().st_size


def timed(fn: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds per step in each of several runs, after a warm-up run."""
    fn()
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        fn()
        found.append((time.perf_counter() - began) / STEPS)
    return found


def show(console: Console, results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print a row for each contender, with its time relative to C."""
    table = Table(title="One step of 7 states, RK4, 2x16 residual, float64", title_justify="left")
    for column in ("step", "contender", "best us", "median us", "times C", "bytes", "target"):
        table.add_column(column, justify="left" if column in ("step", "contender") else "right")
    for name, rows in results.items():
        for contender, row in rows.items():
            target = ""
            if contender == "C":
                target = f"<= {TARGETS[name]:g} us: {'met' if row['best_us'] <= TARGETS[name] else 'MISSED'}"
            table.add_row(
                name if contender == "C" else "",
                contender,
                f"{row['best_us']:.2f}",
                f"{row['median_us']:.2f}",
                f"{row['best_us'] / rows['C']['best_us']:.1f}",
                "" if row["bytes"] is None else str(row["bytes"]),
                target,
            )
    console.print(table)


if __name__ == "__main__":
    main()
