"""Long horizons: the gradient of a rollout that keeps every sqrt(T)-th state and computes the others again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from support.cases import spring_energy
from support.jacobians import QUICK

from twinfold.data._dataset import Dataset
from twinfold.model._constraint.base import Conserved
from twinfold.model._fields import GreyBox
from twinfold.model._learned.mlp import MLP
from twinfold.model._twin import Twin
from twinfold.numerics._cell import Cell
from twinfold.numerics._integrate.explicit import Euler
from twinfold.numerics._project.tangent import Tangent
from twinfold.numerics._rollout import rollout
from twinfold.train._fit import fit
from twinfold.train._gradient import Adam


def spring(x, w):
    return jnp.concatenate([x[2:], -(1 + w[0]) * (x[:2] @ x[:2]) * x[:2]])


TWIN = Twin(
    GreyBox(spring, MLP(states=[0, 1], adds_to=[2, 3], width=8, depth=1)),
    constraint=Conserved(spring_energy),
    projection=Tangent(),
).initialise(jax.random.key(0), states=4, inputs=1)
WEIGHTS, REST = eqx.partition(TWIN, eqx.is_inexact_array)
THETA, BACK = ravel_pytree((WEIGHTS, jnp.array([0.7, -0.4, 0.3, 0.6])))


def loss_of(length, remat):
    """A loss that looks at every sample; the length is no square, and the last part not full."""
    ts = 0.02 * jnp.arange(length)
    w = 0.1 * jnp.sin(ts)[:, None]

    def loss(theta):
        weights, x0 = BACK(theta)
        out = rollout(eqx.combine(weights, REST).cell, x0, ts, w, remat=remat, throw=False)
        return jnp.sum((out.xs - jnp.sin(ts)[:, None]) ** 2) / length, out

    return loss


@pytest.mark.parametrize("length", [pytest.param(1, marks=pytest.mark.slow), 30])
def test_trajectory_and_gradients_are_the_same(length):
    """Every number of the trajectory to the last bit; the gradient, forward and in reverse, to rounding."""

    def of(remat):
        loss = loss_of(length, remat)
        value, gradient = jax.value_and_grad(loss, has_aux=True)(THETA)
        return value, gradient, jax.jvp(lambda theta: loss(theta)[0], (THETA,), (jnp.cos(jnp.arange(THETA.size)),))[1]

    both = jax.jit(lambda: (of(False), of(True)), compiler_options=QUICK)
    (plain, gradient, slope), (again, same_gradient, same_slope) = both()
    for mine, other in zip(jax.tree.leaves(again[1]), jax.tree.leaves(plain[1]), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(same_gradient, gradient, rtol=0, atol=1e-14 * np.abs(gradient).max())
    np.testing.assert_allclose(same_slope, slope, rtol=1e-13)
    np.testing.assert_allclose(gradient @ jnp.cos(jnp.arange(THETA.size)), slope, rtol=1e-12)


@pytest.mark.slow
def test_memory_grows_as_the_square_root():
    """Sixteen times the horizon: sixteen times the memory of a plain gradient, about four times this one's."""
    twin = Twin(GreyBox(lambda x: -x, MLP(width=64, depth=1))).initialise(jax.random.key(0), states=4)
    weights, rest = eqx.partition(twin, eqx.is_inexact_array)

    def bytes_of(length, remat):
        def last(weights, ts):
            cell = eqx.combine(weights, rest).cell
            return jnp.sum(rollout(cell, jnp.ones(4), ts, remat=remat, throw=False).xs[-1])

        compiled = jax.jit(jax.grad(last), compiler_options=QUICK).lower(weights, jnp.zeros(length)).compile()
        return getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0)

    assert 14 <= bytes_of(1024, False) / bytes_of(64, False) <= 17
    # The trajectory itself is there too.
    assert bytes_of(1024, True) / bytes_of(64, True) <= 6


def test_a_diverging_trajectory_is_contained():
    """Held at its last finite state, its neighbour's gradient that of a plain rollout."""
    cell = Cell(lambda x, p: p["a"] * x**2, integrator=Euler())
    ts = jnp.linspace(0.0, 4.0, 41)

    def loss(a, remat):
        run = jax.vmap(lambda x0: rollout(cell, x0, ts, p={"a": a}, remat=remat, throw=False))
        out = run(jnp.array([[0.1], [60.0]]))
        return jnp.sum(jnp.where(out.failed[:, None, None], 0, out.xs**2)), out

    of = [jax.value_and_grad(lambda a, remat=remat: loss(a, remat), has_aux=True) for remat in (False, True)]
    ((_, plain), gradient), ((_, again), same) = jax.jit(lambda a: [one(a) for one in of], compiler_options=QUICK)(0.7)
    np.testing.assert_array_equal(plain.failed, [False, True])
    np.testing.assert_array_equal(again.failed, [False, True])
    np.testing.assert_array_equal(again.xs, plain.xs)
    np.testing.assert_allclose(same, gradient, rtol=1e-13)


@pytest.mark.slow
def test_fit_takes_the_same_steps():
    ts = 0.1 * np.arange(20)
    ys = np.stack([np.cos(ts), -np.sin(ts)], axis=1)
    data = Dataset.from_arrays(ts, ys[None])
    twin = Twin(GreyBox(lambda x: jnp.stack([x[1], -0.9 * x[0]]), MLP(adds_to=[1], width=4, depth=1)))
    found = [
        fit(twin, data, method=Adam(5, learning_rate=1e-2), remat=remat, progress=False) for remat in (False, True)
    ]
    np.testing.assert_allclose(found[1].history["loss"], found[0].history["loss"], rtol=1e-12)
    assert found[0].history["loss"][-1] < found[0].history["loss"][0]
