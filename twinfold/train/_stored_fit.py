"""All seeds of a fit in a file, to be read beside the model file of its best seed without beginning the fit again.

What no seed has trained is that of the best twin, so the file holds the trained arrays alone, by their path.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from twinfold._core import Frozen
from twinfold.io._archive import read_arrays, write_arrays
from twinfold.model import Twin, count_parameters
from twinfold.train._estimate import Estimate, Shooting
from twinfold.train._evidence import Weights
from twinfold.train._fit import FAILED, Fit
from twinfold.train._region import bounded_parts, without_regions

SHOOTING, REGION, WEIGHTS, HISTORY = "start of windows", "region", "weights", "history"  # the first part of a name


def save_fit(path: Path, fit: Fit) -> None:
    """Write all seeds of a fit, atomically."""
    arrays: dict[str, Any] = {
        "seeds": np.array(fit.seeds),
        "scores": fit.scores,
        "failed": np.array([seed in fit.failures for seed in fit.seeds]),
        "seconds": np.array(fit.seconds),
        "interrupted": np.array(fit.interrupted),
        "parameters": np.array(fit.parameters),
    }
    arrays |= _named("", fit.params) | _named(REGION, fit.regions) | _named(HISTORY, fit.history)
    if fit.weights is not None:
        arrays |= _named(WEIGHTS, fit.weights)
    if fit.frozen.shooting is not None:
        arrays |= _named(SHOOTING, [fit.frozen.shooting.start.value, fit.frozen.shooting.size.value])
    write_arrays(path, {name: np.asarray(array) for name, array in arrays.items()})


def load_fit(path: Path, twin: Twin) -> Fit:
    """The fit in a file, whose best seed is `twin`.

    **Raises:** `ValueError` if the file is damaged, or if it belongs to another twin.
    """
    stored = read_arrays(path)
    try:
        return _build(stored, twin)
    except (KeyError, IndexError, TypeError):
        raise ValueError("it is not that of a fit") from None


def _build(stored: dict[str, np.ndarray], twin: Twin) -> Fit:
    seeds = tuple(stored["seeds"].tolist())
    limited = bool(_names(REGION, stored))
    estimate = Estimate(without_regions(twin) if limited else twin, _shooting(stored))
    trained = jax.tree_util.tree_map_with_path(lambda path, _: jax.tree_util.keystr(path) in stored, estimate)
    one, frozen = eqx.partition(estimate, trained)
    params = _filled("", one, stored, len(seeds))
    like = tuple(part.region.value for part in bounded_parts(twin) if part.region is not None) if limited else ()
    regions = _filled(REGION, like, stored, len(seeds))
    fit = Fit(
        seeds=seeds,
        scores=stored["scores"],
        failures={seed: FAILED for seed, bad in zip(seeds, stored["failed"], strict=True) if bad},
        history={name.split("'")[1]: stored[name] for name in _names(HISTORY, stored)},
        seconds=float(stored["seconds"]),
        interrupted=bool(stored["interrupted"]),
        parameters=int(stored["parameters"]),
        params=params,
        frozen=frozen,
        regions=regions,
        weights=_weights(stored, len(seeds)),
    )
    if count_parameters(one) != fit.parameters or not eqx.tree_equal(*jax.device_get((fit.twin, twin))):
        raise ValueError("it belongs to another model")
    return fit


def _shooting(stored: dict[str, np.ndarray]) -> Shooting | None:
    names = _names(SHOOTING, stored)
    if not names:
        return None
    start, size = (jax.device_put(stored[name]) for name in names)
    return Shooting(Frozen(start), Frozen(size), jnp.zeros_like(start))


def _weights(stored: dict[str, np.ndarray], seeds: int) -> Weights | None:
    if not _names(WEIGHTS, stored):
        return None
    l2, correlation = (stored[f"{WEIGHTS}.{field.name}"][0] for field in fields(Weights))
    return _filled(WEIGHTS, Weights(jnp.asarray(l2), jnp.asarray(correlation)), stored, seeds)


def _named(prefix: str, tree: PyTree) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {prefix + jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _names(prefix: str, stored: dict[str, np.ndarray]) -> list[str]:
    """In the order in which they were written, which is that of the tree."""
    return [name for name in stored if name.startswith(prefix)]


def _filled(prefix: str, like: PyTree, stored: dict[str, np.ndarray], seeds: int) -> PyTree:
    """The stored arrays of all seeds in the structure of `like`, that of one."""

    def leaf(path: Any, one: Any) -> Any:
        array = stored[prefix + jax.tree_util.keystr(path)]
        if array.shape != (seeds, *one.shape) or array.dtype != one.dtype:
            raise ValueError("it belongs to another model")
        return jax.device_put(array)

    return jax.tree_util.tree_map_with_path(leaf, like)
