"""Assets in arrays: bucketed by length, so that little is padding, in few shapes, so that little is compiled."""

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from twinfold.data import Run

RATIO = 1.25  # of the lengths of neighbouring buckets: less than a fifth of an array is padding
SHORTEST = 8  # samples in the first bucket


class AssetBatch(eqx.Module):
    """A assets of at most T samples: `y` is NaN where nothing was measured and in padding, which repeats times."""

    ts: Float[Any, "A T"]
    y: Float[Any, "A T k"]
    w: Float[Any, "A T d"] | None
    x0: Float[Any, "A n"] | None

    @property
    def size(self) -> int:
        """Number of assets."""
        return self.ts.shape[0]


def bucket_length(samples: int) -> int:
    """The smallest length of a bucket that holds this many samples."""
    length = SHORTEST
    while length < samples:
        length = max(int(RATIO * length), length + 1)
    return length


def buckets(runs: Sequence[Run]) -> Iterator[tuple[list[int], AssetBatch]]:
    """The runs of similar length together, as arrays, and their indices."""
    found: dict[int, list[int]] = {}
    for index, run in enumerate(runs):
        found.setdefault(bucket_length(len(run.ts)), []).append(index)
    for length in sorted(found):
        yield found[length], _assembled([runs[index] for index in found[length]], length)


def padding(lengths: Sequence[int]) -> float:
    """The share of padding in the arrays of assets of these lengths."""
    padded = sum(map(bucket_length, lengths))
    return 1 - sum(lengths) / padded if padded else 0.0


def _assembled(runs: Sequence[Run], length: int) -> AssetBatch:
    def stack(values: Sequence[np.ndarray], fill: float | None) -> np.ndarray:
        out = np.empty((len(values), length, *values[0].shape[1:]))
        for row, each in zip(out, values, strict=True):
            row[: len(each)] = each
            row[len(each) :] = each[-1] if fill is None else fill
        return out

    return AssetBatch(
        ts=stack([run.ts for run in runs], None),
        y=stack([run.y for run in runs], np.nan),
        w=None if runs[0].w is None else stack([run.w for run in runs if run.w is not None], None),
        x0=None if runs[0].x0 is None else np.stack([run.x0 for run in runs if run.x0 is not None]),
    )
