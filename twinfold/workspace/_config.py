"""The configuration of a workspace: one TOML file, with the same names in Python and on the command line."""

import re
import tomllib
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tomlkit
from pydantic import AfterValidator, Field, Strict, field_validator, model_validator
from pydantic_core import PydanticCustomError

from twinfold.io import check_regular_file
from twinfold.io._settings import Name, Names, Numbers, OptionalName, Settings, Strings, Values, validate
from twinfold.workspace._overrides import override

if TYPE_CHECKING:
    from twinfold.train import AbstractMethod, Loss

FILE = "twinfold.toml"
MAX_INTEGER = 2**63 - 1
# Names of earlier versions. In a user's file they are refused with the new name; a stored configuration is converted.
RENAMED = {
    ("fit", "adam"): "adam_epochs",
    ("fit", "levenberg"): "lm_steps",
    ("fit", "rate"): "learning_rate",
    ("fit", "train"): "trainable",
    ("fit", "recompute"): "remat",
    ("loss", "soft"): "constraint_penalty",
    ("data", "gap"): "max_step",
    ("data", "pieces"): "blocks",
}
RENAMED_VALUES = {("fit", "train", "unknown"): "parameters"}
ADDED = {("data", "pieces"): {"block_gap": 0}}  # what a setting of that name implied

Count = Annotated[int, Field(ge=1, le=MAX_INTEGER)]
Steps = Annotated[int, Field(ge=0, le=10**7)]
Positive = Annotated[float, Field(gt=0)]
Delays = Annotated[tuple[Positive, ...], Strict(False)]
Weight = Annotated[float, Field(ge=0)]
Auto = Literal["auto"]


def _check_argument(value: Any) -> Any:
    """An argument of twin(): whatever TOML has, except dates and numbers that are not finite."""
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            _check_argument(part)
    elif not isinstance(value, str | int | float) or (isinstance(value, float) and not isfinite(value)):
        raise PydanticCustomError("argument", "a finite number, a string, true or false, a list or a table")
    return value


Arguments = dict[Name, Annotated[Any, AfterValidator(_check_argument)]]  # of `twin()` in system.py


class SystemConfig(Settings):
    """[system]: `file`, the Python file whose function `twin()` builds the twin."""

    file: str = "system.py"


class DataConfig(Settings):
    """[data]: the files of the measurements and the meaning of their columns; see `twinfold.data.load_dataset`.

    `warmup`, a number of samples: the state at the start of each run is estimated (see `Twin`). `switches`: for a load,
    by how much it changes at least when it is switched; a moment between two rows is inserted (see `with_switches`).
    `tail`: for a load, the largest value that is none; rows after its end are left out (see `without_tail`).
    `constant`: inputs that keep their first value in a run, such as the surroundings of a cell that starts at rest.
    `valid` and `test` are fractions of the runs (or their names) held out: to select the best parameters, and to
    evaluate the result; `train` names those to train on (by default all others). A name is that of a run, of a group,
    or a pattern such as `B00*`.
    """

    files: Strings = ()
    outputs: Names = ()
    inputs: Names = ()
    time: Name = "t"
    dt: Positive | None = None
    run: OptionalName = ""
    group: OptionalName = ""
    x0: Names = ()
    format: Literal["auto", "csv", "parquet", "mat"] = "auto"
    fill: Literal["hold", "linear", "refuse"] = "hold"
    sort: bool = False
    join: bool = False
    columns: dict[Name, Name] = Field(default_factory=dict)
    records: dict[Name, dict[Name, Name]] = Field(default_factory=dict)
    scale: dict[Name, float] = Field(default_factory=dict)
    offset: dict[Name, float] = Field(default_factory=dict)
    missing: Values = ()
    max_step: Positive | None = None
    taps: dict[Name, Delays] | None = None
    blocks: Annotated[int, Field(ge=2, le=10_000)] | None = None
    block_gap: Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None = None
    switches: dict[Name, Positive] = Field(default_factory=dict)
    tail: dict[Name, Weight] = Field(default_factory=dict)
    constant: Names = ()
    warmup: Count | None = None
    train: Names = ()
    valid: float | Names = 0.2
    test: float | Names = 0.2

    @model_validator(mode="after")
    def _check(self) -> "DataConfig":
        if not self.files:
            raise ValueError('data.files is missing; list the files of the measurements: files = ["data/*.csv"].')
        if not self.outputs:
            raise ValueError("data.outputs is missing; list the columns that were measured: outputs = [...].")
        if self.block_gap is not None and self.blocks is None:
            raise ValueError("data.block_gap separates blocks; set data.blocks as well.")
        for name, value in (("valid", self.valid), ("test", self.test)):
            if isinstance(value, float) and not 0 <= value < 1:
                raise ValueError(f"data.{name} is {value:g}; it must be a fraction of the runs from 0 to below 1.")
        if isinstance(self.valid, float) and isinstance(self.test, float) and self.valid + self.test >= 1:
            raise ValueError(f"data.valid + data.test is {self.valid + self.test:g}; no run is left for training.")
        return self


class FitConfig(Settings):
    """[fit]: how the twin is fitted; the names are those of `twinfold.fit`, `Adam` and `LevenbergMarquardt`.

    First `adam_epochs` of Adam with `learning_rate`, then `lm_steps` of Levenberg-Marquardt; the default methods of
    `twinfold.fit` if neither is set. `refit`: after the best number of steps was found on held-out runs, fit again to
    training and validation runs together; `folds`, how often other runs are held out to find it. If `folds` is not
    set, each of `data.blocks` is held out once, or only the validation runs.
    """

    seeds: Annotated[int, Field(ge=1, le=1000)] = 3
    adam_epochs: Steps | None = None
    learning_rate: Positive | None = None
    batch_size: Count | None = None
    lm_steps: Steps | None = None
    patience: Count | None = None
    window: Annotated[int, Field(ge=2, le=MAX_INTEGER)] | None = None
    shooting: bool | None = None
    trainable: Literal["all", "per_run", "parameters"] = "all"
    remat: bool = False
    project: Literal["late", "always"] = "late"
    refit: bool = False
    folds: Annotated[int, Field(ge=1, le=1000)] | None = None

    @model_validator(mode="after")
    def _check(self) -> "FitConfig":
        if not self.refit and self.folds is not None and self.folds > 1:
            raise ValueError("fit.folds decides how long the refit trains; set fit.refit = true as well.")
        if self.adam_epochs is None and (self.learning_rate is not None or self.batch_size is not None):
            raise ValueError("fit.learning_rate and fit.batch_size are settings of Adam; set fit.adam_epochs as well.")
        if self.patience is not None and self.adam_epochs is None and self.lm_steps is None:
            raise ValueError("fit.patience needs fit.adam_epochs or fit.lm_steps; set one of them as well.")
        if 0 in (self.adam_epochs, self.lm_steps) and not self.adam_epochs and not self.lm_steps:
            raise ValueError("fit.adam_epochs and fit.lm_steps leave nothing to do; set one of them, or neither.")
        return self

    def methods(self) -> "tuple[AbstractMethod, ...] | None":
        """The training methods in order; None for the default ones."""
        from twinfold.train import Adam, LevenbergMarquardt

        methods: list[AbstractMethod] = []
        if self.adam_epochs:
            rate: dict[str, Any] = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
            methods.append(Adam(self.adam_epochs, batch_size=self.batch_size, patience=self.patience, **rate))
        if self.lm_steps:
            methods.append(LevenbergMarquardt(self.lm_steps, patience=self.patience))
        return tuple(methods) or None


class LossConfig(Settings):
    """[loss]: the terms of the loss; see `twinfold.Loss`."""

    huber: Positive | None = None
    scale: Literal["std", "off"] = "std"
    l2: Weight | Auto = 0.0
    correlation: Annotated[float, Field(ge=0, lt=1)] | Auto = 0.0
    constraint_penalty: Weight = 0.0
    collocation: Weight = 0.0
    continuity: Weight = 30.0
    prior: Weight = 0.0

    def build(self) -> "Loss":
        """The loss with these terms."""
        from twinfold.train import Loss

        return Loss(**self.model_dump())


class RunConfig(Settings):
    """[run]: `folder` of the run; `track` with `"tensorboard"` or `"mlflow"`, beside the plain files in it."""

    folder: str = "runs/first"
    track: Literal["", "tensorboard", "mlflow"] = ""

    @field_validator("folder")
    @classmethod
    def _check_folder(cls, value: str) -> str:
        if not value.strip() or "\0" in value:
            raise ValueError('run.folder is empty or not a valid name; name a folder: folder = "runs/first".')
        return value


class ExportConfig(Settings):
    """[export]: `name` of the exported model; `dt`, its time step (default: that of the data)."""

    name: str = ""
    dt: Positive | None = None


class FollowConfig(Settings):
    """[follow]: how a plant is followed; see `twinfold.estimate`.

    `estimator`: an extended or an unscented Kalman filter. `process` and `measurement`: standard deviations of the
    noise of states (per square root of time) and outputs, one for all, one for each by name, or "estimate" for maximum
    likelihood on the training data. `drift`: parameters that are followed, with the standard deviation that a unit of
    time adds to each; `spread`, how uncertain they are at first; both in units of `raw`, about relative. `x0` and `std`
    of the state at the first sample: by default as the twin computes it. `gate`: the probability that a good value is
    refused, 0 to refuse none. `band`: the probability of low to high. Alarms: samples per `window`, `false_alarm_rate`
    per window. `asset`: the column that names it (default: data.group, data.run). `max_gap`: a longer silence starts an
    asset over (default: data.max_step). `max_assets`: those beyond are left out.
    """

    estimator: Literal["ekf", "ukf"] = "ekf"
    process: Literal["estimate"] | Weight | dict[Name, Weight] = "estimate"
    measurement: Literal["estimate"] | Positive | dict[Name, Positive] = "estimate"
    drift: dict[Name, Weight] = Field(default_factory=dict)
    spread: dict[Name, Positive] = Field(default_factory=dict)
    x0: Numbers | None = None
    std: Weight | dict[Name, Weight] | None = None
    gate: Annotated[float, Field(ge=0, lt=1)] = 1e-6
    band: Annotated[float, Field(gt=0, lt=1)] = 0.9
    window: Annotated[int, Field(ge=2, le=MAX_INTEGER)] = 20
    false_alarm_rate: Annotated[float, Field(gt=0, lt=0.5)] = 0.001
    asset: OptionalName = ""
    max_gap: Positive | None = None
    max_assets: Count = 10_000


class MonitorConfig(Settings):
    """[monitor]: the quantity that wears, and what counts as its end; see `twinfold.monitor`.

    `health`: a parameter of the twin, or a function of system.py, called with the twin and the parameters of a run
    (`capacity(twin, p)`). `threshold`: its value at the end of life, or with `"80%"` a share of that of the healthy
    runs; `falling = false` if it rises to it. `estimate`: the positive parameters that are re-estimated on every run,
    from `outputs` (default: all of data.outputs).
    """

    health: OptionalName = ""
    threshold: float | str | None = None
    falling: bool = True
    estimate: Names = ()
    outputs: Names = ()

    @model_validator(mode="after")
    def _check(self) -> "MonitorConfig":
        share = isinstance(self.threshold, str)
        if share and not re.fullmatch(r"\d+(\.\d+)?%", str(self.threshold)):
            raise ValueError(f'monitor.threshold is {self.threshold!r}; give a number, or a share such as "80%".')
        return self

    def end_of_life(self, healthy: float) -> float:
        """The threshold, where the health is `healthy` at first."""
        assert self.threshold is not None, "checked with health"
        if isinstance(self.threshold, str):
            return healthy * float(self.threshold.removesuffix("%")) / 100
        return self.threshold


class Config(Settings):
    """All settings of a workspace, one field per section; `model` has the arguments of `twin()` in system.py.

    **Example:**

    ```python
    config = tw.workspace.Config(data={"files": ["a.csv"], "outputs": ["y"]}, fit={"seeds": 5})
    config.fit.seeds  # 5
    print(config.toml())
    ```
    """

    data: DataConfig
    system: SystemConfig = SystemConfig()
    model: Arguments = Field(default_factory=dict)
    fit: FitConfig = FitConfig()
    loss: LossConfig = LossConfig()
    run: RunConfig = RunConfig()
    export: ExportConfig = ExportConfig()
    follow: FollowConfig = FollowConfig()
    monitor: MonitorConfig = MonitorConfig()

    def tables(self) -> dict[str, dict[str, Any]]:
        """The sections as plain tables, without the settings that are None."""
        return self.model_dump(exclude_none=True)

    def flat(self) -> dict[str, Any]:
        """Every setting as `section.name`, without those that are None."""
        return {f"{section}.{name}": value for section, table in self.tables().items() for name, value in table.items()}

    def toml(self) -> str:
        """The configuration as a TOML file that `read_config` can read."""
        return tomlkit.dumps(self.tables())


def setting_names() -> list[str]:
    """Every setting as `section.name`, for `--set`; those of [model] are known to system.py only."""
    sections: dict[str, Any] = {name: field.annotation for name, field in Config.model_fields.items()}
    fields = {section: getattr(model, "model_fields", ()) for section, model in sections.items()}
    return [f"{section}.{name}" for section, names in fields.items() for name in names]


def read_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The configuration in a TOML file.

    **Arguments:** `path`; `overrides`, strings `section.name=value` that replace settings of the file.

    **Raises:** `ValueError` that names the file and the setting; `FileNotFoundError`.

    **Example:**

    ```python
    from pathlib import Path

    Path("twinfold.toml").write_text('[data]\\nfiles = ["a.csv"]\\noutputs = ["y"]\\n')
    tw.workspace.read_config("twinfold.toml", ["fit.seeds=5"]).fit.seeds  # 5
    ```
    """
    path = Path(path)
    try:
        check_regular_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"There is no {path}. `twinfold new NAME` creates a folder with one; -C FOLDER selects the folder to use."
        ) from None
    try:
        return parse_config(path.read_text(encoding="utf-8"), overrides)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8 ({error.reason} at byte {error.start}).") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse_config(text: str, overrides: Sequence[str] = (), *, stored: bool = False) -> Config:
    """The configuration in the text of a TOML file; see `read_config`.

    **Arguments:** `stored`: the file was written by twinfold, perhaps by an earlier version with other names.
    """
    try:
        tables: dict[str, Any] = {"data": {}} | tomllib.loads(text)
    except RecursionError:
        raise ValueError("the file is nested too deeply to be a configuration.") from None
    except ValueError as error:
        raise ValueError(f"not valid TOML: {error}") from None
    for each in overrides:
        override(tables, each)
    _rename(tables, stored)
    return validate(Config, tables)


def stored_arguments(tables: dict[str, Any]) -> dict[str, Any]:
    """The section [model] in a configuration that a model file holds."""
    return validate(_StoredModel, {"model": tables.get("model", {})}).model


class _StoredModel(Settings):
    model: Arguments


def _rename(tables: dict[str, Any], stored: bool) -> None:
    """Replace the names of earlier versions if the tables are `stored` ones; otherwise refuse them."""
    for (section, old), new in RENAMED.items():
        table = tables.get(section)
        if not isinstance(table, dict) or old not in table:
            continue
        value = table.pop(old)
        replaced = RENAMED_VALUES.get((section, old, str(value)))
        if not stored:
            also = f', and "{value}" is now "{replaced}"' if replaced else ""
            raise ValueError(f"{section}.{old} is now called {section}.{new}{also}.")
        table |= {new: replaced or value} | ADDED.get((section, old), {})
