"""The beliefs of all assets, one row each, in arrays that grow with the fleet."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

BELIEF = "belief"  # in the names of saved arrays
COUNTERS = ("started", "backwards", "refused", "measured")


@dataclass(eq=False)
class Store:
    """`belief`: an estimator's belief with a leading axis of the assets; `started`: whether an asset has one;
    how many samples of it in a row were earlier than the last one that was used (`backwards`), or had no value that
    was accepted (`refused`); which outputs were measured at the time of the last one (`measured` [R, k])."""

    belief: Any
    started: np.ndarray
    backwards: np.ndarray
    refused: np.ndarray
    measured: np.ndarray

    @staticmethod
    def empty(shapes: Any, outputs: int) -> "Store":
        """A store without assets, for beliefs of these shapes behind their first axis, and so many outputs."""
        belief = jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape[1:]), leaf.dtype), shapes)
        return Store(
            belief, np.zeros(0, bool), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, outputs), bool)
        )

    def reserve(self, count: int) -> None:
        """Make room for so many assets; by doubling, so that the time for it is that of the samples."""
        if count > len(self.started):
            room = max(count, 2 * len(self.started), 16) - len(self.started)
            grown = lambda leaf: np.concatenate([leaf, np.zeros((room, *leaf.shape[1:]), leaf.dtype)])  # noqa: E731
            self.belief = jax.tree.map(grown, self.belief)
            for name in COUNTERS:
                setattr(self, name, grown(getattr(self, name)))

    def take(self, rows: np.ndarray, size: int) -> Any:
        """The beliefs of some assets, with the first repeated up to `size`."""
        padded = np.concatenate([rows, np.repeat(rows[:1], size - len(rows))])
        return jax.tree.map(lambda leaf: leaf[padded], self.belief)

    def put(self, rows: np.ndarray, belief: Any) -> None:
        """Replace the beliefs of some assets."""
        for mine, new in zip(jax.tree.leaves(self.belief), jax.tree.leaves(belief), strict=True):
            mine[rows] = new
        self.started[rows] = True

    def count_refused(self, rows: np.ndarray, measured: np.ndarray, accepted: np.ndarray, most: int) -> np.ndarray:
        """Whether more than `most` samples in a row were refused; the count then begins again."""
        nothing = measured.any(axis=1) & ~accepted.any(axis=1)
        count = np.where(accepted.any(axis=1), 0, self.refused[rows] + nothing)
        self.refused[rows] = np.where(count > most, 0, count)
        return count > most

    def arrays(self, count: int) -> dict[str, np.ndarray]:
        """Copies of the first `count` rows by name."""
        return {name: leaf[:count].copy() for name, leaf in self._named().items()}

    def fill(self, arrays: Mapping[str, np.ndarray], count: int) -> None:
        """Replace the first `count` rows. **Raises:** `ValueError` if these are not arrays of such a store."""
        for name, mine in self._named().items():
            given = arrays.get(name)
            if given is None or given.shape != (count, *mine.shape[1:]) or given.dtype != mine.dtype:
                raise ValueError(f"the saved state does not fit the estimator: {name}")
            mine[:count] = given

    def _named(self) -> dict[str, np.ndarray]:
        leaves = jax.tree_util.tree_leaves_with_path(self.belief)
        named = {f"{BELIEF}{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves}
        return named | {name: getattr(self, name) for name in COUNTERS}
