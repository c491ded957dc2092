"""A workspace: a folder with a configuration, a system and measurements. Opening it needs no JAX."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinfold.workspace._config import FILE, Config, read_config

if TYPE_CHECKING:
    from twinfold.data import Dataset
    from twinfold.workspace._data import DataSplit
    from twinfold.workspace._folds import Folds
    from twinfold.workspace._system import System


@dataclass(frozen=True)
class Workspace:
    """A folder with a twinfold.toml, and its configuration; see `open_workspace`.

    **Example:**

    ```python
    tw.workspace.new_project("plant", template="tank")
    workspace = tw.workspace.open_workspace("plant")
    workspace.load_system().twin.parameters()  # {"valve": 0.001}
    workspace.load_split().train.names  # six of the ten runs
    ```
    """

    folder: Path
    config: Config

    @property
    def run_folder(self) -> Path:
        """The folder of the fit and its results."""
        return self.folder / self.config.run.folder

    def as_fitted(self, overrides: Sequence[str] = ()) -> "Workspace":
        """The workspace with the configuration that the fit in its run folder was made with.

        The sections [run], [follow] and [monitor] stay as they are: a fit does not depend on them.

        **Arguments:** `overrides`, see `open_workspace`. Before the first fit, the workspace is returned as it is.
        """
        from twinfold.workspace._files import read_fit_config

        try:
            stored = read_fit_config(self.run_folder, overrides)
        except FileNotFoundError:
            return self
        own = {name: getattr(self.config, name) for name in ("run", "follow", "monitor")}
        return replace(self, config=stored.model_copy(update=own))

    def differences(self, other: "Workspace") -> list[str]:
        """The settings, as `section.name`, that two workspaces do not have in common."""
        one, two = self.config.flat(), other.config.flat()
        return [name for name in {**one, **two} if one.get(name) != two.get(name)]

    def load_system(self, **options: Any) -> "System":
        """Run system.py and return its twin, built with the arguments in [model], its names and units."""
        from twinfold.workspace._system import load_system

        options = {"arguments": self.config.model} | options
        return load_system(self.folder / self.config.system.file, **options).with_warmup(self.config.data.warmup)

    def load_data(self) -> "Dataset":
        """All measurements."""
        from twinfold.workspace._data import read_data

        return read_data(self.config.data, self.folder)

    def load_split(self) -> "DataSplit":
        """The measurements, split into training, validation and test runs; neighbouring blocks are joined."""
        return self.load_folds().given

    def load_folds(self) -> "Folds":
        """The same measurements, of which other runs can be held out, or none."""
        from twinfold.workspace._data import WHOLE_RUNS, read_data, read_with_notes, split_data
        from twinfold.workspace._folds import Folds

        data, notes = read_with_notes(self.config.data, self.folder)
        uncut = read_data(self.config.data, self.folder, **WHOLE_RUNS) if self.config.data.blocks is not None else None
        split = split_data(data, self.config.data)
        return Folds(data, replace(split, notes=(*notes, *split.notes)), uncut)


def open_workspace(folder: str | Path = ".", overrides: Sequence[str] = ()) -> Workspace:
    """Open the workspace in a folder.

    **Arguments:** `folder`, with a twinfold.toml; `overrides`, strings `section.name=value` that replace settings.

    **Raises:** `FileNotFoundError`; `ValueError` for a mistake in the configuration.

    **Example:**

    ```python
    tw.workspace.new_project("swing")
    tw.workspace.open_workspace("swing", ["fit.seeds=5"]).config.fit.seeds  # 5
    ```
    """
    return Workspace(Path(folder), read_config(Path(folder) / FILE, overrides))
