"""The measurements of a workspace: read as its configuration says, split into training, validation and test runs."""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinfold.data import Dataset, load_dataset
from twinfold.data._dataset import join
from twinfold.data._load import columns_of
from twinfold.data._readers.sources import matching_files, names_of_files
from twinfold.workspace._config import DataConfig
from twinfold.workspace._loads import prepare_loads

LOADS = ("switches", "tail", "constant")
WHOLE_RUNS: dict[str, Any] = {"blocks": None, "block_gap": None}  # changes of `read_data`, for data that are not split


@dataclass(frozen=True, eq=False)
class DataSplit:
    """The runs to fit, to select the best parameters, and to evaluate; `notes` say what could not be done."""

    train: Dataset
    valid: Dataset | None
    test: Dataset | None
    notes: tuple[str, ...] = ()

    def by_name(self) -> dict[str, Dataset]:
        """The parts that exist, by name."""
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: data for name, data in parts.items() if data is not None}

    def joined(self) -> Dataset:
        """All runs, in the order of the parts."""
        return join(self.by_name().values())


def read_data(config: DataConfig, folder: Path, **changes: Any) -> Dataset:
    """The measurements that a configuration names, in files relative to `folder`; see `read_with_notes`."""
    return read_with_notes(config, folder, **changes)[0]


def read_with_notes(config: DataConfig, folder: Path, **changes: Any) -> tuple[Dataset, tuple[str, ...]]:
    """The measurements that a configuration names, and what was done to their loads (see `prepare_loads`).

    With blocks, a run that is held out by its own name stays whole: a record made for testing is predicted from its
    start to its end.
    """
    names = set(DataConfig.model_fields) - {"files", "train", "valid", "test", "warmup", *LOADS}
    options = {name: getattr(config, name) for name in names} | {"source": config.files, "folder": folder}
    options["whole"] = [
        name for part in (config.valid, config.test) if not isinstance(part, float | int) for name in part
    ]
    return prepare_loads(load_dataset(**options | changes), config)


def read_new_files(config: DataConfig, files: Sequence[str]) -> dict[str, Dataset]:
    """The measurements in other files, by the name of the file; nothing is held out or cut into blocks.

    **Arguments:** `config`, which describes the columns; `files`, paths or patterns, relative to the current folder.
    """
    paths = dict.fromkeys(path for pattern in files for path in matching_files(pattern, Path()))
    parts = {}
    for path, name in names_of_files(list(paths), Path()).items():
        options = options_for_files(config, [str(path)], states=[config.x0])
        parts[name] = read_data(config, Path(), **options | {"outputs": config.outputs})
    names = [name for data in parts.values() for name in data.names]
    return parts if len(set(names)) == len(names) else {part: _prefixed(part, data) for part, data in parts.items()}


def _prefixed(part: str, data: Dataset) -> Dataset:
    """The data with the name of the part in that of each run."""
    runs = tuple(dataclasses.replace(run, name=f"{part}: {run.name}") for run in data.runs)
    return dataclasses.replace(data, runs=runs)


def options_for_files(
    config: DataConfig, files: Sequence[str], *, states: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """Options of `read_data` for files other than those of the configuration, without the columns that they lack.

    **Arguments:** `config`; `files`, relative to the current folder; `states`, lists of columns, of which the first
    that is complete is the initial state.

    **Returns:** the options; `outputs` is empty unless every output is there.
    """
    time = "" if config.dt is not None or config.records else config.columns.get(config.time, config.time)
    present = columns_of(list(files), time=time, format=config.format, folder=Path())
    records = {name: own for name, own in config.records.items() if set(own.values()) <= present}
    layers = [config.columns | own for own in records.values()] or [config.columns]

    def has(names: Sequence[str]) -> bool:
        return bool(names) and all(columns.get(name, name) in present for columns in layers for name in names)

    options: dict[str, Any] = {
        "source": list(files),
        "outputs": config.outputs if has(config.outputs) else (),
        "x0": next((names for names in states if has(names)), ()),
        "run": config.run if has([config.run]) else "",
        "group": config.group if has([config.group]) else "",
        "records": records,
        **WHOLE_RUNS,
    }
    used = {config.time, *config.inputs, *options["outputs"], *options["x0"], options["run"], options["group"]}
    for name in ("columns", "scale", "offset"):
        options[name] = {key: value for key, value in getattr(config, name).items() if key in used}
    return options


def split_data(data: Dataset, config: DataConfig) -> DataSplit:
    """Split the runs, by fractions or by name; every part gets at least one run, the training part first."""
    notes, rest, test, valid = [], data, None, None
    if config.train:
        data, notes = _named_alone(data, config)
        rest = data
    wanted = [name for name in ("valid", "test") if getattr(config, name)]
    fractions = [name for name in wanted if isinstance(getattr(config, name), float)]
    while len(data) < 1 + len(wanted) and fractions:
        empty = fractions.pop()
        wanted.remove(empty)
        notes.append(
            f"There {'is one run' if len(data) == 1 else f'are {len(data)} runs'}, so data.{empty} is empty. "
            "data.blocks = 5 cuts every run into five blocks, some of which can be held out; set data.warmup as well, "
            "since a block does not start at rest."
        )
    if "test" in wanted:
        rest, test = data.split(config.test)
    if "valid" in wanted:
        fraction = config.valid
        if isinstance(fraction, float):
            fraction = min(max(round(fraction * len(data)), 1), len(rest) - 1) / len(rest)
        rest, valid = rest.split(fraction)
    return DataSplit(rest, valid, test, tuple(notes))


def _named_alone(data: Dataset, config: DataConfig) -> tuple[Dataset, list[str]]:
    """The runs to train on, and those that are held out by name; a note says how many are left out."""
    parts = {"data.train": set(data.matching(config.train, argument="data.train"))}
    for name, value in (("data.valid", config.valid), ("data.test", config.test)):
        if isinstance(value, tuple):
            parts[name] = set(data.matching(value, argument=name))
    for (one, these), (other, those) in itertools.combinations(parts.items(), 2):
        if both := sorted(these & those):
            raise ValueError(f"The run '{both[0]}' is in {one} and in {other}; it can be in one of them only.")
    used = [name for name in data.names if any(name in part for part in parts.values())]
    rest = len(data) - len(used)
    notes = [f"{rest} of {len(data)} runs are in none of {', '.join(parts)}, and not used."] if rest else []
    return data.select(used), notes
