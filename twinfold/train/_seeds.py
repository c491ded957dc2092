"""Many seeds in parallel: one compiled program advances all of them by a number of epochs.

A seed that is finished, or that became non-finite, is frozen while the others continue.
"""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from twinfold._core import quick_jit, tree_where
from twinfold.numerics._iterate import iterate
from twinfold.train._method import AbstractMethod
from twinfold.train._problem import Evaluation, TrainingProblem, network_weights
from twinfold.typing import Flag

MANY = 8  # seeds, from which on their program takes two thirds of the time when it is compiled for longer
CHUNK = 64  # epochs at most in one call of the compiled program; progress, checkpoints and Ctrl-C wait for its end


class Seed(eqx.Module):
    """Where one seed stands in a stage (stacked along a leading axis for all of them)."""

    params: PyTree
    drawn: list[Array]
    method: Any
    best: PyTree
    best_score: Float[Array, "..."]
    waited: Int[Array, "..."]
    epoch: Int[Array, "..."]
    finished: Bool[Array, "..."]
    failed: Bool[Array, "..."]


class Record(eqx.Module):
    """One line of the training history."""

    loss: Float[Array, "..."]
    score: Float[Array, "..."]
    rate: Float[Array, "..."]
    failed_runs: Int[Array, "..."]


@quick_jit
def begin_stage(
    problem: TrainingProblem,
    method: AbstractMethod,
    params: PyTree,
    best_score: Float[Array, " S"],
    failed: Bool[Array, " S"],
    drawn: list[Array] | None = None,
) -> Seed:
    """All seeds at the start of a stage; `drawn`, the network weights that the fit began with, if not these."""

    def one(params: PyTree, best_score: Float[Array, ""], failed: Bool[Array, ""], drawn: list[Array] | None) -> Seed:
        zero, state = jnp.array(0), method.init(problem, params)
        first = network_weights(problem.estimate(params).twin) if drawn is None else drawn
        return Seed(params, first, state, params, best_score, zero, zero, jnp.array(False), failed)

    # Without weak types, so that the first chunk compiles the program that all others run.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), jax.vmap(one)(params, best_score, failed, drawn))


def run_epochs(
    problem: TrainingProblem, method: AbstractMethod, seeds: Seed, keys: Key[Array, " S"], epochs: Int[Array, ""]
) -> tuple[Seed, Record, Int[Array, ""]]:
    """Advance all seeds by `epochs` (a traced number, so that any chunk runs the same compiled program).

    It ends with the last seed: how many epochs there were does not depend on the size of the chunks. With none to run,
    the parameters are scored: a program of its own for that would take long to compile.

    **Returns:** the seeds, the records of up to `CHUNK` epochs, and their number.
    """
    run = _run_many if keys.shape[0] >= MANY else _run_few
    return run(problem, method, seeds, keys, epochs)


def _run_epochs(
    problem: TrainingProblem, method: AbstractMethod, seeds: Seed, keys: Key[Array, " S"], epochs: Int[Array, ""]
) -> tuple[Seed, Record, Int[Array, ""]]:
    # With weights that are estimated, the loss is another one at every estimate: only what comes last is its minimum.
    latest = problem.valid is None and bool(problem.estimated)

    def one_epoch(seed: Seed, key: PRNGKeyArray, before: Evaluation, trains: Flag) -> tuple[Seed, Evaluation, Record]:
        own, order = replace(problem, drawn=seed.drawn), jax.random.fold_in(key, seed.epoch)
        params, state, report, after = method.epoch(own, seed.params, seed.method, order, trains, before)
        score, one = after.score, jnp.where(trains, 1, 0)
        leaves = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]
        finite = jnp.all(jnp.stack(leaves)) & (jnp.isfinite(report.loss) | ~trains)
        better = finite if latest else finite & (score < seed.best_score)
        waited = jnp.where(better, 0, seed.waited + one)
        finished = report.finished
        if method.patience is not None:
            finished = finished | (waited >= method.patience)
        moved = Seed(
            params=params,
            drawn=seed.drawn,
            method=state,
            best=tree_where(better, params, seed.best),
            best_score=jnp.where(better, score, seed.best_score),
            waited=waited,
            epoch=seed.epoch + one,
            finished=finished,
            failed=jnp.array(False),
        )
        lost = eqx.tree_at(lambda seed: seed.failed, seed, jnp.array(True))
        active = ~(seed.finished | seed.failed)
        record = Record(report.loss, score, report.rate, report.failed)
        return tree_where(active, tree_where(finite, moved, lost), seed), after, record

    # As a function of its own, this is traced once, for its shapes and for the loop.
    advance = jax.jit(jax.vmap(one_epoch, in_axes=(0, 0, 0, None)))
    evaluation = jax.vmap(lambda seed: method.unevaluated(replace(problem, drawn=seed.drawn), seed.params))(seeds)
    shape = jax.eval_shape(advance, seeds, keys, evaluation, epochs > 0)[2]
    history = jax.tree.map(lambda leaf: jnp.zeros((CHUNK, *leaf.shape), leaf.dtype), shape)

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        seeds, _, _, done = carry
        return (done < epochs) & ~jnp.all(seeds.finished | seeds.failed)

    def epoch(carry: tuple) -> tuple:
        seeds, evaluation, history, done = carry
        seeds, evaluation, record = advance(seeds, keys, evaluation, done >= 0)
        row = jnp.where(done >= 0, done, CHUNK)  # which there is none
        history = jax.tree.map(lambda all, new: all.at[row].set(new, mode="drop"), history, record)
        return seeds, evaluation, history, done + 1

    # The first time round, all seeds are evaluated where they are.
    seeds, _, history, done = iterate((seeds, evaluation, history, jnp.full_like(epochs, -1)), epoch, unfinished)
    return seeds, history, jnp.maximum(done, 0)


_run_few, _run_many = quick_jit(_run_epochs), eqx.filter_jit(_run_epochs)


def score(problem: TrainingProblem, method: AbstractMethod, seeds: Seed, keys: Key[Array, " S"]) -> Seed:
    """The seeds at the start of a stage with the scores of their parameters, where they are better than the best."""
    return run_epochs(problem, method, seeds, keys, jnp.array(0))[0]


def compile_stage(problem: TrainingProblem, method: AbstractMethod, seeds: Seed, keys: Key[Array, " S"]) -> None:
    """Compile all that a stage runs, the parameters being of the kind of those in `seeds`."""
    none_goes_on = jnp.ones_like(seeds.failed)
    score(problem, method, begin_stage(problem, method, seeds.params, seeds.best_score, none_goes_on), keys)
