"""Time of the shipped battery cell with its thermal state (`python -m benchmarks.cell`): exported step and discharge.

Eight states, the network of the data sheet, three Runge-Kutta steps within a step of five seconds, in float64. Writes
`cell.json` next to this file. The step is timed in C, in a loop in C; the discharge in JAX, compiled before.
"""

import argparse
import datetime
import json
import subprocess
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import twinfold as tw
from benchmarks.exported import STEPS, in_c, in_jax, summary, timed
from twinfold.export import ExportSpec
from twinfold.export._c.compiled import find_compiler
from twinfold.export._step import build_step
from twinfold.model import simulate_unchecked

TARGETS = {"c_step_us": 5.0, "discharge_ms": 2.0}
SAMPLES, INTERVAL = 190, 18.0  # of a discharge at 2 A, as logged by NASA
STATES = ["q_b_p", "q_s_p", "q_b_n", "q_s_n", "V_o", "V_eta_p", "V_eta_n", "temperature"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cell", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="timed runs (default: 200)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "cell.json")
    options = parser.parse_args()
    tw.enable_x64()
    compiler = find_compiler()
    if compiler is None:
        raise SystemExit("This benchmark needs a C compiler (cc, gcc or clang).")
    cell, load = tw.systems.fitted_cell(), jnp.array([2.0, 24.0])
    p = cell.parameters()
    x0 = cell.initial_state(0.0, jnp.array([4.19, 24.0]), load, p)
    given = ([float(value) for value in x0], [2.0, 24.0])
    spec = ExportSpec("cell", STATES, ["current", "ambient"], ["voltage", "celsius"], 5.0, *given)
    step = build_step(cell, spec)
    with tempfile.TemporaryDirectory() as place:
        times, last, size = in_c(step, compiler, Path(place), options.rounds)
    own, final = in_jax(step, max(options.rounds // 10, 5))
    if not np.allclose(last, final, rtol=1e-9):
        raise SystemExit(f"C and JAX differ: {last} and {final}.")
    ts = INTERVAL * jnp.arange(SAMPLES)
    w = jnp.broadcast_to(load, (SAMPLES, 2))
    discharge = jax.jit(lambda x: simulate_unchecked(cell, x, ts, w, p).ys)
    seconds = timed(lambda: discharge(x0).block_until_ready(), options.rounds)
    from benchmarks.surroundings import machine, versions

    rows = {"C": summary(times, size)} | {name: summary(each, None) for name, each in own.items()}
    report = {
        "c_step_us": rows["C"]["best_us"],
        "discharge_ms": round(1e3 * min(np.asarray(seconds) * STEPS), 4),
        "targets": TARGETS,
        "steps": rows,
        "versions": versions(),
        "compiler": subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0],
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps({name: report[name] for name in TARGETS}, indent=2))


if __name__ == "__main__":
    main()
