"""The last samples of a follower, with the belief before each: from there a late sample is filtered in its place.

A sample that comes late is put where it belongs, and all after it are filtered again: the result is that of samples in
order, exactly, since it is computed in the same way. The number of samples is bounded, and so are time and memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.estimate._estimator import Belief, Window


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample as it was given: its time, inputs and measurement, NaN where a value is missing."""

    t: float
    w: np.ndarray | None
    y: np.ndarray

    def filled(self, other: "Sample") -> "Sample":
        """The sample with its missing values from another one of the same time."""
        w = self.w if self.w is None or other.w is None else np.where(np.isfinite(self.w), self.w, other.w)
        return Sample(self.t, w, np.where(np.isfinite(self.y), self.y, other.y))


@dataclass(frozen=True, eq=False)
class PastSample:
    """A sample and the belief before it."""

    before: Belief
    sample: Sample


def place_of(past: list[PastSample], t: float) -> int | None:
    """The place among the past samples at which one of time t has to be filtered; None if that is too long ago."""
    if not past or (t < past[0].sample.t and t <= float(past[0].before.t)):
        return None
    return next(place for place, each in enumerate(past) if each.sample.t >= t)


def belief_to_json(belief: Belief) -> dict[str, Any]:
    """A belief as plain JSON, from which `belief_from_json` restores every bit."""

    def plain(value: Any) -> Any:
        if isinstance(value, Belief | Window):
            return {name: plain(each) for name, each in vars(value).items() if name != "window" or each is not None}
        return None if value is None else np.asarray(value).tolist()

    return plain(belief)


def belief_from_json(saved: Mapping[str, Any], dtype: np.dtype) -> Belief:
    """The belief on the host, with real numbers of this dtype."""

    def arrays(saved: Mapping[str, Any]) -> dict[str, Any]:
        return {name: array(value) for name, value in saved.items() if name not in ("window", "arrival")}

    def array(value: Any) -> Any:
        if value is None:
            return None
        given = np.asarray(value)
        return jnp.asarray(given if given.dtype == bool else given.astype(dtype))

    window = saved.get("window")
    if window is not None:
        window = Window(arrival=Belief(**arrays(window["arrival"])), **arrays(window))
    return jax.device_get(Belief(**arrays(saved), window=window))


def past_to_json(past: PastSample) -> dict[str, Any]:
    """A past sample as plain JSON; a missing value is null."""
    sample = past.sample
    return {
        "before": belief_to_json(past.before),
        "t": sample.t,
        "w": None if sample.w is None else _nullable(sample.w),
        "y": _nullable(sample.y),
    }


def past_from_json(saved: Mapping[str, Any], dtype: np.dtype) -> PastSample:
    """What `past_to_json` has saved."""
    w = None if saved["w"] is None else np.array(saved["w"], float)
    sample = Sample(saved["t"], w, np.array(saved["y"], float))
    return PastSample(belief_from_json(saved["before"], dtype), sample)


def _nullable(values: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
