"""A small plant, and the commands on it that are disturbed."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from campaign.engine import Case, scaled
from campaign.process import run

RUN = "runs/a"  # the run folder
OLD = b"old"  # in files of an earlier call that are to be replaced
DECAY, STEP = 0.7, 0.05
SHORT = 0.1  # below this scale only commands without JAX, which take a second

SYSTEM = """
import twinfold as tw

STATES = ["x"]
UNITS = {"time": "s", "x": "m", "u": "m/s"}


def rate(x, w, p):
    return -p["k"] * x + w


def twin():
    missing = tw.MLP(states=[0], adds_to=[0], width=3, depth=1)
    return tw.Twin(tw.GreyBox(rate, missing), params={"k": tw.Unknown(0.7, positive=True)})
"""
TOML = """
[data]
files = ["data/*.csv"]
run = "id"
inputs = ["u"]
outputs = ["x"]

[fit]
seeds = 1
adam_epochs = 20
learning_rate = 0.01
lm_steps = 3

[run]
folder = "runs/a"
"""
# What a fit does with its folder, without JAX.
SCRIPT = """
from pathlib import Path

from twinfold.io import RunFolder, write_csv, write_json, write_json_lines

folder = Path("runs/a")
with RunFolder(folder, outputs=("metrics.json",)).claim({"seeds": 3}, command="claim.py"):
    write_json_lines(folder / "history.jsonl", ({"epoch": epoch, "loss": 1 / (1 + epoch)} for epoch in range(200)))
    write_csv(folder / "samples.csv", ((t, t / 7) for t in range(200)), columns=["t", "x"])
    write_json(folder / "metrics.json", {"rmse": 0.1})
"""


def decays(runs: int, samples: int, *, seed: int = 0) -> str:
    """A table of measurements of x' = -0.7 x + u, with u held between samples: the physics is exact."""
    rng, kept, lines = np.random.default_rng(seed), np.exp(-DECAY * STEP), ["id,t,u,x"]
    for run_number in range(runs):
        x = rng.uniform(0.5, 2)
        for sample in range(samples):
            u = float(sample // 7 % 3) - 1
            lines.append(f"{run_number},{sample * STEP!r},{u},{float(x + 0.002 * rng.normal())!r}")
            x = kept * x + (1 - kept) / DECAY * u
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Scenario:
    """A command, the state of the folder before it, the names of the files it writes, and its exit code.

    `once`: after its last write it does not do the same again. `new` refuses a complete project, and a watch that is
    resumed has no new rows to judge.
    """

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path], None]
    files: tuple[str, ...]
    code: int = 0
    once: bool = False


def make_project(folder: Path) -> None:
    """A project that is not fitted yet. Its residual does harm: the fit ends with a problem and exit code 1."""
    (folder / "data").mkdir()
    (folder / "system.py").write_text(SYSTEM)
    (folder / "twinfold.toml").write_text(TOML)
    (folder / "data" / "all.csv").write_text(decays(5, 64))
    (folder / "new.csv").write_text(decays(1, 100, seed=1))


def make_script(folder: Path) -> None:
    """A script that claims a run folder."""
    (folder / "claim.py").write_text(SCRIPT)


def make_other_fit(folder: Path) -> None:
    """A project with a finished fit of another configuration."""
    copy_fitted(folder)
    (folder / "twinfold.toml").write_text(TOML.replace("lm_steps = 3", "lm_steps = 4"))


def make_fitted(*old: str) -> Callable[[Path], None]:
    """A project with a finished fit, and files of an earlier call in its run folder."""

    def prepare(folder: Path) -> None:
        copy_fitted(folder)
        for name in old:
            (folder / RUN / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / RUN / name).write_bytes(OLD)

    return prepare


def make_monitored(folder: Path) -> None:
    """A plant that was monitored before, with rows added since."""
    copy_fitted(folder)
    rows = (folder / "new.csv").read_text()
    (folder / "new.csv").write_text("".join(rows.splitlines(keepends=True)[:60]))
    run(folder, *MONITOR.arguments)
    (folder / "new.csv").write_text(rows)


def copy_fitted(folder: Path) -> None:
    """The project after its fit."""
    from campaign.undisturbed import undisturbed  # it runs the scenarios below

    shutil.copytree(undisturbed(FIT).end, folder, dirs_exist_ok=True)


# The claim of a run folder: who is there, and which run it belongs to.
CLAIM_FILES = (".owner.json", "config.json")
CHECKPOINTS, FINDINGS = ("fit.npz", "physics.npz"), "findings.json"
REPORT_FILES = ("index.html", "learned.csv", "metrics.csv", "parameters.csv", "plotly.min.js", "predictions.csv")
ONNX_FILES = tuple(
    f"plant_{part}" for kind in ("32", "64") for part in (f"init_float{kind}.onnx", f"step_float{kind}.onnx")
)
HLO_FILES = ("plant_init.stablehlo", "plant_output.stablehlo", "plant_step.mlir", "plant_step.stablehlo", "plant.json")
MONITOR_FILES = ("windows.csv", "windows.png", "state.json")

NEW = Scenario(
    "new",
    ("new", "tank", "--template", "tank"),
    lambda _: None,
    ("system.py", "twinfold.toml", "README.md", "sample.csv"),
    once=True,
)
CLAIM = Scenario("claim", ("claim.py",), make_script, (*CLAIM_FILES, "history.jsonl", "samples.csv", "metrics.json"))
FIT = Scenario(
    "fit",
    ("fit", "--quiet"),
    make_project,
    (
        *CLAIM_FILES,
        "config.toml",
        FINDINGS,
        *CHECKPOINTS,
        "history.jsonl",
        "physics.twin",
        "seeds.npz",
        "model.twin",
        "metrics.json",
    ),
    code=1,
)
FORCE = Scenario("fit --force", ("fit", "--quiet", "--force"), make_other_fit, FIT.files, code=1)
REPORT = Scenario(
    "report", ("report",), make_fitted("report/index.html", "report/runs.csv"), (*REPORT_FILES, "runs.csv")
)
C = Scenario("export c", ("export", "--to", "c"), make_fitted("export/c/plant.h"), ("plant.c", "plant.h"))
FMU = Scenario("export fmu", ("export", "--to", "fmu"), make_fitted("export/fmu/plant.fmu"), ("plant.fmu",))
ONNX = Scenario(
    "export onnx",
    ("export", "--to", "onnx"),
    make_fitted("export/onnx/plant_step_float32.onnx"),
    (*ONNX_FILES, "plant_float32.onnx.json", "plant_float64.onnx.json"),
)
HLO = Scenario(
    "export stablehlo", ("export", "--to", "stablehlo"), make_fitted("export/stablehlo/plant.json"), HLO_FILES
)
MONITOR = Scenario(
    "monitor", ("monitor", "new.csv", "--window", "10"), make_fitted("monitor/windows.csv"), MONITOR_FILES
)
RESUME = Scenario("monitor --resume", ("monitor", "new.csv", "--resume"), make_monitored, MONITOR_FILES, once=True)
SIMULATE = Scenario(
    "simulate",
    ("simulate", "new.csv", "--out", f"{RUN}/simulated.csv"),
    make_fitted("simulated.csv"),
    ("simulated.csv", "simulated.png"),
)
LIGHT = (CLAIM, NEW)  # within a second, without JAX
EXPORTS = (C, FMU, ONNX, HLO)


def select(
    quick: list[partial], whole: list[partial], scale: float, draw: random.Random, *, always: Sequence[partial] = ()
) -> Iterator[Case]:
    """A share of the cases (calls of a function with a scenario first), of `quick` ones three at least."""
    draw.shuffle(quick)
    draw.shuffle(whole)
    chosen = quick[: max(3, scaled(len(quick), scale))] + (whole[: scaled(len(whole), scale)] if scale >= SHORT else [])
    for case in (*always, *chosen):
        scenario, *rest = case.args
        words = (f"{word:.3g}" if isinstance(word, float) else str(word) for word in rest)
        yield Case(" ".join([case.func.__name__, scenario.name, *words]), case)
