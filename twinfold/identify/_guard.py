"""A residual is learned only as far as the data can tell it from the physics under the loads it will meet.

At a constant load the drop over a resistance and a missing voltage look the same: a network takes the blame for both,
and is wrong as soon as the load changes. Whether that is so can be read from the sensitivities of the rollout, without
a measurement under the other load: the error to be expected there is

    expected^2 = (what is left on the training data)^2 + (spread of the prediction under the loads)^2

by the linearised posterior (see `posterior`), for the physics with its unknown parameters alone, and with the residual.
A residual that does not see the load is as sure of itself as ever; it is held back where the loads leave the range of
the training data and an unknown parameter cannot be told from it.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.identify._posterior import posterior
from twinfold.model import Twin
from twinfold.train import Fit, Loss, fit

CONFOUNDED = 10.0  # times a parameter is less sure beside the residual than without it
OUTSIDE = 0.1  # share of the loads' samples beyond the inputs that were trained on


@dataclass(frozen=True, eq=False)
class Expected:
    """Errors in units of the scaled output: left on the training data, spread of the prediction under the loads."""

    left: float
    spread: float
    inflation: dict[str, float]

    @property
    def total(self) -> float:
        return float(np.hypot(self.left, self.spread))


@dataclass(frozen=True, eq=False)
class Guarded:
    """`fit` is the one to use: `full`, or `physics` where the residual is `held` back; `why` says it in words."""

    fit: Fit
    physics: Fit
    full: Fit
    held: bool
    with_physics: Expected
    with_residual: Expected
    why: str


def guarded_fit(twin: Twin, data: Dataset, loads: Dataset, *, loss: Loss | None = None, **options: Any) -> Guarded:
    """Fit the unknown parameters alone, then with the learned parts, and keep what should do better under `loads`.

    **Arguments:** `twin`, whose networks start at zero (`zero_last=True`), so that without training they are the pure
    physics; `data`; `loads`, runs with the inputs that the twin will meet (their outputs are not looked at, except
    where an initial state is taken from the first); `loss`: with an `l2`, which says how large the residual is believed
    to be; further options are those of `fit`.

    **Warns** where the residual is held back.
    """
    chosen = loss or Loss(l2=1e-5)
    if chosen.l2 == 0:
        raise ValueError("loss: give Loss(l2=...), or nothing is believed of the residual where the data say nothing.")
    once: dict[str, Any] = options | {"seeds": 1}
    physics = fit(twin, data, loss=chosen, trainable="parameters", **once)
    full = fit(twin, data, loss=chosen, **options)
    alone = _expected(physics, data, loads, chosen, 0)
    both = _expected(full, data, loads, chosen, full.best)
    confounded = [name for name, times in both.inflation.items() if times > CONFOUNDED]
    outside = _outside(data, loads)
    blind = bool(confounded) and outside > OUTSIDE
    held = both.total > alone.total or blind
    why = (
        f"Under the given loads the physics alone is expected to be off by {alone.total:.2g} (left on the training "
        f"data {alone.left:.2g}, spread of the prediction {alone.spread:.2g}), with its residual by {both.total:.2g} "
        f"({both.left:.2g} and {both.spread:.2g}), in units of the outputs' spread. "
    )
    if blind:
        why += (
            f"{100 * outside:.0f} % of the loads lie beyond the inputs of the training data, and beside the residual "
            f"the data do not tell {', '.join(confounded)}. "
        )
    if held:
        why += (
            "The data do not tell the residual from the physics well enough for these loads: it is held back, and the "
            "fit is that of the physics with its unknown parameters. Measure under more varied loads to use it."
        )
        warnings.warn(why, stacklevel=2)
    else:
        why += "The residual is kept."
    return Guarded(physics if held else full, physics, full, held, alone, both, why)


def _expected(found: Fit, data: Dataset, loads: Dataset, loss: Loss, seed: int) -> Expected:
    known = posterior(found, data, loss=loss, seed=seed)
    spread = known.spread(loads)
    real = sum(len(run.ts) for run in loads.runs) * spread.shape[-1]
    return Expected(known.error, float(np.sqrt(np.sum(spread**2) / real)), known.inflation)


def _outside(data: Dataset, loads: Dataset) -> float:
    """The share of the loads' samples with an input beyond the range that it has in the data."""
    if not data.input_names:
        return 0.0
    seen, coming = (np.concatenate([run.w for run in each.runs if run.w is not None]) for each in (data, loads))
    low, high = seen.min(0), seen.max(0)
    margin = 0.05 * (high - low)
    return float(np.mean(np.any((coming < low - margin) | (coming > high + margin), axis=1)))
