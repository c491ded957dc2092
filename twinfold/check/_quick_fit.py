"""A quick fit of the unknown parameters and of the last layers of the networks, to see what the data prefer.

A few Levenberg-Marquardt steps from the first guess, with the prior of `_sensitivity`. It is no substitute for a fit,
but enough to compare variants of a twin or of its inputs, all fitted in the same way.
"""

import functools
from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from twinfold._core import quick_jit, tree_take
from twinfold.check._sensitivity import (
    WINDOW,
    Column,
    describe_columns,
    estimation_problem,
    relative_noise,
    residuals_and_jacobian,
)
from twinfold.check._subject import Subject, spaced_indices
from twinfold.data import Batch, Dataset, Run
from twinfold.data._rows import known_batch
from twinfold.model import Twin
from twinfold.train import TrainingProblem

PRIOR = 3.0  # standard deviation of a raw parameter (of its logarithm, where it is positive)
MAX_SAMPLES = 2000  # of all runs
MIN_LENGTH = 80  # samples of a run
STEPS = 20
MIN_EXPLAINED = 0.01  # of the variance of an output, below which the physics says nothing about it
FIRST_DAMPING, DAMPING_FACTOR = 1e-2, 10.0


@dataclass(frozen=True, eq=False)
class QuickFit:
    """The parameters `v` and the errors [B, T, k] of the outputs in units of their spread, NaN where not measured."""

    v: np.ndarray
    errors: np.ndarray
    cost: float


@dataclass(frozen=True, eq=False)
class QuickProblem:
    """A `TrainingProblem`, its trained arrays at the first guess, their columns, and the noise [k] of the outputs."""

    problem: TrainingProblem
    guess: object
    columns: tuple[Column, ...]
    noise: np.ndarray

    @staticmethod
    def of(subject: Subject, twin: Twin, batch: Batch) -> "QuickProblem":
        """What is to be estimated in `twin`, from this batch of the data of `subject`."""
        problem, params = estimation_problem(subject, twin, batch)
        return QuickProblem(problem, params, describe_columns(subject), relative_noise(subject))

    def with_inputs(self, w: np.ndarray) -> "QuickProblem":
        """The same with other inputs [B, T, d]."""
        inputs = jax.device_put(w.astype(self.problem.batch.y.dtype))
        problem = eqx.tree_at(lambda problem: problem.batch.w, self.problem, inputs)
        return QuickProblem(problem, self.guess, self.columns, self.noise)

    @np.errstate(over="ignore", invalid="ignore")  # a trial that diverges is rejected
    def fit(self, start: np.ndarray | None, steps: int) -> QuickFit:
        """At most `steps` Levenberg-Marquardt steps from `start`, or from the first guess."""
        precision = np.array([1 / column.size if column.part else 1 / PRIOR for column in self.columns]) ** 2
        v = np.zeros(len(self.columns)) if start is None else start
        r, j = self._evaluate(v)
        cost = _cost(r, v, precision)
        damping = FIRST_DAMPING
        for _ in range(steps if len(v) else 0):
            normal = j.T @ j
            normal = normal + np.diag(precision + damping * np.diag(normal) + 1e-12)
            trial = v - np.linalg.solve(normal, j.T @ r + precision * v)
            r_trial, j_trial = self._evaluate(trial)
            better = _cost(r_trial, trial, precision)
            if better < cost:
                v, r, j, cost, damping = trial, r_trial, j_trial, better, damping / DAMPING_FACTOR
            else:
                damping *= DAMPING_FACTOR
        batch = self.problem.batch
        errors = r.reshape(batch.y.shape) * self.noise
        return QuickFit(v, np.where(np.asarray(batch.mask), errors, np.nan), cost)

    def _evaluate(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The errors of all outputs in units of their noise, and their derivatives in v."""
        batch = self.problem.batch
        if not len(v):
            found = _residuals(self.problem, self.guess), np.zeros((batch.y.size, 0))
        else:
            found = _at(self.problem, self.guess, jax.device_put(v.astype(batch.y.dtype)))
        r, j = (np.asarray(part, np.float64)[: batch.y.size] for part in found)
        unit = np.sqrt(int(np.asarray(batch.mask).sum())) / np.tile(self.noise, len(r) // len(self.noise))
        return r * unit, np.nan_to_num(j * unit[:, None])


@quick_jit
def _at(problem: TrainingProblem, guess: object, v: Float[Array, " P"]) -> tuple[Array, Array]:
    first, unravel = ravel_pytree(guess)
    return residuals_and_jacobian(problem, unravel(first + v))


@quick_jit
def _residuals(problem: TrainingProblem, guess: object) -> Array:
    return problem.residuals(problem.estimate(guess), problem.batch, problem.windows)[0]


def _cost(r: np.ndarray, v: np.ndarray, precision: np.ndarray) -> float:
    cost = float(r @ r + precision @ v**2)
    return cost if np.isfinite(cost) else np.inf


def shorten(data: Dataset, length: int | None = None) -> Dataset:
    """Return the same runs cut to the same `length`; by default, to about `MAX_SAMPLES` samples in all."""
    length = max(MAX_SAMPLES // len(data), MIN_LENGTH) if length is None else length
    cut = [
        Run(run.name, run.ts[:length], run.y[:length], None if run.w is None else run.w[:length], run.x0, run.group)
        for run in data.runs
        if np.isfinite(run.y[:length]).any()
    ]
    return Dataset(tuple(cut), data.output_names, data.input_names)


def select_batch(subject: Subject, data: Dataset, *, changed: bool = False) -> Batch:
    """Return windows from measured states, or whole runs if these are not measured.

    **Arguments:** `changed`: the inputs are not those of the subject, so that its runs would not be recognised.
    """
    complete = all(np.isfinite(run.y).all() for run in data.runs)
    if not (subject.states_are_outputs and complete):
        return data.batch() if changed else known_batch(subject.with_runs, data)
    batch = data.windows(min(WINDOW, max(len(run.ts) for run in data.runs)))
    return tree_take(batch, spaced_indices(batch.size, MAX_SAMPLES // WINDOW))


def explained_at_guess(subject: Subject) -> dict[str, float]:
    """Return 1 - (mean squared error / variance) of each output of the physics; 0 if it is worse than the mean."""
    mask, y, ys = np.asarray(subject.batch.mask), np.asarray(subject.batch.y), subject.simulated[1]
    error = np.sqrt(np.nanmean(np.where(mask, ys - y, np.nan) ** 2, axis=(0, 1)))
    share = np.maximum(1 - (error / subject.spread) ** 2, 0.0)
    return dict(zip(subject.data.output_names, share.tolist(), strict=True))


@functools.lru_cache(maxsize=1)  # several checks ask
def explained_after_fit(subject: Subject) -> dict[str, float]:
    """Return the share of the variance of each output that the quickly fitted twin explains.

    Along windows, of the change since their start: over a long run, good physics of an oscillation gets out of phase.
    """
    batch = select_batch(subject, shorten(subject.data))
    problem = QuickProblem.of(subject, subject.physics, batch)
    found = problem.fit(None, STEPS)
    if batch.size == len(subject.data):
        # A frequency that is off by a tenth has no chance over many periods, and a good one over the first of them.
        begun = QuickProblem.of(subject, subject.physics, select_batch(subject, shorten(subject.data, WINDOW)))
        found = min(found, problem.fit(begun.fit(None, STEPS).v, STEPS), key=lambda fit: fit.cost)
    errors = found.errors
    changes = np.where(np.asarray(batch.mask), np.asarray(batch.y), np.nan) / subject.spread
    # Whole runs are compared with their mean, windows with their first sample.
    origin = changes[:, :1] if batch.size > len(subject.data) else np.nanmean(changes, axis=(0, 1))
    variance = np.nanmean((changes - origin) ** 2, axis=(0, 1))
    share = np.nan_to_num(np.maximum(1 - np.nanmean(errors**2, axis=(0, 1)) / np.maximum(variance, 1e-12), 0.0))
    return dict(zip(subject.data.output_names, share.tolist(), strict=True))


def explains_nothing(subject: Subject) -> bool:
    """Return whether the physics says nothing about any output, neither at its first guess nor quickly fitted."""
    return all(
        share < MIN_EXPLAINED
        for explained in (explained_at_guess, explained_after_fit)  # the second takes time
        for share in explained(subject).values()
    )
