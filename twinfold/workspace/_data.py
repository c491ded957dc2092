"""The measurements of a workspace: read as its configuration says, split into training, validation and test runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinfold.data import Dataset, load_dataset
from twinfold.data._dataset import join
from twinfold.workspace._config import DataConfig

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
    """The measurements that a configuration names, in files relative to `folder`."""
    names = set(DataConfig.model_fields) - {"files", "valid", "test"}
    options = {name: getattr(config, name) for name in names} | {"source": config.files, "folder": folder}
    return load_dataset(**options | changes)


def split_data(data: Dataset, config: DataConfig) -> DataSplit:
    """Split the runs, by fractions or by name; every part gets at least one run, the training part first."""
    notes, rest, test, valid = [], data, None, None
    wanted = [name for name in ("valid", "test") if getattr(config, name)]
    fractions = [name for name in wanted if isinstance(getattr(config, name), float)]
    while len(data) < 1 + len(wanted) and fractions:
        empty = fractions.pop()
        wanted.remove(empty)
        notes.append(
            f"There {'is one run' if len(data) == 1 else f'are {len(data)} runs'}, so data.{empty} is empty. "
            "data.blocks = 5 cuts every run into five blocks, some of which can be held out."
        )
    if "test" in wanted:
        rest, test = data.split(config.test)
    if "valid" in wanted:
        fraction = config.valid
        if isinstance(fraction, float):
            fraction = min(max(round(fraction * len(data)), 1), len(rest) - 1) / len(rest)
        rest, valid = rest.split(fraction)
    return DataSplit(rest, valid, test, tuple(notes))
