"""The runs that are not tested, held out in turn for cross-validation, and all of them together for a refit."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from twinfold.data import Dataset
from twinfold.workspace._data import DataSplit
from twinfold.workspace._merge import merge_blocks


@dataclass(frozen=True, eq=False)
class Folds:
    """`data`; their `split` by the configuration; `uncut`, the runs before they were cut into blocks, if they were."""

    data: Dataset
    split: DataSplit
    uncut: Dataset | None

    @property
    def given(self) -> DataSplit:
        """The split of the configuration, neighbouring blocks of each part as one run; see `merge_blocks`."""
        return replace(self.split, **{name: self._runs(part.names) for name, part in self.split.by_name().items()})

    @property
    def everything(self) -> DataSplit:
        """Training and validation runs together as training runs; the test runs as they are."""
        test = None if self.split.test is None else self.split.test.names
        return DataSplit(self._runs(self._untested), None, None if test is None else self._runs(test), self.split.notes)

    def others(self, count: int) -> tuple[DataSplit, ...]:
        """Splits in which other runs are held out than in `given`, without test runs.

        **Arguments:** `count` of the folds, `given` included; there are fewer if a fold would hold out fewer runs than
        that does.
        """
        train, valid = self.split.train.names, () if self.split.valid is None else self.split.valid.names
        if not valid or count < 2:
            return ()
        groups = np.array_split(np.array(train, object), min(count - 1, -(-len(train) // len(valid))))
        return tuple(
            DataSplit(self._runs([name for name in self._untested if name not in group]), self._runs(group), None)
            for group in map(set, groups)
        )

    @property
    def _untested(self) -> list[str]:
        tested = () if self.split.test is None else self.split.test.names
        return [name for name in self.data.names if name not in set(tested)]

    def _runs(self, names: Collection[str]) -> Dataset:
        """The runs with these names, in the order of the data."""
        chosen = set(names)
        part = self.data.select([name for name in self.data.names if name in chosen])
        return part if self.uncut is None else merge_blocks(part, self.uncut)
