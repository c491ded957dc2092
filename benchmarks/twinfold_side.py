"""twinfold as a user gets it: a twin, rolled out, without and with the robust projection; and many seeds at once."""

import time

import jax
import jax.numpy as jnp

from benchmarks.jax_step import training_task, with_weights
from benchmarks.work import DT, RATE, SEEDS, STATES, STEPS, WIDTH, Task, Work
from twinfold.data._dataset import Dataset
from twinfold.model._learned.mlp import MLP
from twinfold.model._recipes import node, pnode
from twinfold.model._twin import Twin
from twinfold.numerics._rollout import rollout
from twinfold.systems._two_body import two_body
from twinfold.train._gradient import Adam
from twinfold.train._prepare import prepare
from twinfold.train._seeds import begin_stage, run_epochs


def plain(work: Work) -> Task:
    """A NODE: nothing is projected."""
    return _training(node(MLP(width=WIDTH, depth=2, scaling="off", outside="free")), work)


def robust(work: Work) -> Task:
    """The same network, each step projected to the orbit's angular momentum: a PNODE."""
    return _training(pnode(MLP(width=WIDTH, depth=2, scaling="off", outside="free"), two_body().constraint), work)


def _training(twin: Twin, work: Work) -> Task:
    twin = with_weights(twin.initialise(jax.random.key(0), states=STATES, dtype=work.x0.dtype), work)
    x0, ts = jnp.asarray(work.x0), jnp.asarray(work.ts)

    def trajectories(twin: Twin) -> tuple[jax.Array, jax.Array]:
        out = jax.vmap(lambda x: rollout(twin.cell, x, ts, throw=False))(x0)
        return out.xs[:, 1:], out.steps[:, 1:]

    steps = jax.jit(lambda: trajectories(twin)[1])()
    notes = f"{float(jnp.mean(steps)):.1f} iterations, at most {int(jnp.max(steps))}"
    projected = bool(jnp.max(steps) > 0)
    return training_task(twin, lambda twin: trajectories(twin)[0], work, notes if projected else "")


def one_seed(work: Work) -> Task:
    """One epoch of `fit` with Adam, one seed."""
    return _epoch(work, 1)


def many_seeds(work: Work) -> Task:
    """The same for all seeds, in one compiled program."""
    return _epoch(work, SEEDS)


def _epoch(work: Work, seeds: int) -> Task:
    twin = node(MLP(width=WIDTH, depth=2, scaling="off", outside="free"))
    ys = jnp.concatenate([jnp.asarray(work.x0)[:, None], jnp.asarray(work.target)], axis=1)
    data = Dataset.from_arrays(DT * jnp.arange(STEPS + 1), ys)
    method = Adam(learning_rate=RATE, plateau=None)
    names = tuple(range(seeds))
    _, (problem,), params = prepare(twin, data, seeds=names, methods=(method,))
    unscored = jnp.full(seeds, jnp.inf, problem.batch.y.dtype)
    state = begin_stage(problem, method, params, unscored, jnp.zeros(seeds, bool))
    keys, one = jax.vmap(jax.random.key)(jnp.array(names)), jnp.array(1)
    began = time.perf_counter()
    _, record, _ = jax.block_until_ready(run_epochs(problem, method, state, keys, one))
    seconds = time.perf_counter() - began  # with one epoch in turn, which is not worth telling apart
    assert problem.batch.y.dtype == work.x0.dtype

    def step() -> object:
        return jax.block_until_ready(run_epochs(problem, method, state, keys, one))

    return Task(step, seconds, float(record.loss[0, 0]), None, "and the scores before and after it")
