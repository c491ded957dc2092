"""Errors at samples where a learned part is outside of what its training data covered.

A large error says little about a twin if it comes from states and inputs that nobody has shown it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from twinfold.metrics._predict import Predictions

DOMINATED = 0.5  # of the squared error, above which extrapolation is named
MAX_LISTED = 3  # runs in a sentence


@dataclasses.dataclass(frozen=True)
class ExtrapolationShare:
    """How much of the squared error comes from extrapolated samples.

    `error`: the share of the squared error, each output in units of its spread; `samples`: the share of the measured
    samples; `runs` that have such samples, those with the largest part of that error first.

    **Example:**

    ```python
    share = tw.metrics.ExtrapolationShare(error=0.9, samples=0.1, runs=("fast",))
    share.dominates  # True
    print(share.sentence("the test runs"))
    ```
    """

    error: float
    samples: float
    runs: tuple[str, ...]

    @property
    def dominates(self) -> bool:
        """Whether extrapolated samples make up most of the error, and more than their number explains."""
        return self.error > DOMINATED and self.error >= self.samples > 0

    def sentence(self, what: str) -> str:
        """What this means for the error of `what` ("the test runs"), and what to do about it."""
        return (
            f"The error of {what} is mostly extrapolation: {self.error:.0%} of its square comes from the "
            f"{_percent(self.samples)} of the samples where a learned part is outside of its training data "
            f"({_listed(self.runs)}). What it says there was not learned: train on runs that go there, or choose what "
            "it does outside: MLP(outside=...)."
        )


def extrapolation_share(predictions: Predictions, seed: int = 0) -> ExtrapolationShare:
    """The share of the squared error of the seed at index `seed` that comes from extrapolated samples.

    **Example:**

    ```python
    ts = np.linspace(0.0, 2.0, 21)
    data = tw.Dataset.from_arrays(ts, [np.exp(-ts)])
    tw.metrics.extrapolation_share(tw.predict(tw.Twin(lambda x: -x), data)).samples  # 0.0: nothing was learned
    ```
    """
    outside = predictions.extrapolated[seed]
    use = predictions.mask & np.isfinite(predictions.predicted[seed])
    spread = _spread(predictions.y, predictions.mask)
    errors = np.where(use, predictions.predicted[seed], predictions.y) - predictions.y
    errors = np.where(predictions.mask, errors / spread, 0.0)
    # Shares do not depend on the unit, and the square of a diverging error would overflow.
    squares = (errors / max(float(np.abs(errors).max()), np.finfo(np.float64).tiny)) ** 2
    total = float(squares.sum())
    by_run = np.where(outside[..., None], squares, 0.0).sum((1, 2))
    counted = use.any(-1)
    order = [index for index in np.argsort(-by_run, kind="stable") if (outside & counted)[index].any()]
    return ExtrapolationShare(
        error=float(by_run.sum()) / total if total > 0 else 0.0,
        samples=float((outside & counted).sum()) / max(int(counted.sum()), 1),
        runs=tuple(predictions.runs[index] for index in order),
    )


def _spread(y: np.ndarray, mask: np.ndarray) -> np.ndarray:
    values = np.where(mask, y, np.nan).reshape(-1, y.shape[-1])
    known = [column[np.isfinite(column)] for column in values.T]
    spread = np.array([column.std() if column.size else 0.0 for column in known])
    return np.where(spread > 0, spread, 1.0)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else f"{share:.1%}"


def _listed(runs: Sequence[str]) -> str:
    names = ", ".join(f"'{name}'" for name in runs[:MAX_LISTED])
    more = f" and {len(runs) - MAX_LISTED} more" if len(runs) > MAX_LISTED else ""
    return f"run{'s' if len(runs) > 1 else ''} {names}{more}"
