"""Compare settings on held-out runs: a grid of fits, each in its own folder. The test runs are never used."""

import dataclasses
import hashlib
import itertools
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

from twinfold.data import Dataset
from twinfold.io import json_safe, write_json
from twinfold.io._settings import validate
from twinfold.parallel import InProcess, TaskOutcome, map_tasks, report_progress, select_executor
from twinfold.parallel._executor import Progress
from twinfold.train import Fit
from twinfold.workspace import _files as files
from twinfold.workspace._config import Config
from twinfold.workspace._data import DataSplit
from twinfold.workspace._overrides import parse_override, set_value
from twinfold.workspace._run_fit import run_fit, scaled_errors
from twinfold.workspace._system import System
from twinfold.workspace._train import NO_FINITE_SEED
from twinfold.workspace._workspace import Workspace

FOLDER = "runs/sweep"
RESULT = "result.json"
MAX_TASKS = 100_000
NOT_SWEPT = ("run", "export")  # sections that a fit does not depend on
AFTERWARDS = ("fit.refit", "fit.folds")  # settings of what follows once a fit has been judged
Values = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class SweepTask:
    """One combination of the swept settings, and the workspace that has them, with a run folder of its own."""

    settings: dict[str, Any]
    workspace: Workspace
    is_default: bool


@dataclass(frozen=True)
class SweepRow:
    """The result of a task: its error on the held-out runs for each seed, or the reason why there is none.

    The error is the root mean square of measured minus predicted, each output divided by its standard deviation in the
    training runs.
    """

    settings: dict[str, Any]
    errors: tuple[float, ...]
    seconds: float
    reason: str
    is_default: bool
    folder: Path

    @property
    def error(self) -> float:
        """The median over seeds; infinite if there is none."""
        return float(np.median(self.errors)) if self.errors else math.inf

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; NaN if fewer than two have an error."""
        finite = [error for error in self.errors if math.isfinite(error)]
        return float(np.std(finite, ddof=1)) if len(finite) > 1 else math.nan


@dataclass(frozen=True)
class Sweep:
    """The rows of a sweep, the smallest error first; `interrupted` if some tasks are missing."""

    folder: Path
    rows: tuple[SweepRow, ...]
    interrupted: bool


def sweep_workspace(
    workspace: Workspace,
    over: Values,
    *,
    random: int | None = None,
    folder: str | Path | None = None,
    workers: int = 1,
    scheduler: str = "",
    progress: bool | Progress = True,
    log: Callable[[str], None] = lambda line: None,
) -> Sweep:
    """Fit the twin of a workspace with every combination of some settings, and compare the errors on held-out runs.

    Held out are the runs `data.valid`; those of `data.test` are not used. Every fit has its own folder, so that the
    same call resumes: what is finished is not repeated, and values that are added only add fits. The settings of the
    workspace are always among those compared.

    **Arguments:** `workspace`; `over`, the values of each setting, as `{"section.name": [...]}`; `random`: only so many
    combinations, drawn at random (more of them include these); `folder` (default: `runs/sweep`); `workers`,
    processes in which fits run side by side, or `scheduler`, the address of a Dask cluster that sees the same folder;
    `progress`, see `parallel.map_tasks`; `log`, called with a line for each fit that ends.

    **Returns:** a `Sweep`; its `rows`, the best first, have `settings`, `error`, its `spread` over seeds, and the
    `reason` of a failure. Ctrl-C returns those that are finished.

    **Raises:** `ValueError` for an unknown setting, or if no run is held out.

    **Example:**

    ```python
    from pathlib import Path

    Path("system.py").write_text(
        "import twinfold as tw\\n\\n\\ndef twin(guess=1.0):\\n"
        "    return tw.Twin(lambda x, p: -p['k'] * x, params={'k': tw.Unknown(guess, positive=True)})\\n"
    )
    Path("twinfold.toml").write_text('[data]\\nfiles = ["decay.csv"]\\noutputs = ["x"]\\nblocks = 3\\n')
    tw.io.write_csv("decay.csv", [{"t": t, "x": np.exp(-0.7 * t)} for t in np.linspace(0, 2, 21)])
    workspace = tw.workspace.open_workspace(".", ["fit.seeds=1", "fit.lm_steps=2"])
    sweep = tw.workspace.sweep_workspace(workspace, {"model.guess": [0.1, 0.8]}, progress=False)
    sweep.rows[0].settings  # {"model.guess": 0.8}
    ```
    """
    place, loader = workspace.folder / (FOLDER if folder is None else folder), _Loader()
    tasks = plan(workspace, over, place, loader, random=random)
    stored = {index: result for index, task in enumerate(tasks) if (result := _read_result(task)) is not None}
    waiting = [task for index, task in enumerate(tasks) if index not in stored]
    if stored:
        log(f"{len(stored)} of {len(tasks)} fits are finished.")
    executor = select_executor(workers, scheduler)
    known = [(tasks[index].settings, result["seconds"]) for index, result in stored.items()]
    report = map_tasks(
        partial(run_task, loader) if isinstance(executor, InProcess) else partial(run_task_in_worker, uuid.uuid4().hex),
        waiting,
        executor=executor,
        cost=lambda task: _expected_seconds(task.settings, known),
        done=lambda outcome: log(_line(outcome)),
        progress=progress,
    )
    rows = [_row(tasks[index], result, "") for index, result in stored.items()]
    rows += [_row(outcome.task, outcome.value or {}, outcome.reason) for outcome in report.outcomes]
    return Sweep(place, tuple(sorted(rows, key=lambda row: row.error)), report.interrupted)


def parse_over(texts: Sequence[str]) -> dict[str, list[Any]]:
    """The values of each setting in strings `section.name=[...]`. **Raises:** `ValueError`."""
    over = {}
    for text in texts:
        names, values = parse_override(text, "--over")
        if not isinstance(values, list) or not values:
            raise ValueError(f"--over {text}: give a list of values, as in --over 'loss.l2=[1e-5, 1e-4]'.")
        if ".".join(names) in over:
            raise ValueError(f"--over {text}: {'.'.join(names)} is there twice; give all its values in one list.")
        over[".".join(names)] = values
    if not over:
        raise ValueError("Nothing to compare: give settings and their values, as in --over 'loss.l2=[1e-5, 1e-4]'.")
    return over


def plan(
    workspace: Workspace, over: Values, folder: Path, loader: "_Loader", *, random: int | None = None
) -> list[SweepTask]:
    """The tasks of a sweep: the settings of the workspace first, then every other combination."""
    for name in over:
        if name.partition(".")[0] in NOT_SWEPT:
            raise ValueError(f"--over {name}: a fit does not depend on this setting.")
        if name in AFTERWARDS:
            raise ValueError(
                f"--over {name}: a sweep compares fits on runs that they have not seen, before any refit on these runs."
            )
    system = loader.system(workspace)
    default = _with_default_arguments(workspace, system, over)
    held_out = _held_out(loader.split(default))
    tasks: dict[Path, SweepTask] = {}
    for index, changes in enumerate([{}, *_combinations(over, random)]):
        one = _with_settings(default, changes)
        split, settings = loader.split(one), {name: _setting(one.config, name) for name in over}
        if _held_out(split) != held_out:
            raise ValueError(
                f"{format_settings(settings)}: with these settings other measurements are held out, and errors on "
                "different measurements cannot be compared. Do not sweep over the settings that choose them."
            )
        path = _task_folder(folder, settings, one.config, (system.sha256, split.train.fingerprint(), *held_out))
        run = one.config.run.model_copy(update={"folder": str(path.absolute()), "track": ""})
        config = one.config.model_copy(update={"run": run})
        one = dataclasses.replace(one, folder=one.folder.absolute(), config=config)  # for a worker elsewhere
        tasks.setdefault(path, SweepTask(settings, one, index == 0))
    return list(tasks.values())


def run_task(loader: "_Loader", task: SweepTask) -> dict[str, Any]:
    """Fit with the settings of a task, and write its errors on the held-out runs into its folder."""
    workspace, split = task.workspace, loader.split(task.workspace)
    system = loader.system(workspace).rebuild(workspace.config.model).with_warmup(workspace.config.data.warmup)
    fingerprints = (system.sha256, split.train.fingerprint())
    with files.claim_run_folder(workspace.run_folder, workspace.config, fingerprints, force=False):
        fit = run_fit(
            workspace, system.twin, split, progress=report_progress
        )  # judged as it is: a refit would have seen what judges it
        if fit.interrupted:
            raise KeyboardInterrupt
        files.write_history(workspace.run_folder, fit)
        errors = held_out_errors(fit, split)
        if not np.isfinite(errors).any():
            raise ValueError(NO_FINITE_SEED)
        result = {"settings": task.settings, "errors": errors.tolist(), "seconds": fit.seconds}
        write_json(workspace.run_folder / RESULT, result)
    return result


def run_task_in_worker(sweep: str, task: SweepTask) -> dict[str, Any]:
    """`run_task` in a process that loads system and data itself, once for each `sweep`: functions do not travel."""
    return run_task(_loader_of(sweep), task)


@lru_cache(maxsize=1)
def _loader_of(sweep: str) -> "_Loader":
    return _Loader()


def held_out_errors(fit: Fit, split: DataSplit) -> np.ndarray:
    """[S] the error of each seed on the validation runs; see `SweepRow`."""
    assert split.valid is not None
    return scaled_errors(fit, split.valid, split.train)


@dataclass(frozen=True)
class _Loader:
    """Systems and data, each loaded once: twins of the same functions share what is compiled."""

    systems: dict[Path, System] = field(default_factory=dict)
    splits: dict[str, DataSplit] = field(default_factory=dict)

    def system(self, workspace: Workspace) -> System:
        """The system of a workspace with the arguments of the first one that asked for it."""
        path = workspace.folder / workspace.config.system.file
        if path not in self.systems:
            self.systems[path] = workspace.load_system()
        return self.systems[path]

    def split(self, workspace: Workspace) -> DataSplit:
        """The data of a workspace without the test runs, which are dropped before anything is computed."""
        key = workspace.config.data.model_dump_json()
        if key not in self.splits:
            self.splits[key] = dataclasses.replace(workspace.load_split(), test=None)
        return self.splits[key]


def format_settings(settings: Mapping[str, Any]) -> str:
    """`name=value, ...`, as in TOML."""
    return ", ".join(f"{name}={format_value(value)}" for name, value in settings.items())


def format_value(value: Any) -> str:
    """A value as in TOML; a dash for a setting that is not set."""
    return "-" if value is None else repr(value) if isinstance(value, float) else tomlkit.item(value).as_string()


def _with_default_arguments(workspace: Workspace, system: System, over: Values) -> Workspace:
    """The workspace whose [model] has all swept arguments: those that are not set have a default value in system.py."""
    swept = [name.removeprefix("model.") for name in over if name.startswith("model.")]
    known = system.complete(dict.fromkeys(swept) | system.arguments)
    return _with_settings(workspace, {f"model.{name}": known[name] for name in swept})


def _with_settings(workspace: Workspace, settings: Mapping[str, Any]) -> Workspace:
    tables = workspace.config.tables()
    for name, value in settings.items():
        set_value(tables, _names(name), value)
    return dataclasses.replace(workspace, config=validate(Config, tables))


def _setting(config: Config, name: str) -> Any:
    """The value of a setting; None if it is not set."""
    value: Any = config.tables()
    for key in _names(name):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _names(name: str) -> tuple[str, ...]:
    return parse_override(f"{name}=0", "--over")[0]


def _combinations(over: Values, random: int | None) -> list[dict[str, Any]]:
    """All combinations, or the first `random` ones of a fixed random order."""
    count = math.prod(map(len, over.values()))
    if count > MAX_TASKS:
        raise ValueError(f"The grid has {count} combinations; a sweep can have {MAX_TASKS}. Give fewer values.")
    grid = [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]
    if random is None:
        return grid
    return [grid[index] for index in sorted(np.random.default_rng(0).permutation(count)[:random])]


def _held_out(split: DataSplit) -> tuple[str, str]:
    """Fingerprints of the measured outputs of training and validation runs."""
    if split.valid is None:
        raise ValueError(
            "No run is held out, so settings cannot be compared. Set data.valid; with a single run, data.blocks = 5 "
            "cuts it into blocks, some of which are held out."
        )

    def outputs(data: Dataset) -> str:
        runs = tuple(dataclasses.replace(run, w=None, x0=None) for run in data.runs)
        return Dataset(runs, data.output_names).fingerprint()

    return outputs(split.train), outputs(split.valid)


def _task_folder(folder: Path, settings: Mapping[str, Any], config: Config, fingerprints: tuple[str, ...]) -> Path:
    """The folder of a task, named by its settings in short and by a hash of all that the result depends on.

    The hash decides: the same fit may have been a task of a sweep over other settings.
    """
    decisive = json.dumps([json_safe(files.decisive_settings(config)), fingerprints], sort_keys=True)
    digest = hashlib.sha256(decisive.encode()).hexdigest()[:10]
    short = "_".join(f"{name.rpartition('.')[2]}={format_value(value)}" for name, value in settings.items())
    named = folder / f"{re.sub(r'[^A-Za-z0-9_.=+-]+', '-', short)[:60]}_{digest}"
    return next(iter(sorted(folder.glob(f"*_{digest}"))), named)


def _read_result(task: SweepTask) -> dict[str, Any] | None:
    try:
        stored = json.loads((task.workspace.run_folder / RESULT).read_text(encoding="utf-8"))
        errors = [math.inf if error is None else float(error) for error in stored["errors"]]
        return {"errors": errors, "seconds": float(stored["seconds"])} if errors else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _row(task: SweepTask, result: Mapping[str, Any], reason: str) -> SweepRow:
    errors, seconds = tuple(result.get("errors", ())), result.get("seconds", math.nan)
    return SweepRow(task.settings, errors, seconds, reason, task.is_default, task.workspace.run_folder)


def _expected_seconds(settings: Mapping[str, Any], known: Sequence[tuple[Mapping[str, Any], float]]) -> float:
    """The time of finished fits, the more those count that have the same values; 1 if there are none."""
    weights = [sum(settings[name] == value for name, value in other.items()) ** 2 for other, _ in known]
    if not any(weights):
        return 1.0
    return max(float(np.average([seconds for _, seconds in known], weights=weights)), 1e-3)


def _line(outcome: TaskOutcome[SweepTask, dict[str, Any]]) -> str:
    row = _row(outcome.task, outcome.value or {}, outcome.reason)
    result = f"failed: {row.reason}" if row.reason else f"error {row.error:.3g}"
    return f"{format_settings(row.settings)}: {result} ({outcome.seconds:.0f} s)"
