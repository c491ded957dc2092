"""Many rows: a row costs the same time and memory at the end of a long table as at its beginning.

Bounds: ten times the rows take at most 15 times the computing time, and each added row at most 600 bytes of memory (a
table is read as a whole; 450 bytes are usual). A stepper takes each sample in the same time and memory: the median of
the last tenth is at most 1.5 times that of the first, and the process grows by at most 5 MB in between.
"""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from campaign import plant
from campaign.engine import Case, Group, scaled
from campaign.process import Done, Process
from campaign.undisturbed import undisturbed

ROWS, SAMPLES = 1_000_000, 100_000
RUN_LENGTH = 1000  # rows of a run, in a table of many runs
MAX_RATIO, MAX_STEP_RATIO = 15.0, 1.5  # for ten times the rows; for a sample
MAX_ROW_BYTES, MAX_STEPPER_GROWTH = 600, 5_000_000
MARGIN, MARGIN_MB = 5.0, 150.0  # seconds and memory by which two starts of a command differ, mostly by compilation
SECONDS = 3000.0
SIMULATE = ("simulate", "rows.csv", "--out", "simulated.csv")
MONITOR = ("monitor", "rows.csv", "--window", "10")

STEPPER = """
import json, resource, statistics, sys, time

import jax.numpy as jnp
import numpy as np
import twinfold as tw

tw.enable_x64()
twin = tw.Twin(lambda x, w, p: jnp.stack([x[1], w[0] - p["k"] * x[0] - 0.3 * x[1]]), params={"k": 4.0})
stepper, samples, warm_up, clock = twin.stepper([0.5, 0.0]), int(sys.argv[1]), 200, time.perf_counter
seconds, memory, states = [], [], []


def used():
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:  # the largest so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


for k in range(warm_up + samples):
    start = clock()
    output = stepper.step(0.01 * k, w=[np.sin(0.01 * k)], y=[0.1, np.nan])
    assert output.ok, output.message
    if k >= warm_up:
        seconds.append(clock() - start)
    if k in (warm_up + samples // 10, warm_up + samples - 1):
        memory.append(used())
        states.append(len(json.dumps(stepper.state())))
tenth = samples // 10
first, last = (statistics.median(each) for each in (seconds[:tenth], seconds[-tenth:]))
print(json.dumps({"first": first, "last": last, "memory": memory, "states": states}))
"""


def long_table(arguments: tuple[str, ...], run_length: int, rows: int, folder: Path) -> None:
    """A command on a table, and on one of ten times the rows."""
    none, some, all_rows = (
        _measure(arguments, min(run_length, count), count, folder) for count in (100, rows // 10, rows)
    )
    variable = some.cpu_seconds - none.cpu_seconds
    allowed = MAX_RATIO * max(variable, 0) + none.cpu_seconds + MARGIN
    times = ", ".join(f"{each.cpu_seconds:.1f} s" for each in (none, some, all_rows))
    assert all_rows.cpu_seconds <= allowed, f"100, {rows // 10} and {rows} rows took {times}"
    grown, added = all_rows.peak_mb - some.peak_mb, rows - rows // 10
    assert grown <= MAX_ROW_BYTES * added / 2**20 + MARGIN_MB, f"{added} rows more took {grown:.0f} MB more memory"


def _measure(arguments: tuple[str, ...], run_length: int, rows: int, folder: Path) -> Done:
    place = undisturbed(plant.FIT).copy_end(folder / str(rows))
    (place / "rows.csv").write_text(plant.decays(rows // run_length, run_length, seed=3))
    done = Process(place, arguments).wait(SECONDS)
    assert done.code in (0, 1), done.said
    assert "Traceback" not in done.err, done.said
    written = place / ("simulated.csv" if arguments is SIMULATE else f"{plant.RUN}/monitor/windows.csv")
    with written.open() as file:
        lines = sum(1 for _ in file) - 1
    assert lines == (rows if arguments is SIMULATE else rows // run_length * (run_length // 10)), f"{lines} lines"
    return done


def stepper(samples: int, folder: Path) -> None:
    """A stepper that runs beside a plant."""
    (folder / "stepper.py").write_text(STEPPER)
    done = Process(folder, ("stepper.py", str(samples))).wait(SECONDS)
    assert done.code == 0, done.said
    found = json.loads(done.out.splitlines()[-1])
    assert found["last"] <= MAX_STEP_RATIO * found["first"], (
        f"a sample takes {found['first']:.2g} s, later {found['last']:.2g} s"
    )
    grown = found["memory"][1] - found["memory"][0]
    assert grown <= MAX_STEPPER_GROWTH, f"the process grew by {grown / 2**20:.1f} MB over {samples} samples"
    assert found["states"][1] <= found["states"][0] + 100, f"the saved state grew: {found['states']} characters"


def volume_cases(seed: int, scale: float) -> Iterable[Case]:
    """The tables are the same for every seed."""
    yield Case("stepper", partial(stepper, scaled(SAMPLES, scale)))
    if scale < plant.SHORT:  # the others need a fit
        return
    rows = scaled(ROWS, scale) // (10 * RUN_LENGTH) * (10 * RUN_LENGTH)
    for name, arguments, length in (
        ("simulate, one run", SIMULATE, rows),
        ("simulate, many runs", SIMULATE, RUN_LENGTH),
        ("monitor, one run", MONITOR, rows),
    ):
        yield Case(name, partial(long_table, arguments, length, rows))


VOLUME = Group("Many rows, at a constant cost of each", volume_cases, kind="run", seconds=7000)
