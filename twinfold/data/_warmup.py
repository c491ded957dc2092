"""What belongs to a single run, estimated from its first samples: its initial state, and parameters of its own.

For runs that a twin was not fitted on. The estimate is the most probable one for the noise that these samples show, if
states and parameters vary as much as they do in the data: what the samples do not tell stays where it was.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from twinfold._core import Frozen
from twinfold.data._batch import Batch, output_spread
from twinfold.model import Twin, simulate_unchecked
from twinfold.model._unknown import Unknown, is_unknown
from twinfold.numerics._least_squares import least_squares
from twinfold.typing import State

DEFAULT_WARMUP = 20  # samples, for a twin that does not say
NOISE = 0.01  # of the spread of an output, where the samples are too few to tell
MIN_NOISE, MAX_NOISE = 1e-4, 1.0  # a twin is not exact
MAX_STEPS = 32
MAX_CANDIDATES = 16  # fitted initial states that are tried as a first guess


class Newcomers(eqx.Module):
    """Runs, some of which a twin was not fitted on.

    `owners`: for each of the twin's parameters with a value per run or group, the index of the value that each run of
    the batch has, or -1; `starts`: the same for the initial state; `noise` of each output, as a fraction of its
    spread; `samples` from which the others are estimated.
    """

    batch: Batch
    owners: tuple[Int[Array, " R"], ...]
    starts: Int[Array, " R"] | None  # None: initial states are not estimated
    noise: Float[Array, " k"]
    samples: int = eqx.field(static=True)

    def adapt(self, twin: Twin) -> Twin:
        """The twin with values for the runs of the batch, in their order (its names are those of before)."""
        own, of_run = own_parameters(twin), _single_run(twin)
        noise = jnp.min(self.noise)
        spread = output_spread(self.batch) * self.noise / noise  # a noisier output counts less
        guesses = self._guesses(twin)
        size = state_size(twin, self.batch, guesses)
        free_start = None if self.starts is None else self.starts < 0

        def estimate(row: Batch, guess: State, free_start: Array | None, owners: tuple[Array, ...]) -> tuple:
            base = [_value_of_run(unknown, owner) for unknown, owner in zip(own, owners, strict=True)]
            # A value that is known has no influence on the residuals: it stays.
            scales = [
                jnp.where(owner < 0, _variation(unknown), 0).astype(raw.dtype)
                for unknown, owner, raw in zip(own, owners, base, strict=True)
            ]
            scale = jnp.zeros_like(guess) if free_start is None else jnp.where(free_start, size, 0)
            first, unravel = ravel_pytree((jnp.zeros_like(guess), [jnp.zeros_like(raw) for raw in base]))

            def candidate(v: Array) -> tuple[State, list[Array]]:
                change, changes = unravel(v)
                raws = [raw + each * by for raw, each, by in zip(base, scales, changes, strict=True)]
                return guess + scale * change, raws

            def residuals(v: Array) -> Array:
                x, raws = candidate(v)
                error = _errors(of_run(raws), row, x, spread, self.samples)
                prior = noise * v / jnp.sqrt(jnp.array(error.size, v.dtype))
                return jnp.concatenate([error.reshape(-1), prior])

            found, *_ = least_squares(residuals, first, MAX_STEPS)
            x, raws = candidate(jnp.where(jnp.all(jnp.isfinite(found)), found, 0))
            return _projected(of_run(raws), row, x), raws

        states, raws = jax.vmap(estimate)(self.batch, guesses, free_start, self.owners)
        if own:
            owner = Frozen(jnp.arange(self.batch.size, dtype=jnp.int32))
            values = [unknown.with_raw(raw, owner) for unknown, raw in zip(own, raws, strict=True)]
            twin = eqx.tree_at(own_parameters, twin, values)
        return twin if self.starts is None else twin.with_starts(states, size)

    def _guesses(self, twin: Twin) -> Float[Array, "R n"]:
        """The initial states that are known, and first guesses of the others."""
        guesses = first_states(twin, self.batch, self.samples)
        unknown = twin.initial
        if self.starts is None or not isinstance(unknown, Unknown) or unknown.owner is None:
            return guesses
        known = jax.vmap(unknown.value)(jnp.maximum(self.starts, 0))
        return jnp.where(self.starts[:, None] >= 0, known, guesses)


def first_states(twin: Twin, batch: Batch, samples: int) -> Float[Array, "R n"]:
    """The first guess of the initial state of each run: as the twin says, from the first value of each output."""

    def guess(row: Batch) -> State:
        y = _first_values(row, samples)
        unknown = twin.initial if isinstance(twin.initial, Unknown) else None
        if row.x0 is not None and (unknown is not None or twin.initial is None):
            return row.x0
        if unknown is None or unknown.owner is None:
            p = twin.centred().parameters() if twin.has_own_parameters else twin.parameters()
            x = twin.initial_state(row.origin_t, y, row.origin_w, p, x0=row.x0)
            return jnp.where(jnp.isfinite(x), x, 0)
        if twin.observe is None and twin.trajectory is None:
            return y
        return _nearest_start(twin, row, samples)

    return jax.vmap(guess)(batch)


def state_size(twin: Twin, batch: Batch, guesses: Float[Array, "R n"]) -> Float[Array, " n"]:
    """By how much initial states vary: as in the fit, as the outputs where these are the states, or as the guesses."""
    if isinstance(twin.initial, Unknown) and twin.initial.size is not None:
        return twin.initial.size.value
    if twin.observe is None and twin.trajectory is None:
        return output_spread(batch)
    spread = jnp.std(guesses, axis=0)
    spread = jnp.maximum(spread, 0.1 * jnp.max(jnp.abs(guesses), axis=0))
    return jnp.where(spread > 0, spread, 1)


def _nearest_start(twin: Twin, row: Batch, samples: int) -> State:
    """Of the initial states of the fitted runs, the one from which the prediction is nearest to the first samples."""
    unknown = twin.initial
    assert isinstance(unknown, Unknown)
    assert unknown.owner is not None
    count = unknown.owner.value.shape[0]
    step = -(-count // MAX_CANDIDATES)
    states = jax.vmap(unknown.value)(jnp.arange(0, count, step))
    centred = twin.centred()
    unit = jnp.ones(row.y.shape[-1], row.y.dtype)

    def cost(x: State) -> Array:
        error = _errors(centred, row, x, unit, samples)
        return jnp.sum(jnp.where(jnp.isfinite(error), error**2, jnp.inf))

    return states[jnp.argmin(jax.vmap(cost)(states))]


def _errors(twin: Twin, row: Batch, x: State, spread: Float[Array, " k"], samples: int) -> Float[Array, "N k"]:
    """The errors of the first samples in units of the spread, divided by the root of their number; 0 where missing."""
    cut = slice(samples)
    w = None if row.w is None else row.w[cut]
    ys = simulate_unchecked(twin, x, row.ts[cut], w, twin.parameters()).valid_ys
    mask = row.mask[cut]
    count = jnp.sqrt(jnp.maximum(jnp.sum(mask), 1).astype(ys.dtype))
    return jnp.where(mask, (ys - row.y[cut]) / spread[None], 0) / count


def _first_values(row: Batch, samples: int) -> Float[Array, " k"]:
    """The first measured value of each output among the first samples; 0 where there is none."""
    first = jnp.argmax(row.mask[:samples], axis=0)
    return jnp.take_along_axis(row.y[:samples], first[None], axis=0)[0]


def own_parameters(twin: Twin) -> list[Unknown]:
    """The parameters with a value for each run or group, the initial state aside."""
    found = jax.tree.leaves((twin.cell, twin.params, twin.observe, twin.trajectory), is_leaf=is_unknown)
    return [node for node in found if isinstance(node, Unknown) and node.own]


def _single_run(twin: Twin) -> Callable[[list[Array]], Twin]:
    """A function from the raw values that a run has of these parameters to a twin of that run alone."""
    alone = eqx.tree_at(lambda twin: twin.initial, twin, None, is_leaf=lambda node: node is twin.initial)
    own = own_parameters(twin)

    def of_run(raws: list[Array]) -> Twin:
        ones = [unknown.with_raw(raw, None) for unknown, raw in zip(own, raws, strict=True)]
        return eqx.tree_at(own_parameters, alone, ones) if own else alone

    return of_run


def _projected(twin: Twin, row: Batch, x: State) -> State:
    """The state on the manifold from which a simulation that starts at x begins; x where this fails."""
    cut = slice(2)
    w = None if row.w is None else row.w[cut]
    begin = simulate_unchecked(twin, x, row.ts[cut], w, twin.parameters()).xs[0]
    return jnp.where(jnp.all(jnp.isfinite(begin)), begin, x)


def _value_of_run(unknown: Unknown, owner: Int[Array, ""]) -> Array:
    """The raw value of a run, or the median over the fitted ones where it has none."""
    if unknown.owner is None:
        return unknown.raw
    return jnp.where(owner >= 0, unknown.raw[jnp.maximum(owner, 0)], jnp.median(unknown.raw, axis=0))


def _variation(unknown: Unknown) -> Array | float:
    """The prior standard deviation of a raw value: as given, or as over the fitted runs; else 0.1, about 10 %."""
    if unknown.spread is not None or unknown.owner is None or unknown.raw.shape[0] < 2:
        return 0.1 if unknown.spread is None else unknown.spread
    return jnp.maximum(jnp.std(unknown.raw, axis=0), 1e-3)
