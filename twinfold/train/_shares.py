"""Shares of the seeds in processes of their own: what travels, what is put together, and which files they keep."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from twinfold.parallel import AbstractExecutor, map_tasks
from twinfold.train._seeds import Seed


@dataclass(frozen=True)
class Share:
    """Seeds that one process trains, and the checkpoint that it resumes from."""

    seeds: tuple[int, ...]
    checkpoint: Path | None


@dataclass(frozen=True, eq=False)
class TrainedShare:
    """How far the seeds of a share are: the arrays of their state, and all that a checkpoint has."""

    stage: int
    leaves: list[np.ndarray]
    history: dict[str, np.ndarray]
    seconds: float
    projected: bool
    interrupted: bool

    def state(self, like: Seed) -> Seed:
        """The state, in the structure of `like`, which is that of any number of seeds."""
        return jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(leaf) for leaf in self.leaves])


def train_shares(
    train: Callable[[Share], TrainedShare],
    seeds: tuple[int, ...],
    count: int,
    checkpoint: Path | None,
    executor: AbstractExecutor,
    progress: bool | Callable[[float, str], None],
) -> tuple[TrainedShare, ...]:
    """Train `count` shares of the seeds, of about the same size.

    **Raises:** `RuntimeError` with the reason why a share failed; `KeyboardInterrupt` if it was stopped before it had a
    result. Checkpoints are kept in both cases.
    """
    shares = [
        Share(tuple(part.tolist()), share_file(checkpoint, index, count))
        for index, part in enumerate(np.array_split(np.array(seeds), count))
    ]
    report = map_tasks(train, shares, executor=executor, cost=lambda share: len(share.seeds), progress=progress)
    for outcome in report.outcomes:
        if outcome.reason:
            raise RuntimeError(f"Seeds {outcome.task.seeds} failed: {outcome.reason}")
    trained = tuple(outcome.value for outcome in report.outcomes if outcome.value is not None)
    if len(trained) < count:
        raise KeyboardInterrupt
    return trained


def concatenated(states: Sequence[Seed], like: Seed) -> Seed:
    """The seeds of all shares in their order.

    If they were interrupted in different stages, only what they have found is; it is not what a stage resumes from.
    """
    if len({jax.tree.structure(state) for state in states}) == 1:
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *states)

    def found(seed: Seed) -> Any:
        return seed.best, seed.best_score, seed.failed

    together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(found(state) for state in states))
    return eqx.tree_at(found, like, together)


def join_histories(histories: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The records [epoch, seed] of all seeds, stage by stage.

    A share that ends a stage before the others stands still: its last record is repeated.
    """
    stages = sorted({int(stage) for history in histories for stage in np.unique(history["stage"])})
    parts: dict[str, list[np.ndarray]] = {name: [] for name in histories[0]}
    for stage in stages:
        rows = [np.flatnonzero((history["stage"] == stage).all(axis=1)) for history in histories]
        length = max(map(len, rows))
        for name, blocks in parts.items():
            columns = []
            for history, mine in zip(histories, rows, strict=True):
                values = history[name]
                if not len(mine):  # interrupted before this stage
                    columns.append(np.full((length, values.shape[1]), stage if name == "stage" else np.nan))
                    continue
                columns.append(values[np.concatenate([mine, np.full(length - len(mine), mine[-1])])])
            blocks.append(np.concatenate(columns, axis=1))
    return {name: np.concatenate(blocks) if blocks else histories[0][name] for name, blocks in parts.items()}


def share_file(checkpoint: Path | None, index: int, count: int) -> Path | None:
    """The checkpoint of a share."""
    return None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}.{index}-of-{count}")


def check_share_files(checkpoint: Path | None, count: int) -> None:
    """Raise a `ValueError` if there are checkpoints of another number of shares."""
    for file in _share_files(checkpoint):
        found = file.name.rpartition("-of-")[2]
        if found != str(count):
            raise ValueError(
                f"checkpoint={str(checkpoint)!r}: there is a fit with workers={found} that was not finished. Call it "
                f"with the same number of workers, or delete {file.name} and its siblings to start over."
            )


def remove_share_files(checkpoint: Path | None) -> None:
    """Delete the checkpoints of shares, once there is one of all seeds."""
    for file in _share_files(checkpoint):
        file.unlink(missing_ok=True)


def _share_files(checkpoint: Path | None) -> list[Path]:
    if checkpoint is None or not checkpoint.parent.is_dir():
        return []
    return sorted(
        each for each in checkpoint.parent.glob(f"{checkpoint.name}.*-of-*") if not each.name.endswith(".part")
    )
