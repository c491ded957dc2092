"""Compiling later stages in the background, and scoring by the program that trains."""

import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold.train import prepare
from twinfold.train._ahead import Ahead
from twinfold.train._seeds import begin_stage, run_epochs, score

TIMES = np.linspace(0, 2, 21)
DECAYS = tw.Dataset.from_arrays(TIMES, np.exp(-0.7 * TIMES)[None, :, None])
STAGES = (tw.Adam(3), tw.LevenbergMarquardt(2), tw.LevenbergMarquardt(3))
QUIET: dict[str, Any] = {"progress": False}


def decay():
    return tw.Twin(lambda x, p: -p["k"] * x, params={"k": tw.Unknown(1.0, positive=True)})


def test_tasks_are_done_in_a_thread_of_their_own_in_order():
    seen, here = [], threading.current_thread()

    def note(name):
        seen.append((name, threading.current_thread() is here))

    ahead = Ahead({1: lambda: note("one"), 2: lambda: note("two")})
    ahead.wait(2)
    ahead.wait(7)  # a stage without a task
    ahead.stop()
    assert seen == [("one", False), ("two", False)]


def test_a_task_that_fails_is_left_to_whoever_needs_it():
    def fail():
        raise RuntimeError("not here")

    seen = []
    ahead = Ahead({1: fail, 2: lambda: seen.append("the next one")})
    ahead.wait(1)
    ahead.wait(2)
    ahead.stop()
    assert seen == ["the next one"]


def test_a_task_has_the_precision_of_its_parent():
    seen = []
    with jax.enable_x64(False):
        ahead = Ahead({1: lambda: seen.append(jnp.zeros(1).dtype)})
        ahead.wait(1)
    ahead.stop()
    assert seen == [jnp.float32]


def test_no_task_begins_after_the_end():
    go, seen = threading.Event(), []

    def hold():
        go.wait(10)

    ahead = Ahead({1: hold, 2: lambda: seen.append(2)})
    ahead.stop()
    go.set()
    ahead.wait(1)
    ahead.wait(2)
    assert not seen


def test_every_stage_runs_the_program_that_was_compiled_for_it():
    """One program for each stage, though a thread and the fit both ask for it."""
    compiled = []

    def note(event, duration_secs, **kwargs):
        if event.endswith("backend_compile_duration"):
            compiled.append(kwargs["fun_name"])

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        tw.fit(decay(), DECAYS, method=STAGES, **QUIET)
    finally:
        jax.monitoring.unregister_event_duration_listener(note)
    assert compiled.count("jit(_run_epochs)") == len(STAGES)


@pytest.mark.parametrize("valid", [None, DECAYS])
def test_scoring_leaves_the_parameters_alone(valid):
    (method,), (problem,), params = prepare(decay(), DECAYS, valid=valid, seeds=(0, 1), methods=STAGES[1:2])
    keys = jax.vmap(jax.random.key)(np.arange(2))
    start = begin_stage(problem, method, params, jnp.full(2, jnp.inf), jnp.array([False, True]))
    scored = score(problem, method, start, keys)
    np.testing.assert_array_equal(jax.tree.leaves(scored.params)[0], jax.tree.leaves(params)[0])
    first = jax.tree.map(lambda leaf: leaf[0], params)
    np.testing.assert_allclose(scored.best_score, [float(problem.score(first)), np.inf], rtol=1e-12)
    np.testing.assert_array_equal(scored.epoch, [0, 0])
    np.testing.assert_array_equal(scored.waited, [0, 0])
    # Training from there is the same as from a start that was never scored.
    (ours, record, taken), (theirs, other, _) = (
        run_epochs(problem, method, each, keys, jnp.array(2)) for each in (scored, start)
    )
    assert taken == 2
    np.testing.assert_array_equal(record.loss[:2], other.loss[:2])
    np.testing.assert_array_equal(jax.tree.leaves(ours.params)[0], jax.tree.leaves(theirs.params)[0])
