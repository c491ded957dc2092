"""The response of each learned part to its inputs, and where training data support it.

A part with one input has a curve; with two, also a surface; with more, curves with the other inputs at their median and
a surface over the two most influential inputs. A point is supported if a training sample is near.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial import KDTree

from twinfold._core import quick_jit
from twinfold.model import MLP, AbstractLearned, Twin
from twinfold.model._learned.base import learned_parts
from twinfold.report._learned_parts import LearnedPart
from twinfold.report._predictions import usable_seeds
from twinfold.train import Fit

MARGIN = 0.25  # drawn beyond the data on each side, as a fraction of their range
SUPPORT_RADIUS = 0.05  # a point is supported if a sample is within this fraction of the range
CURVE_POINTS, SURFACE_POINTS = 121, 41
MAX_CURVES = 6


@dataclass(frozen=True, eq=False)
class Curve:
    """The response along one input: `values` [M, out] at `x`, their range `low` to `high` over the seeds."""

    input: int
    x: np.ndarray
    values: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    supported: np.ndarray


@dataclass(frozen=True, eq=False)
class Surface:
    """The response over two inputs: `values` [y, x, out]; `spread`, half the range over the seeds."""

    inputs: tuple[int, int]
    x: np.ndarray
    y: np.ndarray
    values: np.ndarray
    spread: np.ndarray | None
    supported: np.ndarray


@dataclass(frozen=True, eq=False)
class Response:
    """A learned part with its curves, most influential input first, and its surface if it has two inputs or more."""

    part: LearnedPart
    curves: tuple[Curve, ...]
    surface: Surface | None


def response(twin: Twin, fit: Fit | None, part: LearnedPart) -> Response:
    """The response of a part; its spread is over the usable seeds of `fit`."""
    curves = _curves(twin, fit, part)
    size = np.stack([np.abs(curve.values[curve.supported]).max(axis=0) for curve in curves]).max(axis=0)
    influence = [
        (np.std(curve.values[curve.supported], axis=0) / np.maximum(size, 1e-300)).max().item() for curve in curves
    ]
    order = np.argsort([-value for value in influence], kind="stable").tolist()
    surface = None
    if len(order) >= 2:
        first, second = sorted(order[:2])
        surface = _surface(twin, fit, part, (first, second))
    return Response(part, tuple(curves[index] for index in order[:MAX_CURVES]), surface)


def part_function(part: AbstractLearned) -> Callable[[Array], Array]:
    """The map u -> outputs of a part; an `MLP` also selects states and inputs, which is skipped here."""
    if not isinstance(part, MLP):
        return part  # pyright: ignore[reportReturnType]  # a Network, which is a function of u already
    return part.response


def is_supported(points: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Which points [..., d] have one of the samples [N, d] near, relative to the range of each column."""
    scale = np.array([_width(column) for column in samples.T])
    return KDTree(samples / scale).query(points / scale)[0] <= SUPPORT_RADIUS


def is_supported_inside(x: np.ndarray, samples: np.ndarray) -> np.ndarray:
    """Which of the points [M] have one of the samples [N] near and are inside their range."""
    rounding = 1e-9 * _width(samples)
    inside = (x >= samples.min() - rounding) & (x <= samples.max() + rounding)
    return inside & is_supported(x[:, None], samples[:, None])


def _width(samples: np.ndarray) -> float:
    """The range of the samples; of constant ones, a tenth of their size."""
    width = float(samples.max() - samples.min())
    return width if width > 0 else 0.1 * max(abs(float(samples[0])), 1.0)


def _evaluate(twin: Twin, fit: Fit | None, part: LearnedPart, u: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """The outputs of the part at each row of u, [M, out], and those of every usable seed, [S, M, out]."""
    points, usable = jax.device_put(u), usable_seeds(fit)
    values = np.asarray(_outputs(twin, part.index, points), np.float64)
    if fit is None or len(usable) < 2:
        return values, None
    return values, np.asarray(fit.map(lambda twin: _outputs(twin, part.index, points)), np.float64)[usable]


@quick_jit
def _outputs(twin: Twin, index: int, u: Float[Array, "M in"]) -> Float[Array, "M out"]:
    return jax.vmap(part_function(learned_parts(twin)[index]))(u)


def _grid(samples: np.ndarray, points: int) -> np.ndarray:
    margin = MARGIN * _width(samples)
    return np.linspace(samples.min() - margin, samples.max() + margin, points)


def _curves(twin: Twin, fit: Fit | None, part: LearnedPart) -> list[Curve]:
    """The response along each input, all evaluated together."""
    # With the ends of the data among the points, the supported part of the line reaches exactly that far.
    xs = [np.unique([*_grid(column, CURVE_POINTS), column.min(), column.max()]) for column in part.samples.T]
    u = np.tile(np.median(part.samples, axis=0), (sum(map(len, xs)), 1))
    ends = np.cumsum([0, *map(len, xs)])
    rows = [slice(start, stop) for start, stop in itertools.pairwise(ends)]
    for index, x in enumerate(xs):
        u[rows[index], index] = x
    values, seeds = _evaluate(twin, fit, part, u)
    curves = []
    for index, x in enumerate(xs):
        own = rows[index]
        low, high = (None, None) if seeds is None else (seeds[:, own].min(axis=0), seeds[:, own].max(axis=0))
        curves.append(Curve(index, x, values[own], low, high, is_supported_inside(x, part.samples[:, index])))
    return curves


def _surface(twin: Twin, fit: Fit | None, part: LearnedPart, inputs: tuple[int, int]) -> Surface:
    samples = part.samples[:, list(inputs)]
    x, y = (_grid(column, SURFACE_POINTS) for column in samples.T)
    points = np.stack(np.meshgrid(x, y), axis=-1)
    u = np.tile(np.median(part.samples, axis=0), (points.size // 2, 1))
    u[:, list(inputs)] = points.reshape(-1, 2)
    values, seeds = _evaluate(twin, fit, part, u)
    shape = (len(y), len(x), values.shape[-1])
    spread = None if seeds is None else (0.5 * np.ptp(seeds, axis=0)).reshape(shape)
    return Surface(inputs, x, y, values.reshape(shape), spread, is_supported(points, samples))
