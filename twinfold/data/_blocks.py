"""Blocks: a long run cut in time, so that a part of it can be held out.

Consecutive blocks are separated by a gap, samples that belong to no block: the state at the start of a block does not
follow from the last measurements of the block before it, nor does slowly changing noise.
"""

import itertools
import math
import warnings

import numpy as np

from twinfold.data._run import Run

DEFAULT_GAP = 0.05  # of a block
MIN_SAMPLES = 2  # in a block


def check_blocks(blocks: int, gap: int | None, names: tuple[str, str]) -> None:
    """Raise a `ValueError` unless runs can be cut so; `names` are those of the two arguments."""
    if blocks < 2:
        raise ValueError(f"{names[0]}={blocks}: a run is cut into at least 2 blocks.")
    if gap is not None and gap < 0:
        raise ValueError(f"{names[1]}={gap}: give the number of samples between two blocks, 0 or more.")


def block_slices(samples: int, blocks: int, gap: int | None = None) -> list[slice]:
    """The samples of each block, in order; one slice, of all samples, if there are too few for so many blocks.

    **Arguments:** `samples`; `blocks`, whose lengths differ by at most one sample; `gap`, the samples between two
    blocks (default: a twentieth of a block, at least one).
    """
    gap = math.ceil(DEFAULT_GAP * samples / blocks) if gap is None else gap
    inside = samples - gap * (blocks - 1)
    if inside < MIN_SAMPLES * blocks:
        return [slice(0, samples)]
    lengths = [inside // blocks + (index < inside % blocks) for index in range(blocks)]
    starts = itertools.accumulate(lengths[:-1], lambda start, length: start + length + gap, initial=0)
    return [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]


def cut_blocks(run: Run, blocks: int, gap: int | None = None, states: np.ndarray | None = None) -> list[Run]:
    """The blocks of a run, named `run[0]`, `run[1]`, ..., all of its group.

    A block begins with its first complete sample, so that the state can be derived from it as at the start of a run.
    A run that is too short stays whole, and a block without a measured value is left out, both with a warning.

    **Arguments:** `run`; `blocks` and `gap`, see `block_slices`; `states`, [T, n]: the state at each sample, if known.
    """
    slices = block_slices(len(run.ts), blocks, gap)
    if len(slices) == 1:
        between = "" if gap is None else f" with {gap} samples between two"
        warnings.warn(
            f"run '{run.name}' has {len(run.ts)} samples, too few for {blocks} blocks{between}; it stays whole.",
            stacklevel=2,
        )
        return [run]
    slices = [slices[0], *(_from_complete_sample(run.y, block) for block in slices[1:])]
    empty = [index for index, block in enumerate(slices) if np.isnan(run.y[block]).all()]
    if empty:
        names = ", ".join(f"'{run.name}[{index}]'" for index in empty)
        warnings.warn(f"blocks without a measured value are left out: {names}.", stacklevel=2)
    return [
        Run(
            f"{run.name}[{index}]",
            run.ts[block],
            run.y[block],
            None if run.w is None else run.w[block],
            None if states is None else states[block.start],
            run.group,
        )
        for index, block in enumerate(slices)
        if index not in empty
    ]


def _from_complete_sample(y: np.ndarray, block: slice) -> slice:
    """The block without the samples before the first at which all outputs were measured, if that leaves enough."""
    complete = np.flatnonzero(~np.isnan(y[block]).any(axis=1))
    start = block.start + (int(complete[0]) if complete.size else 0)
    return slice(start, block.stop) if block.stop - start >= MIN_SAMPLES else block
