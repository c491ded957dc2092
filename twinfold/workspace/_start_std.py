"""How uncertain the initial states are that a twin estimates from the first samples of a run.

A start that is computed from the first measurement, x0 = initial(y), has the noise of the sensors:

    cov = J R J',                           J = d initial / d y

One that was estimated from the first samples, by least squares, has what these samples leave open:

    cov = (sum of G' R^-1 G + W^-2)^-1,     G = d y_k / d x0

with W, a part of the range of each state, for directions that they do not show. What `initial` assumes beside the
measurement, a plant at rest, say, counts as right: where it is not, the errors of simulations make the noise larger.
"""

import jax
import jax.numpy as jnp
import numpy as np

from twinfold._core import quick_jit
from twinfold.data import Dataset, Run
from twinfold.data._warmup import DEFAULT_WARMUP
from twinfold.model import Twin, Unknown, simulate_unchecked


def start_std(twin: Twin, data: Dataset, sensor: np.ndarray, widest: np.ndarray) -> np.ndarray:
    """The root mean square over runs of the standard deviations of their starts; `data` with the x0 of each run.

    **Arguments:** `sensor`, the standard deviation of each output; `widest`, that of a start of which nothing is known.
    """
    found = [np.asarray(_variance(twin, run, np.asarray(sensor), np.asarray(widest))) for run in data.runs]
    known = np.array([each for each in found if np.isfinite(each).all()])
    return np.sqrt(known.mean(axis=0)) if len(known) else np.asarray(widest)


def _variance(twin: Twin, run: Run, sensor: np.ndarray, widest: np.ndarray) -> jax.Array:
    w = None if run.w is None else jnp.asarray(run.w)
    if isinstance(twin.initial, Unknown):
        seen = run.until(twin.warmup or DEFAULT_WARMUP)
        count = len(seen.ts)
        arrays = (jnp.asarray(run.x0), jnp.asarray(seen.ts), None if w is None else w[:count])
        slope = _output_slopes(twin, *arrays) / sensor[:, None]
        slope = jnp.where(jnp.isfinite(seen.y)[..., None], slope, 0)
        information = jnp.einsum("tki,tkj->ij", slope, slope) + jnp.diag(widest**-2.0)
        return jnp.diag(jnp.linalg.inv(information))
    slope = _start_slopes(twin, jnp.asarray(run.ts[0]), jnp.asarray(run.y[0]), None if w is None else w[0])
    return jnp.sum((slope * sensor) ** 2, axis=1)


@quick_jit
def _output_slopes(twin: Twin, x0: jax.Array, ts: jax.Array, w: jax.Array | None) -> jax.Array:
    return jax.jacfwd(lambda x: simulate_unchecked(twin, x, ts, w, twin.parameters()).ys)(x0)


@quick_jit
def _start_slopes(twin: Twin, t: jax.Array, y: jax.Array, w: jax.Array | None) -> jax.Array:
    return jax.jacfwd(lambda y: twin.initial_state(t, y, w, twin.parameters()))(y)
