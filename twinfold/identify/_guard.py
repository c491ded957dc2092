"""A fit that uses its learned residual only if the data separate it from the physics under the expected loads.

Under a constant load, the voltage drop over a resistance and a missing voltage look the same: a network absorbs both,
and is wrong as soon as the load changes. The sensitivities of the rollout show this without a measurement under the
other loads. The linearised posterior (see `posterior`) gives the expected error there,

    expected^2 = (residual on the training data)^2 + (spread of the prediction under the loads)^2

for the physics with its unknown parameters alone and for the full twin. A network that does not take the load as an
input has the same spread under every load; it is therefore also held back if the loads leave the range of the training
inputs while an unknown parameter is confounded with it.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.data import Dataset
from twinfold.identify._posterior import posterior
from twinfold.model import Twin
from twinfold.train import Fit, Loss, fit

CONFOUNDED = 10.0  # inflation above which the data do not separate a parameter from the learned parts
MAX_OUTSIDE = 0.1  # share of load samples outside the range of the training inputs
MARGIN = 0.05  # of the training range, which still counts as inside


@dataclass(frozen=True, eq=False)
class ExpectedError:
    """The error to expect under the loads, in units of the scaled outputs.

    `training` is the root mean square residual on the training data, `spread` that of the prediction under the loads,
    `inflation` as in `Posterior`.

    **Example:**

    ```python
    tw.identify.ExpectedError(training=0.3, spread=0.4, inflation={}).total  # 0.5
    ```
    """

    training: float
    spread: float
    inflation: dict[str, float]

    @property
    def total(self) -> float:
        """Both contributions together."""
        return float(np.hypot(self.training, self.spread))


@dataclass(frozen=True, eq=False)
class GuardedFit:
    """The result of `guarded_fit`.

    `fit` is the one to use: `full`, or `physics` if the residual is `held_back`; `reason` explains the choice.
    `with_physics` and `with_residual` are the expected errors of the two. See `guarded_fit` for its use.

    **Example:**

    ```python
    import dataclasses

    [field.name for field in dataclasses.fields(tw.identify.GuardedFit)]
    ```
    """

    fit: Fit
    physics: Fit
    full: Fit
    held_back: bool
    with_physics: ExpectedError
    with_residual: ExpectedError
    reason: str


def guarded_fit(twin: Twin, data: Dataset, loads: Dataset, *, loss: Loss | None = None, **options: Any) -> GuardedFit:
    """Fit the unknown parameters alone and together with the learned parts; choose by the expected error under `loads`.

    **Arguments:** `twin`, whose networks start at zero (`zero_last=True`), so that they add nothing before training;
    `data`; `loads`, runs with the inputs that the twin will meet (their outputs are used only where an initial state is
    taken from the first one); `loss`, with an `l2` that states how large the residual is expected to be; other options
    as for `fit`.

    **Returns:** a `GuardedFit`.

    **Raises:** `ValueError` if the loss has no `l2`.

    **Warns** if the residual is held back.

    **Example:**

    ```python
    ts = np.linspace(0, 2, 21)
    data = tw.Dataset.from_arrays(ts, [a * np.exp(-ts) for a in (1.0, 0.6)])
    residual = tw.MLP(width=2, depth=1, zero_last=True)
    field = tw.GreyBox(lambda x, p: -p["k"] * jnp.ones_like(x), residual)
    twin = tw.Twin(field, params={"k": tw.Unknown(0.1, positive=True)}, integrator=tw.Euler())
    result = tw.identify.guarded_fit(twin, data, data, method=tw.LevenbergMarquardt(10), progress=False)
    result.held_back  # False: the data determine the residual
    print(result.reason)
    ```
    """
    loss = Loss(l2=1e-5) if loss is None else loss
    if loss.l2 == 0:
        raise ValueError(
            "loss: give Loss(l2=...); without a prior on the weights the residual is unbounded wherever the data carry "
            "no information."
        )
    one_seed: dict[str, Any] = options | {"seeds": 1}
    physics = fit(twin, data, loss=loss, trainable="parameters", **one_seed)
    full = fit(twin, data, loss=loss, **options)
    alone = _expected_error(physics, data, loads, loss, 0)
    both = _expected_error(full, data, loads, loss, full.best)
    confounded = [name for name, inflation in both.inflation.items() if inflation > CONFOUNDED]
    outside = _share_outside(data, loads)
    extrapolates = bool(confounded) and outside > MAX_OUTSIDE
    held_back = both.total > alone.total or extrapolates
    reason = (
        f"Expected error under the given loads, in standard deviations of the outputs: physics alone {alone.total:.2g} "
        f"(training residual {alone.training:.2g}, prediction spread {alone.spread:.2g}), with the residual "
        f"{both.total:.2g} ({both.training:.2g} and {both.spread:.2g}). "
    )
    if extrapolates:
        reason += (
            f"{100 * outside:.0f} % of the load samples lie outside the range of the training inputs, and the data do "
            f"not separate {', '.join(confounded)} from the residual. "
        )
    if held_back:
        reason += (
            "The residual is held back, and the fit is that of the physics with its unknown parameters. To use the "
            "residual, add training data under more varied loads."
        )
        warnings.warn(reason, stacklevel=2)
    else:
        reason += "The residual is used."
    return GuardedFit(physics if held_back else full, physics, full, held_back, alone, both, reason)


def _expected_error(found: Fit, data: Dataset, loads: Dataset, loss: Loss, seed: int) -> ExpectedError:
    fitted = posterior(found, data, loss=loss, seed=seed)
    spread = fitted.spread(loads)
    count = sum(len(run.ts) for run in loads.runs) * spread.shape[-1]
    return ExpectedError(fitted.error, float(np.sqrt(np.sum(spread**2) / count)), fitted.inflation)


def _share_outside(data: Dataset, loads: Dataset) -> float:
    """The share of load samples with an input outside its range in the training data."""
    if not data.input_names:
        return 0.0
    known, new = (np.concatenate([run.w for run in each.runs if run.w is not None]) for each in (data, loads))
    low, high = known.min(0), known.max(0)
    margin = MARGIN * (high - low)
    return float(np.mean(np.any((new < low - margin) | (new > high + margin), axis=1)))
