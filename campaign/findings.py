"""Fits made to go wrong, as a user runs them: each says so, and so do its exit code and its files."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from campaign.engine import Case, Group, scaled
from campaign.process import Process

SECONDS = 240.0
TS = np.linspace(0.0, 2.0, 41)
DECAY = """import twinfold as tw

def twin():
    return tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.6, positive=True)})
"""
CONSTRAINED = """import jax.numpy as jnp
import twinfold as tw

def twin():
    return tw.Twin(
        lambda x, p: jnp.stack([x[1], -p["k"] * x[0]]),
        params={"k": tw.Unknown(1.0, positive=True)},
        constraint=tw.Constraint(lambda x: x @ x - 1.0),
    )
"""
HIDDEN = """import jax.numpy as jnp
import twinfold as tw

def twin():
    return tw.Twin(
        tw.GreyBox(lambda x, p: -p["k"] * x, tw.MLP(adds_to=[1], width=2, depth=1)),
        params={"k": tw.Unknown(0.6, positive=True)},
        observe=lambda x: x[:1],
        initial=lambda y: jnp.stack([y[0], 1.0]),
    )
"""
FROM_Y = """import twinfold as tw

def twin():
    return tw.Twin(
        lambda x, p: -p["k"] * x, params={"k": tw.Unknown(0.6, positive=True)}, observe=lambda x: x, initial=lambda y: y
    )
"""
GREY = """import twinfold as tw

def twin():
    return tw.Twin(tw.GreyBox(lambda x, p: -p["k"] * x, tw.MLP(width=4, depth=1)), params={"k": tw.Unknown(0.7)})
"""


@dataclass(frozen=True)
class Project:
    """A project, the sentences that its fit must say, and its exit code.

    `runs`: name -> columns; `kinds` of findings in the files; `data` and `fit`: settings beside the usual ones.
    """

    system: str
    runs: dict[str, dict[str, np.ndarray]]
    says: Sequence[str]
    code: int
    kinds: Sequence[str]
    data: str = ""
    fit: str = ""


def decay(start: float, random: np.random.Generator, rate: float = 0.7) -> dict[str, np.ndarray]:
    """A run of the decay, with noise."""
    return {"t": TS, "x": start * np.exp(-rate * TS) + 1e-3 * random.normal(size=len(TS))}


def decays(random: np.random.Generator, count: int = 3) -> dict[str, dict[str, np.ndarray]]:
    """Runs of the decay."""
    return {f"run {k}": decay(1.0 + 0.5 * k, random) for k in range(count)}


def contradicted_constraint(random: np.random.Generator) -> Project:
    """The data lie on a circle that grows from run to run, and not on the one of the constraint."""
    runs = {}
    for k, radius in enumerate((1.3, 1.5, 1.7)):
        noise = 1e-3 * random.normal(size=(2, len(TS)))
        runs[f"run {k}"] = {"t": TS, "x": radius * np.cos(TS) + noise[0], "v": -radius * np.sin(TS) + noise[1]}
    return Project(CONSTRAINED, runs, ["contradict"], 1, ["invariant"], 'outputs = ["x", "v"]')


def wrong_initial_state(random: np.random.Generator) -> Project:
    """The initial states are twice the first measurements."""
    runs = {name: run | {"x0": np.full(len(TS), 2 * run["x"][0])} for name, run in decays(random).items()}
    return Project(DECAY, runs, ["initial state"], 1, ["initial"], 'x0 = ["x0"]')


def constant_outputs(random: np.random.Generator) -> Project:
    """A sensor that never moves."""
    runs = {f"run {k}": {"t": TS, "x": np.full(len(TS), 2.0)} for k in range(3)}
    return Project(DECAY, runs, ["constant"], 1, ["constant"])


def no_effect(random: np.random.Generator) -> Project:
    """A residual on a state that no output depends on."""
    return Project(
        HIDDEN, decays(random), ["no effect on the outputs", "cannot identify"], 0, ["identify"], fit="lm_steps = 20"
    )


def same_run(random: np.random.Generator) -> Project:
    """A training run is a test run as well, under another name."""
    runs = decays(random)
    return Project(DECAY, runs | {"copy": runs["run 1"]}, ["The same measurements"], 1, ["held out"], 'test = ["copy"]')


def same_run_shifted(random: np.random.Generator) -> Project:
    """The copy begins later, and its clock is another one."""
    runs = decays(random)
    copy = {name: values[5:] for name, values in runs["run 1"].items()}
    copy["t"] = copy["t"] + 1000.0
    return Project(DECAY, runs | {"copy": copy}, ["The same measurements"], 1, ["held out"], 'test = ["copy"]')


def missing_first(random: np.random.Generator) -> Project:
    """The initial state is computed from y, and y is missing in the first row of a run."""
    runs = decays(random)
    runs["run 1"]["x"][0] = np.nan
    return Project(FROM_Y, runs, ["the initial state of run 'run 1' cannot be formed"], 2, ["physics"])


def wild_learning_rate(random: np.random.Generator) -> Project:
    """Every seed becomes non-finite."""
    return Project(
        GREY,
        decays(random),
        ["non-finite", "learning_rate"],
        2,
        ["diverged"],
        fit="adam_epochs = 5\nlearning_rate = 1e6",
    )


def better_baseline(random: np.random.Generator) -> Project:
    """The training runs have a disturbance that the test run does not have; the network learns it."""
    runs = {f"run {k}": decay(1.0 + 0.5 * k, random, rate=1.4) for k in range(3)} | {"other": decay(1.2, random)}
    fit = "adam_epochs = 60\nlearning_rate = 0.05\nlm_steps = 5"
    return Project(GREY, runs, ["better than the twin"], 1, ["baseline"], 'test = ["other"]', fit)


PROJECTS = (
    missing_first,  # the quickest: there is nothing to fit
    contradicted_constraint,
    wrong_initial_state,
    constant_outputs,
    no_effect,
    same_run,
    same_run_shifted,
    wild_learning_rate,
    better_baseline,
)


def write_project(project: Project, folder: Path) -> None:
    """Write system.py, twinfold.toml and the table."""
    columns = list(next(iter(project.runs.values())))
    rows = [",".join(["id", *columns])]
    for name, run in project.runs.items():
        for values in zip(*run.values(), strict=True):
            rows.append(",".join([name, *("" if np.isnan(value) else repr(float(value)) for value in values)]))
    (folder / "all.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "system.py").write_text(project.system, encoding="utf-8")
    outputs = "" if "outputs" in project.data else 'outputs = ["x"]\n'
    test = "" if "test" in project.data else "test = 0.0\n"
    (folder / "twinfold.toml").write_text(
        f'[data]\nfiles = ["all.csv"]\nrun = "id"\nvalid = 0.0\n{outputs}{test}{project.data}\n'
        f"[fit]\nseeds = 1\n{project.fit or 'adam_epochs = 2'}\n",
        encoding="utf-8",
    )


def attempt(number: int, seed: int, folder: Path) -> None:
    """Fit, and fit again: both say it, and the files carry it."""
    project = PROJECTS[number](np.random.default_rng([seed, number]))
    write_project(project, folder)
    for again in (False, True):
        done = Process(folder, ("fit", "-q")).wait(SECONDS)
        said, where = done.out + done.err, f"{'again: ' if again else ''}{done.said}"
        assert "Traceback" not in said, where
        assert "Internal error" not in said, where
        assert done.code == project.code, f"not {project.code}, but {where}"
        for sentence in project.says:
            assert sentence in said, f"no word of '{sentence}': {where}"
        assert_recorded(project, folder)


def assert_recorded(project: Project, folder: Path) -> None:
    """The findings are in both files, problems as problems, and no file is left half written."""
    (run,) = (folder / "runs").iterdir()
    assert not list(run.glob("*.part")), "a file was left half written"
    files = {"findings.json": json.loads((run / "findings.json").read_text())}
    if project.code != 2:
        files["metrics.json"] = json.loads((run / "metrics.json").read_text())["findings"]
    for name, findings in files.items():
        kinds = {each["kind"] for each in findings if project.code == 0 or each["severity"] == "problem"}
        assert set(project.kinds) <= kinds, f"{name} has {sorted(kinds)}, not {list(project.kinds)}"


def cases(seed: int, scale: float) -> Iterator[Case]:
    """One case for each project."""
    for number, build in enumerate(PROJECTS[: scaled(len(PROJECTS), scale)]):
        yield Case(build.__name__, partial(attempt, number, seed))


FINDINGS = Group("fits made to go wrong, through the command line", cases, "run", 2 * SECONDS)
