"""Does the healthy population itself change? A straight line through the healthy cycles, with its standard error.

Limits from cycles in which a unit wore already are too wide, and their centre is that of a worn unit: alarms come late.
A change is reported if it is both significant, for neighbouring cycles that may be correlated, and larger than the
scatter about the line; with an `allowed` change (see `_limits`), if it is larger than that as well.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from twinfold.identify import uncertainty

SIGNIFICANCE = 0.01  # probability of a finding in steady healthy cycles
MIN_CYCLES = 5  # a line through fewer says little


def healthy_drifts(
    healthy: Sequence[Mapping[str, float]],
    *,
    direction: Mapping[str, int] | None = None,
    allowed: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """A sentence for each feature that drifts over the healthy cycles.

    **Arguments:** as for `feature_limits`.
    """
    found = []
    for name in healthy[0] if healthy else ():
        values = np.array([cycle[name] for cycle in healthy], np.float64)
        change, spread = _change(values, SIGNIFICANCE / len(healthy[0]))
        bad = not (direction or {}).get(name, 0) * change < 0
        if bad and abs(change) > max(spread, (allowed or {}).get(name, 0.0)):
            found.append(
                f"'{name}' {_risen(change)} by {abs(change):.3g} over the {len(values)} healthy cycles, which scatter "
                f"by {spread:.2g}: the limits are those of a unit that changes, and alarms may come late. Give healthy "
                "cycles from before the change, or state with `allowed` how much of it is normal."
            )
    return tuple(found)


def fading_health(values: Sequence[float] | np.ndarray, threshold: float, *, falling: bool = True) -> tuple[str, ...]:
    """A sentence if the health moves towards its threshold during the healthy cycles.

    **Arguments:** `values` of the health, non-finite where there is none; the `threshold`; `falling`, its direction.
    """
    values = np.asarray(values, np.float64)
    change, spread = _change(values, SIGNIFICANCE)
    if abs(change) <= spread or (change > 0) == falling:
        return ()
    first, count = float(np.nanmedian(values)) - change / 2, int(np.isfinite(values).sum())
    way = abs(change / (first - threshold))
    return (
        f"The unit fades while it counts as healthy: the health {_risen(change)} by {abs(change):.3g} "
        f"({abs(change / first):.1%}) over the {count} healthy cycles, {way:.0%} of the way to its threshold "
        f"{threshold:g}, and scatters by {spread:.2g}. Alarms may come late; give fewer healthy cycles, or earlier "
        "ones.",
    )


def _risen(change: float) -> str:
    return "rises" if change > 0 else "falls"


def _change(values: np.ndarray, probability: float) -> tuple[float, float]:
    """The change along a line from the first to the last cycle, 0 if not significant, and the scatter about it."""
    known = np.isfinite(values)
    if known.sum() < MIN_CYCLES:
        return 0.0, 0.0
    position = np.linspace(0.0, 1.0, len(values))
    basis = np.stack([np.ones_like(position), position], axis=1)
    unit = np.abs(values[known]).max() or 1.0  # the square of an extreme value may overflow
    y = values / unit
    line = np.linalg.lstsq(basis[known], y[known], rcond=None)[0]
    residual = np.where(known, y - basis @ line, np.nan)
    spread = float(np.sqrt(np.nansum(residual**2) / (known.sum() - 2)))
    if spread <= 1e-12:  # an exact line
        return float(unit * line[1]) if abs(line[1]) > 1e-9 else 0.0, unit * spread
    sure = uncertainty(residual, -basis, ["level", "change"])
    freedom = max(sure.samples - 2, 1.0)
    limit = special.stdtrit(freedom, 1 - probability / 2)
    significant = abs(line[1]) > limit * sure.errors["change"]
    return float(unit * line[1]) if significant else 0.0, unit * spread
