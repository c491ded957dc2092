"""Weights of the loss enter as numbers, not as constants of the program: other weights compile nothing."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw

TIMES = np.linspace(0, 1, 6)
DATA = tw.Dataset.from_arrays(TIMES, [np.exp(-TIMES)])


def test_another_weight_traces_nothing_again():
    traced = []

    def rate(x):
        traced.append(x)
        return -0.5 * x

    twin = tw.Twin(tw.GreyBox(rate, tw.MLP(states=[0], adds_to=[0], width=2, depth=1)))

    def traces(l2: float) -> int:
        before = len(traced)
        tw.fit(twin, DATA, method=tw.LevenbergMarquardt(1), loss=tw.Loss(l2=l2), progress=False)
        return len(traced) - before

    first, same, other, none = (traces(l2) for l2 in (1e-3, 1e-3, 1e-2, 0.0))
    assert same == other < first  # the checks before a fit call the function too
    assert none > other  # without the term it is another program


@pytest.mark.parametrize("traced", [False, True])
def test_the_weights_have_their_values(traced):
    """L = data + l2 |theta|^2 + prior (raw / spread)^2."""
    k = tw.Unknown(1.0, positive=True, spread=0.5)
    twin = tw.Twin(tw.GreyBox(lambda x, p: -p["k"] * x, tw.MLP(states=[0], adds_to=[0], width=2)), params={"k": k})

    def loss_at(**weights: Any) -> tuple[float, float, float]:
        _, (problem,), params = tw.train.prepare(
            twin, DATA, loss=tw.Loss(**weights), methods=(tw.LevenbergMarquardt(1),)
        )
        # Away from the first guess, where the prior is zero.
        one = jax.tree.map(lambda leaf: leaf[0] + 0.3, params)
        raw = problem.estimate(one).twin.unknowns()[0].raw
        value = eqx.filter_jit(problem.training_loss)(one) if traced else problem.training_loss(one)
        weights_squared = sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(one)) - float(jnp.sum(raw**2))
        return float(value), weights_squared, float(jnp.sum(raw**2))

    plain, theta, raw = loss_at()
    assert raw > 0
    assert loss_at(l2=0.2)[0] - plain == pytest.approx(0.2 * theta, rel=1e-4)
    assert loss_at(prior=0.2)[0] - plain == pytest.approx(0.2 * raw / 0.5**2, rel=1e-4)
