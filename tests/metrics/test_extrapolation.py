"""The share of an error that comes from samples outside of what a learned part was trained on."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw
from twinfold._core import Frozen
from twinfold.metrics import extrapolation_share
from twinfold.model import Region

TS = np.arange(11.0)


def known_twin(low=-1.0, high=4.5, **options: Any) -> tw.Twin:
    """x' = 1, with a learned part that says nothing and was trained from `low` to `high`."""
    part = tw.MLP(states=[0], adds_to=[0], width=2, depth=1, zero_last=True, **options)
    twin = tw.Twin(tw.GreyBox(lambda x: jnp.ones_like(x), part)).initialise(jax.random.key(0), states=1, inputs=1)
    count = 1 + len(part.inputs) + part.time
    region = Region(jnp.full(count, low), jnp.full(count, high), jnp.ones(count))
    return eqx.tree_at(
        lambda twin: twin.cell.field.residual.region, twin, Frozen(region), is_leaf=lambda node: node is None
    )


def data_with(errors, names=("a",), **options):
    return tw.Dataset.from_arrays(
        TS, [np.asarray(TS + error)[:, None] for error in errors], names=names, x0=[[0.0]] * len(errors), **options
    )


def test_the_share_is_that_of_the_squares():
    """x = t is outside from t = 5 on: 6 of 11 samples. An error of 1 inside and of 2 outside."""
    error = np.where(TS >= 5, 2.0, 1.0)
    share = extrapolation_share(tw.predict(known_twin(), data_with([error])))
    assert share.samples == pytest.approx(6 / 11)
    assert share.error == pytest.approx(24 / 29)
    assert share.dominates
    assert share.runs == ("a",)
    sentence = share.sentence("the test runs")
    assert "The error of the test runs is mostly extrapolation: 83% of its square comes from the 55% of the" in sentence
    assert "(run 'a')" in sentence


def test_an_error_inside_is_not_blamed_on_the_outside():
    share = extrapolation_share(tw.predict(known_twin(), data_with([np.where(TS >= 5, 0.1, 1.0)])))
    assert share.samples > 0.5
    assert not share.dominates
    same = extrapolation_share(tw.predict(known_twin(high=100.0), data_with([np.where(TS >= 5, 2.0, 1.0)])))
    assert (same.error, same.samples, same.runs) == (0.0, 0.0, ())
    # Most samples are outside, with most of the error, but with less of it than their number explains.
    even = extrapolation_share(tw.predict(known_twin(high=1.5), data_with([np.where(TS >= 2, 1.0, 1.4)])))
    assert even.error > 0.5
    assert not even.dominates


def test_runs_are_named_by_their_part_of_the_error():
    errors = [0.1 * (TS >= 5), 0 * TS, 3.0 * (TS >= 5)]
    data = data_with(errors, names=("small", "short", "large"))
    short = dataclasses.replace(data.runs[1], ts=TS[:4], y=data.runs[1].y[:4])
    data = dataclasses.replace(data, runs=(data.runs[0], short, data.runs[2]))
    predictions = tw.predict(known_twin(), data)
    assert not predictions.extrapolated[0, 1].any()  # nor in its padding
    assert extrapolation_share(predictions).runs == ("large", "small")
    assert extrapolation_share(predictions.select(slice(0, 2))).runs == ("small",)
    assert extrapolation_share(predictions.until(4.0)).samples == 0.0


def test_inputs_and_time_count_and_missing_values_do_not():
    error = np.where(TS == 7, np.nan, 1.0 * (TS == 6))
    data = data_with([error], inputs=[np.where(TS == 6, 50.0, 0.0)], input_names=["u"])
    twin = known_twin(low=-1.0, high=20.0, inputs=[0])
    np.testing.assert_array_equal(np.flatnonzero(tw.predict(twin, data).extrapolated[0, 0]), [6])
    share = extrapolation_share(tw.predict(twin, data))
    assert share.error == pytest.approx(1.0)
    assert share.samples == pytest.approx(1 / 10)
    late = tw.predict(known_twin(high=8.5, time=True), data_with([0 * TS]))
    np.testing.assert_array_equal(np.flatnonzero(late.extrapolated[0, 0]), [9, 10])


def test_outputs_count_in_units_of_their_spread():
    """The second output is a thousand times larger, and wrong inside only."""
    y = np.stack([TS + 2.0 * (TS >= 5), 1000 * TS + 100.0 * (TS < 5)], axis=1)
    twin = eqx.tree_at(
        lambda twin: twin.observe, known_twin(), lambda x: jnp.stack([x[0], 1000 * x[0]]), is_leaf=lambda n: n is None
    )
    share = extrapolation_share(tw.predict(twin, tw.Dataset.from_arrays(TS, [y], x0=[[0.0]])))
    wrong = (2.0 / y[:, 0].std()) ** 2 * 6, (100.0 / y[:, 1].std()) ** 2 * 5
    assert share.error == pytest.approx(wrong[0] / sum(wrong))


def test_an_error_that_diverges_does_not_overflow():
    predictions = tw.predict(known_twin(), data_with([np.where(TS >= 5, 1.0, 0.5)]))
    huge = predictions.predicted.copy()
    huge[0, 0, 8:, 0] = [1e200, 1e250, np.inf]
    share = extrapolation_share(dataclasses.replace(predictions, predicted=huge))
    assert share.error == pytest.approx(1.0)
    assert share.samples == pytest.approx(5 / 10)  # what is not finite has no share


def test_a_twin_with_nothing_learned_never_extrapolates():
    data = data_with([TS])
    assert not tw.predict(tw.Twin(lambda x: jnp.ones_like(x)), data).extrapolated.any()
