"""How fast a twin follows: an exported sample in C, and a fleet on standard input (`python -m benchmarks.following`).

Writes `following.json` next to this file. Two measurements:

- `ekf_us`: microseconds per sample (predict, project, correct, project) of an extended Kalman filter of 7 states with
  one constraint, exported to C, best of many runs in a loop in C; the gyro of the attitude twin of `exported.py` is
  measured, and all states beside it.
- `follow_p99_ms`: `twinfold follow` in a process of its own, with 1,000 assets of that twin at 1 Hz each, spread over
  the second. Latency is from the moment at which a line is written to its pipe to the moment at which its row is read.
  Memory is that of the process after a tenth of the time and at its end. Then it is killed (-9) and restarted.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

import twinfold as tw
from benchmarks.exported import attitude_twin, spec
from benchmarks.surroundings import machine, versions
from twinfold.estimate import ExtendedKalmanFilter, Noise
from twinfold.export import ExportSpec, export_follower
from twinfold.export._c.compiled import build, find_compiler

TARGETS = {"ekf_us": 10.0, "follow_p99_ms": 100.0, "missing_seconds": 1.0}
NAME = "attitude_follower"

LOOP = r"""
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "attitude_follower.h"
int main(int count, char **args)
{
    static double state[ATTITUDE_FOLLOWER_STATE_SIZE], y[ATTITUDE_FOLLOWER_OUTPUTS], w[2][ATTITUDE_FOLLOWER_INPUTS];
    int rounds = atoi(args[1]), samples = 50, bad = 0, k = (ATTITUDE_FOLLOWER_INPUTS - 3) / 2;
    (void)count;
    for (int r = 0; r < rounds; r++) {
        struct timespec a, b;
        for (int i = 0; i < k; i++) w[0][3 + i] = attitude_follower_start[7 - k + i], w[0][3 + k + i] = 1;
        bad |= attitude_follower_init(0, attitude_follower_start, w[0], 0, state, y);
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int n = 0; n < samples; n++) {
            double *now = w[n % 2], *next = w[1 - n % 2];
            for (int i = 0; i < k; i++) {
                next[3 + i] = state[7 - k + i] + 0.01 * ((n * 7 + i * 3) % 11 - 5) / 5.0;
                next[3 + k + i] = (n + i) % 10 != 0; /* one value in ten is missing */
            }
            bad |= attitude_follower_step(n * ATTITUDE_FOLLOWER_DT, now, next, 0, state, y);
        }
        clock_gettime(CLOCK_MONOTONIC, &b);
        printf("%.9g\n", ((b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec)) / samples);
    }
    return bad;
}
"""
SYSTEM = """
from benchmarks.following import measured_twin

STATES = ["q0", "q1", "q2", "q3", "ox", "oy", "oz"]


def twin():
    return measured_twin()
"""
CONFIG = """
[data]
files = ["none.csv"]
outputs = ["wx", "wy", "wz"]
inputs = ["tx", "ty", "tz"]
group = "asset"

[follow]
process = 0.001
measurement = 0.01
std = 0.1
x0 = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
"""


def measured_twin(observed: slice = slice(4, 7)) -> tw.Twin:
    """The attitude twin, of which some states are measured."""
    twin = attitude_twin(tw.Newton())
    return tw.Twin(
        twin.cell.field,
        params=twin.params,
        observe=lambda x: x[observed],
        constraint=twin.cell.constraint,
        projection=twin.cell.projection,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.following", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the fleet is followed (default: 600)")
    parser.add_argument("--assets", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2000, help="timed runs of 50 samples in C (default: 2000)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "following.json")
    options = parser.parse_args()
    tw.enable_x64()
    console = Console()
    report: dict[str, Any] = {"targets": TARGETS}
    for key, observed in (("ekf_us", slice(4, 7)), ("ekf_us_all_measured", slice(0, 7))):
        report |= in_c(key, observed, options.rounds)
        console.print(f"{key}: {report[key]}", highlight=False)
    report |= in_a_stream(options.assets, options.seconds, console)
    report |= {
        "versions": versions(),
        "machine": machine(),
        "load_average": os.getloadavg(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    for key, target in TARGETS.items():
        console.print(f"{key}: {report[key]} (target <= {target:g})", highlight=False)
    console.print(f"Written to {options.out}.", highlight=False)


def in_c(key: str, observed: slice, rounds: int) -> dict[str, Any]:
    """Microseconds per sample of the exported filter, and how far it is from Python."""
    compiler = find_compiler()
    if compiler is None:
        raise SystemExit("This benchmark needs a C compiler (cc, gcc or clang).")
    names = spec().states[observed]
    k = len(names)
    estimator = ExtendedKalmanFilter(measured_twin(observed), Noise([1e-3] * 7, [0.01] * k), gate=1e-6)
    given = spec()
    own = ExportSpec(
        "attitude",
        given.states,
        given.inputs,
        [f"measured {name}" for name in names],
        given.dt,
        given.x0,
        given.w0,
        **{end: getattr(given, end) for end in ("x_low", "x_high", "w_low", "w_high")},
    )
    with tempfile.TemporaryDirectory() as place:
        (exported,) = export_follower(estimator, own, place, std=[0.1] * 7, to=["c"])
        if not exported.checked:
            raise SystemExit("\n".join(exported.messages))
        folder = Path(place) / "c"
        (folder / "loop.c").write_text(LOOP)
        program = build(
            compiler,
            [folder / "loop.c", folder / f"{NAME}.c"],
            folder / "loop",
            flags=["-std=c99", "-O2", "-ffp-contract=off"],
        )
        done = subprocess.run([str(program), str(rounds)], capture_output=True, text=True, check=True)
    times = [1e6 * float(line) for line in done.stdout.split()]
    return {
        key: round(min(times), 3),
        f"{key}_median": round(float(np.median(times)), 3),
        f"{key}_difference": exported.free_running_difference,
    }


def in_a_stream(assets: int, seconds: float, console: Console) -> dict[str, Any]:
    """Latencies and memory of `twinfold follow`, and what a kill leaves."""
    with tempfile.TemporaryDirectory() as place:
        project(Path(place))
        state = Path(place) / "fleet.state"
        console.print(f"{assets} assets for {seconds:g} s ...", style="dim")
        found = stream(Path(place), state, assets, seconds, first=0.0)
        console.print("killed; restarting ...", style="dim")
        again = stream(Path(place), state, assets, min(seconds, 5.0), first=seconds + 5.0)
    latency = 1e3 * np.array(found["latency"])
    resumed = next((line for line in again["said"] if line.startswith("Resumed")), "")
    known = int(resumed.split(" samples")[0].split()[-1]) if resumed else 0
    return {
        "follow_p99_ms": round(float(np.quantile(latency, 0.99)), 2),
        "follow_median_ms": round(float(np.median(latency)), 2),
        "follow_max_ms": round(float(latency.max()), 2),
        "follow_assets": assets,
        "follow_seconds": seconds,
        "follow_rows": len(latency),
        "memory_mb": [round(each, 1) for each in found["memory"]],
        "missing_samples": found["sent"] - known,
        "missing_seconds": round((found["sent"] - known) / assets, 3),
        "said_at_restart": resumed.replace(str(state), state.name),
        "rows_after_restart": len(again["latency"]),
        "follow_p99_ms_after_restart": round(1e3 * float(np.quantile(again["latency"], 0.99)), 2),
    }


def project(folder: Path) -> None:
    """A workspace with a model file, without a fit."""
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(CONFIG)
    workspace = tw.workspace.open_workspace(folder)
    system = workspace.load_system()
    info = tw.ModelInfo(
        states=tuple(spec().states),
        inputs=("tx", "ty", "tz"),
        outputs=("wx", "wy", "wz"),
        dt=1.0,
        config=workspace.config.tables(),
        system_source_sha256=system.sha256,
    )
    (folder / "runs/first").mkdir(parents=True)
    tw.save_model(folder / "runs/first/model.twin", system.twin, about=info)


def stream(folder: Path, state: Path, assets: int, seconds: float, first: float) -> dict[str, Any]:
    """Follow for so long, then kill; latency of each row, memory, what was said, and how much was sent."""
    command = [
        sys.executable,
        "-m",
        "twinfold",
        "follow",
        "-C",
        str(folder),
        "--state",
        str(state),
        "--format",
        "jsonl",
    ]
    errors = (folder / "said.txt").open("w+")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdin is not None
    assert process.stdout is not None
    sent_at: dict[tuple[str, float], float] = {}
    latency: list[float] = []
    began = threading.Event()

    def read() -> None:
        for line in process.stdout or ():
            now = time.perf_counter()
            row = json.loads(line)
            sent = sent_at.pop((row["asset"], row["t"]), None)
            if row["asset"] == "first":
                began.set()
            elif sent is not None:
                latency.append(now - sent)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    process.stdin.write(b"asset,t,tx,ty,tz,wx,wy,wz\n" + f"first,{first - 1},0,0,0,0,0,0\n".encode())
    process.stdin.flush()
    began.wait(600)  # it compiles
    memory, sent, start = [], 1, time.perf_counter()
    total = int(seconds * assets)
    for k in range(total):
        asset, turn = k % assets, k // assets
        due = start + turn + asset / assets
        now = time.perf_counter()
        if due > now:
            time.sleep(due - now)
        t = first + turn + asset / assets
        name, value = f"asset {asset}", 0.05 * np.sin(0.1 * t + asset)
        sent_at[name, t] = time.perf_counter()
        process.stdin.write(f"{name},{t!r},0,0,0,{value!r},0,0\n".encode())
        process.stdin.flush()
        sent += 1
        if k in (total // 10, total - 1):
            memory.append(resident_mb(process.pid))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    reader.join(10)
    process.stdin.close()
    process.stdout.close()
    errors.seek(0)
    said = errors.read().splitlines()
    errors.close()
    return {"latency": latency, "memory": memory, "said": said, "sent": sent}


def resident_mb(process: int) -> float:
    """The memory of a process; NaN where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return float("nan")


if __name__ == "__main__":
    main()
