"""What a vector of sample times has to be."""

import numpy as np


def check_times(ts: np.ndarray, name: str) -> None:
    """A `ValueError` unless the times are a finite, increasing vector of at least two."""
    if ts.ndim != 1 or ts.shape[0] < 2:
        raise ValueError(f"{name} has shape {ts.shape}; it must be a vector of at least two times.")
    if not np.isfinite(ts).all():
        raise ValueError(f"{name} is not finite at sample {int(np.argmin(np.isfinite(ts)))}.")
    steps = np.diff(ts)
    if not (steps > 0).all():
        index = int(np.argmin(steps > 0))
        raise ValueError(
            f"{name} must increase: sample {index + 1} ({ts[index + 1]:.6g}) is not after sample {index} "
            f"({ts[index]:.6g})."
        )
