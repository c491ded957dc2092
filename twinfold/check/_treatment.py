"""What an input does between its samples, as data: each input of each run held or interpolated, and delayed.

The twin's functions are wrapped so that one compiled program serves every treatment: they receive the samples at both
ends of a step, the step, and for each input whether it is interpolated.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array

from twinfold._core import call_by_name
from twinfold.data import Run
from twinfold.model import Twin
from twinfold.numerics._algebraic import AbstractImplicit
from twinfold.typing import Scalar


@dataclass(frozen=True)
class Treatment:
    """For each input, whether it is interpolated between samples, and its delay in samples."""

    linear: tuple[bool, ...]
    delays: tuple[int, ...]

    def delayed(self, w: np.ndarray) -> np.ndarray:
        """The inputs [T, m], delayed; before the first sample they are as at the first."""
        rows = [np.maximum(np.arange(len(w)) - delay, 0) for delay in self.delays]
        return np.stack([w[row, k] for k, row in enumerate(rows)], axis=1)

    def treated_run(self, run: Run) -> np.ndarray:
        """The inputs of a run as the functions of `treated_twin` expect them, [T, 3 m + 2]."""
        assert run.w is not None
        now = self.delayed(run.w)
        after = np.concatenate([now[1:], now[-1:]])
        flags = np.broadcast_to(np.array(self.linear, float), now.shape)
        step = np.append(np.diff(run.ts), run.ts[-1] - run.ts[-2])
        return np.concatenate([now, after, flags, run.ts[:, None], step[:, None]], axis=1)


def can_be_treated(twin: Twin) -> bool:
    """Whether `treated_twin` applies: the twin is integrated, without implicit equations and events."""
    return twin.trajectory is None and not isinstance(twin.algebraic, AbstractImplicit) and not twin.events


def treated_twin(twin: Twin) -> Twin:
    """The same twin with inputs from `Treatment.treated_run`."""
    parts: list[tuple[Callable[[Twin], Any], Any]] = [
        (lambda twin: twin.cell.field, _Field(twin.field)),
        (lambda twin: twin.cell.algebraic, None if twin.algebraic is None else _Algebraic(twin.algebraic)),
        (lambda twin: twin.observe, None if twin.observe is None else _Observed(twin.observe)),
    ]
    for where, part in parts:
        if part is not None:
            twin = eqx.tree_at(where, twin, part)
    cell = twin.cell
    held = type(cell)(cell.field, cell.algebraic, cell.integrator, cell.constraint, cell.projection, "hold")
    return eqx.tree_at(lambda twin: twin.cell, twin, held)


def _input_at(t: Scalar, w: Array) -> Array:
    count = (w.shape[0] - 2) // 3
    now, after, linear, (start, step) = w[:count], w[count : 2 * count], w[2 * count : 3 * count], w[3 * count :]
    return now + linear * ((t - start) / step) * (after - now)


class _Field(eqx.Module):
    inner: Callable

    def __call__(self, t: Any, x: Any, z: Any, w: Any, p: Any, level: Any) -> Any:
        return call_by_name(self.inner, "field", t=t, x=x, z=z, w=_input_at(t, w), p=p, level=level)


class _Algebraic(eqx.Module):
    inner: Callable

    def __call__(self, t: Any, x: Any, w: Any, p: Any) -> Any:
        return call_by_name(self.inner, "algebraic", t=t, x=x, w=_input_at(t, w), p=p)


class _Observed(eqx.Module):
    inner: Callable

    def __call__(self, t: Any, x: Any, z: Any, w: Any, p: Any) -> Any:
        # At a sample the input is its sample, whatever it does between them.
        return call_by_name(self.inner, "observe", t=t, x=x, z=z, w=w[: (w.shape[0] - 2) // 3], p=p)


def alternatives(linear: bool, inputs: int, delays: Sequence[int]) -> list[Treatment]:
    """Treatments to compare, the twin's own first, simple ones before others; each differs from it in one respect."""
    own, none = (linear,) * inputs, (0,) * inputs
    found = [Treatment(own, none), Treatment((not linear,) * inputs, none)]
    for k in range(inputs):
        flipped = tuple(linear != (index == k) for index in range(inputs))
        if inputs > 1:
            found.append(Treatment(flipped, none))
        for delay in delays:
            late = tuple(delay if index == k else 0 for index in range(inputs))
            found += [Treatment(own, late), Treatment(flipped, late)]
    return found
