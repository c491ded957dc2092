"""Initial states that cannot be formed: the message names the runs, the reason and what to change."""

import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.check import examine
from twinfold.data import Dataset
from twinfold.data._rows import check_batch, initial_states
from twinfold.metrics import evaluate
from twinfold.model import Twin, Unknown
from twinfold.train import prepare

TS = np.linspace(0.0, 1.0, 5)
FORMED = "cannot be formed: the first sample has no value of 'level'. Give the columns x0"


def data(*incomplete: str, x0: bool = False) -> Dataset:
    names = ["a", "b", "c", "d", "e"]
    ys = np.stack([np.stack([np.exp(-TS), TS], axis=1)] * len(names))
    for name in incomplete:
        ys[names.index(name), 0, 0] = np.nan
    given = np.ones((len(names), 2)) if x0 else None
    return Dataset.from_arrays(TS, ys, names=names, output_names=["level", "flow"], x0=given)


def twin(**options) -> Twin:
    return Twin(lambda x, p: -p["k"] * x, params={"k": Unknown(1.0)}, **options)


FROM_LEVEL = twin(initial=lambda y: jnp.stack([y[0], y[0]]))


@pytest.mark.parametrize("use", [evaluate, prepare, lambda twin, data: prepare(twin, data, window=3)])
def test_a_missing_first_measurement_is_named(use):
    with pytest.raises(ValueError, match=f"^data: the initial state of run 'b' {FORMED} and no `initial`, or the twin"):
        use(FROM_LEVEL, data("b"))
    with pytest.raises(ValueError, match=f"^data: the initial state of runs 'b', 'd' {FORMED}, or the twin initial="):
        use(twin(), data("b", "d"))
    with pytest.raises(ValueError, match="of runs 'a', 'b', 'c' and 2 others cannot be formed"):
        use(FROM_LEVEL, data("a", "b", "c", "d", "e"))


def test_the_validation_data_are_named():
    with pytest.raises(ValueError, match=r"^valid: the initial state of run 'c' cannot be formed"):
        prepare(FROM_LEVEL, data(), valid=data("c"))


def test_the_check_says_so():
    (found,) = [each for each in examine(FROM_LEVEL, data("b")).findings if each.severity == "problem"]
    assert f"the initial state of run 'b' {FORMED}" in found.message


def test_a_complete_sample_without_a_finite_state():
    broken = twin(initial=lambda y, t: jnp.where(y[1] > -1, jnp.sqrt(-1 - y), y))
    with pytest.raises(
        ValueError, match=r"^initial: the twin's `initial` returns a non-finite state for runs 'a', 'b'"
    ):
        evaluate(broken, data())


@pytest.mark.parametrize(
    ("usable", "options"),
    [
        (twin(initial=Unknown([1.0, 0.0], per_run=True)), {}),
        (twin(), {"x0": True}),
        (twin(initial=lambda y: jnp.stack([y[1], y[1]])), {}),  # the output that is missing is not used
    ],
)
def test_a_missing_measurement_that_is_not_needed(usable, options):
    runs = data("b", "e", **options)
    usable = usable.for_runs(runs.names, runs.groups)
    xs = initial_states(usable, runs.batch(), runs)
    assert xs.shape == (5, 2)
    assert np.isfinite(xs).all()
    np.testing.assert_array_equal(check_batch(usable, runs.windows(3), runs), xs[0])


def test_the_states_of_windows_are_those_of_their_runs():
    runs = Dataset.from_arrays([TS, TS[:2], TS], [1 + TS, 2 + TS[:2], 3 + TS], names=["x", "y", "z"])
    xs = initial_states(Twin(lambda x: -x), runs.windows(2), runs)
    np.testing.assert_array_equal(xs, [[1], [2], [3]])
