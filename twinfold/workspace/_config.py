"""The configuration of a workspace: one TOML file, the same names in Python and on the command line.

config = read_config("twinfold.toml", ["fit.seeds=5"])
config.fit.seeds  # 5
"""

import dataclasses
import functools
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from twinfold.io import build, settle_fields, unknown_name
from twinfold.train import AbstractMethod, Adam, LevenbergMarquardt, Loss
from twinfold.workspace._toml import as_toml, override

FILE = "twinfold.toml"


@dataclass(frozen=True)
class SystemConfig:
    """[system]: `file`, the Python file whose function `twin()` builds the twin."""

    file: str = "system.py"

    def __post_init__(self):
        settle_fields(self, "system")


@dataclass(frozen=True)
class DataConfig:
    """[data]: where the measurements are and what their columns mean; see `twinfold.data.sources.load_dataset`.

    `valid` and `test` are the shares of the runs (or their names) that are held back: to choose the best parameters,
    and to judge the result.
    """

    files: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    time: str = "t"
    run: str = ""
    group: str = ""
    x0: tuple[str, ...] = ()
    format: Literal["auto", "csv", "parquet", "mat"] = "auto"
    fill: Literal["hold", "linear", "refuse"] = "hold"
    sort: bool = False
    join: bool = False
    columns: dict[str, str] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    offset: dict[str, float] = field(default_factory=dict)
    missing: tuple[float | str, ...] = ()
    gap: float | None = None
    pieces: int | None = None
    valid: float | tuple[str, ...] = 0.2
    test: float | tuple[str, ...] = 0.2

    def __post_init__(self):
        settle_fields(self, "data")
        if not self.files:
            raise ValueError('data.files is missing; name the files of the measurements, files = ["data/*.csv"].')
        if not self.outputs:
            raise ValueError("data.outputs is missing; name the columns that were measured, outputs = [...].")
        for name in ("valid", "test"):
            share = getattr(self, name)
            if isinstance(share, float) and not 0 <= share < 1:
                raise ValueError(f"data.{name} is {share:g}; it must be a share of the runs from 0 up to below 1.")
        if isinstance(self.valid, float) and isinstance(self.test, float) and self.valid + self.test >= 1:
            raise ValueError(
                f"data.valid and data.test are {self.valid + self.test:g} together; nothing is left to fit."
            )
        if self.gap is not None and not self.gap > 0:
            raise ValueError(f"data.gap is {self.gap:g}; it must be positive.")
        if self.pieces is not None and not 2 <= self.pieces <= 10_000:
            raise ValueError(f"data.pieces is {self.pieces}; it must be from 2 to 10000.")


@dataclass(frozen=True)
class FitConfig:
    """[fit]: how the twin is fitted; the names are those of `twinfold.fit`, `Adam` and `LevenbergMarquardt`.

    `adam` epochs at `rate` come first, then `levenberg` steps; with neither, the library's own stages.
    """

    seeds: int = 3
    adam: int | None = None
    rate: float | None = None
    batch_size: int | None = None
    levenberg: int | None = None
    patience: int | None = None
    window: int | None = None
    shooting: bool | None = None
    train: Literal["all", "per_run", "parameters"] = "all"
    remat: bool = False

    def __post_init__(self):
        settle_fields(self, "fit")
        for name, least, most in (
            ("seeds", 1, 1000),
            ("adam", 0, 10**7),
            ("levenberg", 0, 10**7),
            ("batch_size", 1, None),
            ("patience", 1, None),
            ("window", 2, None),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= (most or value):
                upto = "" if most is None else f" and at most {most}"
                raise ValueError(f"fit.{name} is {value}; it must be at least {least}{upto}.")
        if self.rate is not None and not self.rate > 0:
            raise ValueError(f"fit.rate is {self.rate:g}; it must be positive.")
        if self.adam is None and (self.rate is not None or self.batch_size is not None):
            raise ValueError("fit.rate and fit.batch_size belong to fit.adam; give its number of epochs too.")
        if self.patience is not None and self.adam is None and self.levenberg is None:
            raise ValueError("fit.patience belongs to fit.adam and fit.levenberg; give one of them too.")
        if (self.adam == 0 and not self.levenberg) or (self.levenberg == 0 and not self.adam):
            raise ValueError("fit.adam and fit.levenberg leave nothing to do; give one of them, or neither.")

    def methods(self) -> tuple[AbstractMethod, ...] | None:
        """The stages, or None for the library's own."""
        stages: list[AbstractMethod] = []
        if self.adam:
            own = functools.partial(Adam, self.adam, batch_size=self.batch_size, patience=self.patience)
            stages.append(own() if self.rate is None else own(learning_rate=self.rate))
        if self.levenberg:
            stages.append(LevenbergMarquardt(self.levenberg, patience=self.patience))
        return tuple(stages) or None


@dataclass(frozen=True)
class RunConfig:
    """[run]: `folder` of the run, and `track`: `"tensorboard"` or `"mlflow"` beside the plain files in it."""

    folder: str = "runs/first"
    track: Literal["", "tensorboard", "mlflow"] = ""

    def __post_init__(self):
        settle_fields(self, "run")
        if not self.folder.strip() or "\0" in self.folder:
            raise ValueError('run.folder is empty; name a folder, folder = "runs/first".')


@dataclass(frozen=True)
class ExportConfig:
    """[export]: `name` of what is exported, and its time step `dt` (the data's own when left out)."""

    name: str = ""
    dt: float | None = None

    def __post_init__(self):
        settle_fields(self, "export")
        if self.dt is not None and not self.dt > 0:
            raise ValueError(f"export.dt is {self.dt:g}; it must be positive.")


@dataclass(frozen=True)
class Config:
    """All settings of a workspace, each section a field."""

    data: DataConfig
    system: SystemConfig = field(default_factory=SystemConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    loss: Loss = field(default_factory=Loss)
    run: RunConfig = field(default_factory=RunConfig)
    export: ExportConfig = field(default_factory=ExportConfig)

    def toml(self) -> str:
        """The configuration as a TOML file that `read_config` reads back."""
        return as_toml(self.tables())

    def tables(self) -> dict[str, dict[str, Any]]:
        """The sections as plain tables; what is not set is left out."""
        sections = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {
            name: {
                each.name: getattr(section, each.name)
                for each in dataclasses.fields(section)
                if getattr(section, each.name) is not None
            }
            for name, section in sections.items()
        }


SECTIONS: dict[str, type] = {
    "system": SystemConfig,
    "data": DataConfig,
    "fit": FitConfig,
    "loss": Loss,
    "run": RunConfig,
    "export": ExportConfig,
}


def setting_names() -> list[str]:
    """Every setting as `section.name`, for `--set`."""
    return [f"{section}.{each.name}" for section, cls in SECTIONS.items() for each in dataclasses.fields(cls)]


def read_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The configuration in a TOML file.

    **Arguments:** `path`; `overrides`, texts `section.name=value` that replace what the file says.

    **Raises:** `ValueError` that names the file and the setting; `FileNotFoundError`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"There is no {path}. `twinfold new NAME` makes a folder with one; -C FOLDER names the folder to work in."
        )
    try:
        return parse_config(path.read_text(encoding="utf-8"), overrides)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8 ({error.reason} at byte {error.start}).") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def parse_config(text: str, overrides: Sequence[str] = ()) -> Config:
    """The configuration in the text of a TOML file; see `read_config`."""
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise ValueError("the file is nested too deeply to be a configuration.") from None
    except ValueError as error:
        raise ValueError(f"not valid TOML: {error}") from None
    for each in overrides:
        override(tables, each)
    unknown = [name for name in tables if name not in SECTIONS]
    if unknown:
        raise ValueError(f"there is no section {unknown_name(unknown[0], SECTIONS)}")
    sections = {name: build(cls, tables.get(name, {}), name) for name, cls in SECTIONS.items()}
    return Config(**sections)
