"""Arguments that the projections for many constraints share, checked."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import ArrayLike

from twinfold._core import Frozen
from twinfold.numerics._project.base import metric_root


def check_large(name: str, derivative: str, max_steps: int, max_iterations: int, tolerance: float | None) -> None:
    """A `ValueError` that names the argument, unless all can be used."""
    if derivative not in ("implicit", "tangent"):
        raise ValueError(f'{name}(derivative={derivative!r}): give "implicit" or "tangent".')
    if max_steps < 1:
        raise ValueError(f"{name}(max_steps={max_steps}): at least one step is needed.")
    if max_iterations < 1:
        raise ValueError(f"{name}(max_iterations={max_iterations}): at least one iteration is needed.")
    if tolerance is not None and not tolerance > 0:
        raise ValueError(f"{name}(tolerance={tolerance}): must be positive.")


def weights_root(name: str, metric: ArrayLike | Sequence | None) -> Frozen | None:
    """The root of a metric that is a vector of weights; a matrix would couple all states."""
    if metric is not None and np.ndim(np.asarray(metric)) != 1:
        raise ValueError(f"{name}(metric=...): give a vector of positive weights, one for each state, not a matrix.")
    return metric_root(metric)
