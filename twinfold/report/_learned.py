"""What was learned, as numbers: each learned part over the range of what it saw, and where that range ends.

A part with one input is a curve; with two, a surface; with more, curves with the other inputs at their median and a
surface over the two inputs that matter most. A place counts as known where a sample of the training data is near.
"""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from twinfold.model import MLP, AbstractLearned, Twin
from twinfold.model._learned.base import learned_parts
from twinfold.model._learned.mlp import select
from twinfold.report._seen import Part
from twinfold.report._shown import usable_seeds
from twinfold.train import Fit

MARGIN = 0.25  # how far beyond the data it is drawn, in parts of their range
NEAR = 0.05  # a place is known where a sample is no farther than this part of the range
POINTS, CELLS = 121, 41
CURVES = 6  # the inputs that matter most


@dataclass(frozen=True, eq=False)
class Curve:
    """The part along one input: `values` [M, out], `low` and `high` over the seeds; `known` [M], near to data."""

    input: int
    at: np.ndarray
    values: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    known: np.ndarray


@dataclass(frozen=True, eq=False)
class Surface:
    """The part over two inputs: `values` [N, M, out], rows along the second; `spread`, half the range over seeds."""

    inputs: tuple[int, int]
    x: np.ndarray
    y: np.ndarray
    values: np.ndarray
    spread: np.ndarray | None
    known: np.ndarray


@dataclass(frozen=True, eq=False)
class Learned:
    """One learned part with its curves (those that matter most first) and its surface, where it has two inputs."""

    part: Part
    curves: tuple[Curve, ...]
    surface: Surface | None


def learned(twin: Twin, fit: Fit | None, part: Part) -> Learned:
    """The curves and the surface of a part; the spread is over the seeds of `fit` that did not fail."""
    curves = _curves(twin, fit, part)
    size = np.maximum(np.stack([np.abs(curve.values[curve.known]).max(axis=0) for curve in curves]).max(axis=0), 1e-300)
    influence = [float((np.std(curve.values[curve.known], axis=0) / size).max()) for curve in curves]
    order = np.argsort([-value for value in influence], kind="stable").tolist()
    surface = None
    if len(order) >= 2:
        first, second = sorted(order[:2])
        surface = _surface(twin, fit, part, (first, second))
    return Learned(part, tuple(curves[index] for index in order[:CURVES]), surface)


def known_along(at: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Which of the places `at` are inside the range of the data and near to one of them."""
    ordered = np.sort(data)
    place = np.clip(np.searchsorted(ordered, at), 1, max(len(ordered) - 1, 1))
    nearest = np.minimum(np.abs(at - ordered[place - 1]), np.abs(at - ordered[np.minimum(place, len(ordered) - 1)]))
    tiny = 1e-9 * width(data)
    inside = (at >= ordered[0] - tiny) & (at <= ordered[-1] + tiny)
    return inside & (nearest <= NEAR * width(data))


def width(data: np.ndarray) -> float:
    """The range of the data; of what never changes, a tenth of its size."""
    span = float(data.max() - data.min())
    return span if span > 0 else 0.1 * max(abs(float(data[0])), 1.0)


def part_function(part: AbstractLearned, states: int, inputs: int) -> Callable[[Array], Array]:
    """What a part gives for what it sees, u -> values; an `MLP` also picks states and inputs, which is undone here."""
    if not isinstance(part, MLP):
        return part  # pyright: ignore[reportReturnType]  # a Network, which is a function of u already
    seen = tuple(range(states)) if part.states is None else part.states
    adds_to = tuple(range(states)) if part.adds_to is None else part.adds_to

    def values(u: Float[Array, " in"]) -> Float[Array, " out"]:
        x = jnp.zeros(states, u.dtype).at[jnp.array(seen, int)].set(u[: len(seen)])
        w = jnp.zeros(inputs, u.dtype).at[jnp.array(part.inputs, int)].set(u[len(seen) : len(seen) + len(part.inputs)])
        return select(part(u[-1], x, w), adds_to)

    return values


def _values(twin: Twin, fit: Fit | None, part: Part, u: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The part at each row of u, [M, out], and with every usable seed, [S, M, out]."""
    usable = usable_seeds(fit)
    spread = (
        None if fit is None or len(usable) < 2 else np.asarray(_of_seeds(fit, part, jnp.asarray(u)), np.float64)[usable]
    )
    return np.asarray(_of_twin(twin, part, jnp.asarray(u)), np.float64), spread


@eqx.filter_jit
def _of_twin(twin: Twin, part: Part, u: Float[Array, "M in"]) -> Float[Array, "M out"]:
    return jax.vmap(part_function(learned_parts(twin)[part.place], part.states, part.inputs))(u)


def _of_seeds(fit: Fit, part: Part, u: Float[Array, "M in"]) -> Float[Array, "S M out"]:
    return fit.map(lambda twin: _of_twin(twin, part, u))


def _grid(data: np.ndarray, points: int) -> np.ndarray:
    beyond = MARGIN * width(data)
    return np.linspace(data.min() - beyond, data.max() + beyond, points)


def _curves(twin: Twin, fit: Fit | None, part: Part) -> list[Curve]:
    """The part along each of its inputs, all of them evaluated together."""
    # With the ends of the data among the places, the known part of the line reaches exactly that far.
    ats = [np.unique([*_grid(data, POINTS), data.min(), data.max()]) for data in part.seen.T]
    u = np.tile(np.median(part.seen, axis=0), (sum(map(len, ats)), 1))
    ends = np.cumsum([0, *map(len, ats)]).tolist()
    for index, at in enumerate(ats):
        u[ends[index] : ends[index + 1], index] = at
    values, seeds = _values(twin, fit, part, u)
    low, high = (None, None) if seeds is None else (seeds.min(axis=0), seeds.max(axis=0))
    curves = []
    for index, at in enumerate(ats):
        own = slice(ends[index], ends[index + 1])
        bounds = (None, None) if low is None or high is None else (low[own], high[own])
        curves.append(Curve(index, at, values[own], *bounds, known_along(at, part.seen[:, index])))
    return curves


def _surface(twin: Twin, fit: Fit | None, part: Part, inputs: tuple[int, int]) -> Surface:
    data = part.seen[:, list(inputs)]
    x, y = (_grid(column, CELLS) for column in data.T)
    cells = np.stack(np.meshgrid(x, y), axis=-1)
    u = np.tile(np.median(part.seen, axis=0), (cells.size // 2, 1))
    u[:, list(inputs)] = cells.reshape(-1, 2)
    values, seeds = _values(twin, fit, part, u)
    shape = (len(y), len(x), values.shape[-1])
    spread = None if seeds is None else (0.5 * (seeds.max(axis=0) - seeds.min(axis=0))).reshape(shape)
    return Surface(inputs, x, y, values.reshape(shape), spread, _known_over(cells, data))


def _known_over(cells: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Which cells, [N, M, 2], have a sample near, each input in parts of its range."""
    scale = np.array([width(column) for column in data.T])
    nearest = np.full(cells.shape[:2], np.inf)
    for some in np.array_split(data / scale, max(len(data) // 250, 1)):
        distance = np.linalg.norm((cells / scale)[:, :, None] - some, axis=-1)
        nearest = np.minimum(nearest, distance.min(axis=-1))
    return nearest <= NEAR
