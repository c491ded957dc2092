"""What a field is made of: unknown parameters and learned parts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.model._fields import BlackBox, GreyBox
from twinfold.model._learned.base import Context, Statistics, count_parameters, learned_parts
from twinfold.model._learned.mlp import MLP, Scaling
from twinfold.model._learned.network import Network, matched_width, parameter_count
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown

TS = np.linspace(0.0, 1.0, 5)
X0 = np.array([1.0, 0.5])


def decay(x):
    return -x


# --- unknown parameters ---


@pytest.mark.parametrize(
    ("unknown", "formula"),
    [
        (Unknown(1e-4), lambda raw: 1e-4 + raw),
        (Unknown(-250.0), lambda raw: -250 + 250 * raw),
        (Unknown(3.0, positive=True), lambda raw: 3 * np.exp(raw)),
        (Unknown(0.5, bounds=(-1.0, 3.0)), lambda raw: -1 + 4 / (1 + np.exp(-(np.log(0.375 / 0.625) + raw)))),
    ],
    ids=["free", "large", "positive", "bounded"],
)
def test_unknown_is_the_transform_of_its_raw_value(unknown, formula):
    np.testing.assert_allclose(unknown.value(), formula(0.0), rtol=1e-15)
    for raw in (-3.0, 0.2, 5.0):
        moved = eqx.tree_at(lambda u: u.raw, unknown, jnp.array(raw))
        np.testing.assert_allclose(moved.value(), formula(raw), rtol=1e-14)


def test_bounded_unknown_stays_inside_wherever_training_takes_it():
    unknown = Unknown([0.5, 2.9], bounds=(-1.0, 3.0))
    far = eqx.tree_at(lambda u: u.raw, unknown, jnp.array([-1e4, 1e4]))
    np.testing.assert_array_equal(far.value(), [-1.0, 3.0])
    slope = jax.grad(lambda raw: jnp.sum(eqx.tree_at(lambda u: u.raw, unknown, raw).value()))(far.raw)
    assert np.isfinite(slope).all()


def test_parameters_of_runs_beside_shared_ones():
    twin = Twin(
        lambda x, p: p["a"] * x + p["b"],
        params={"a": Unknown(2.0, positive=True), "b": Unknown([1.0, 4.0], per_run=True), "c": 3.0},
    )
    fleet = twin.for_runs(("first", "second", "third"))
    raw = jnp.array([[0.0, 0.0], [0.5, -0.25], [1.0, 1.0]])
    fleet = eqx.tree_at(lambda twin: twin.params["b"].raw, fleet, raw)
    np.testing.assert_allclose(fleet.parameters(1)["b"], [1.5, 3.0])
    np.testing.assert_allclose(fleet.parameters("second")["b"], [1.5, 3.0])
    np.testing.assert_allclose(fleet.parameters(1)["a"], 2.0)
    np.testing.assert_allclose(fleet.parameters()["b"], [1.0, 4.0])  # a run that was not fitted
    by_run = jax.vmap(lambda run: fleet.parameters(run)["b"])(jnp.arange(3))
    np.testing.assert_allclose(by_run, np.array([1.0, 4.0]) + np.array([1.0, 4.0]) * raw)
    with pytest.raises(ValueError, match="run"):
        fleet.parameters(3)
    assert count_parameters(fleet) == 1 + 6


def test_known_parameters_are_not_trained():
    twin = Twin(decay, params={"a": 1.0, "tree": {"b": [1.0, 2.0], "c": Unknown(3.0)}})
    assert count_parameters(twin) == 1
    np.testing.assert_array_equal(twin.parameters()["tree"]["b"], [1.0, 2.0])


# --- learned parts ---


def plain_network(network, u):
    """The perceptron written out in NumPy."""
    *hidden, last = network.weights.layers
    for layer in hidden:
        u = np.tanh(np.asarray(layer.weight) @ u + np.asarray(layer.bias))
    return np.asarray(last.weight) @ u + np.asarray(last.bias)


X, W, T = np.array([0.3, -1.2, 2.0]), np.array([0.7, -0.4]), 0.9


@pytest.mark.parametrize(
    ("options", "seen", "adds_to"),
    [
        ({}, [*X], [0, 1, 2]),
        ({"states": [1, 2], "adds_to": [0, 1]}, [X[1], X[2]], [0, 1]),
        ({"states": [2, 0], "adds_to": [2, 0]}, [X[2], X[0]], [2, 0]),
        ({"states": [0], "inputs": [1], "adds_to": [1]}, [X[0], W[1]], [1]),
        ({"states": [], "inputs": [1, 0], "time": True, "adds_to": [2]}, [W[1], W[0], T], [2]),
        ({"time": True, "adds_to": [1, 2]}, [*X, T], [1, 2]),
    ],
)
def test_residual_sees_and_adds_to_what_was_chosen(options, seen, adds_to):
    mlp = MLP(width=4, **options).initialise(jax.random.key(1), Context(3, 2, jnp.float64))
    expected = np.zeros(3)
    expected[adds_to] = plain_network(mlp.network, np.array(seen))
    np.testing.assert_allclose(mlp(T, jnp.asarray(X), jnp.asarray(W)), expected, rtol=1e-14, atol=1e-15)
    physics = GreyBox(lambda x, p: p["k"] * x, mlp)
    total = physics(T, jnp.asarray(X), None, jnp.asarray(W), {"k": 2.0})
    np.testing.assert_allclose(total, 2 * X + expected, rtol=1e-14)
    black = BlackBox(mlp)(T, jnp.asarray(X), None, jnp.asarray(W), {})
    np.testing.assert_allclose(black, expected, rtol=1e-14, atol=1e-15)


def statistics():
    return Statistics(
        x_mean=jnp.array([1.0, 2.0, 3.0]),
        x_std=jnp.array([0.5, 2.0, 4.0]),
        rate_std=jnp.array([10.0, 20.0, 30.0]),
        w_mean=jnp.array([-1.0, 1.0]),
        w_std=jnp.array([3.0, 5.0]),
        t_mean=jnp.array(0.5),
        t_std=jnp.array(0.25),
    )


def test_scaling_lives_inside_the_model():
    mlp = MLP(states=[0, 2], inputs=[1], time=True, adds_to=[2, 1], scaling="data")
    mlp = mlp.initialise(jax.random.key(2), Context(3, 2, jnp.float64, statistics()))
    seen = np.array([(X[0] - 1) / 0.5, (X[2] - 3) / 4, (W[1] - 1) / 5, (T - 0.5) / 0.25])
    out = plain_network(mlp.network, seen)
    expected = np.array([0.0, 20 * out[1], 30 * out[0]])
    np.testing.assert_allclose(mlp(T, jnp.asarray(X), jnp.asarray(W)), expected, rtol=1e-14)
    given = MLP(states=[0], adds_to=[1], scaling=Scaling(jnp.array([1.0]), jnp.array([2.0]), jnp.array([3.0])))
    given = given.initialise(jax.random.key(2), Context(3, 0, jnp.float64))
    expected = np.array([0.0, 3 * plain_network(given.network, (X[:1] - 1) / 2)[0], 0.0])
    np.testing.assert_allclose(given(T, jnp.asarray(X)), expected, rtol=1e-14)


@pytest.mark.parametrize("scaling", ["data", Scaling(jnp.zeros(3), jnp.ones(3), jnp.ones(3))], ids=["data", "given"])
def test_scaling_is_not_trained(scaling):
    given = Scaling(jnp.zeros(3), jnp.ones(3), jnp.ones(3))
    mlp = MLP(width=4, depth=2, scaling="data" if scaling == "data" else given)
    mlp = mlp.initialise(jax.random.key(0), Context(3, 0, jnp.float64, statistics()))
    assert count_parameters(mlp) == parameter_count(3, 3, 4, 2)


def test_untrained_twin_with_a_zero_last_layer_is_the_pure_physics():
    x0, ts = np.array([1.0, 0.5]), np.linspace(0, 1, 6)
    for scaling in ("off", Scaling(jnp.ones(2), jnp.ones(2), jnp.ones(2))):
        residual = MLP(zero_last=True, scaling=scaling)
        twin = Twin(GreyBox(decay, residual)).initialise(jax.random.key(0), states=2)
        np.testing.assert_array_equal(twin.simulate(x0, ts).xs, Twin(decay).simulate(x0, ts).xs)
    other = Twin(GreyBox(decay, MLP())).initialise(jax.random.key(0), states=2)
    assert np.abs(other.simulate(x0, ts).xs - Twin(decay).simulate(x0, ts).xs).max() > 1e-3


def test_learned_parts_anywhere_are_initialised_each_with_its_own_weights():
    """One in the observation, one in the algebraic variables, each inside a user's own module."""

    class Own(eqx.Module):
        net: Network

        def __call__(self, x):
            return self.net(x)

    def networks(key):
        plain = Twin(lambda x, z: -x + z, algebraic=Own(zeros), observe=Own(Network(2, 2)))
        twin = plain.initialise(jax.random.key(key), states=2)
        return twin, [part for part in learned_parts(twin) if isinstance(part, Network)]

    zeros = Network(2, 2, zero_last=True)
    twin, (first, second) = networks(3)
    observe, algebraic = (second, first) if first.zero_last else (first, second)
    weights = [net.weights.layers[0].weight for net in (observe, algebraic, *networks(4)[1]) if net.weights]
    for i in range(4):
        for j in range(i):
            assert np.abs(weights[i] - weights[j]).max() > 1e-2
    simulation = twin.simulate(X0, TS)
    np.testing.assert_allclose(simulation.ys[3], plain_network(observe, simulation.xs[3]), rtol=1e-13)
    np.testing.assert_array_equal(simulation.zs, np.zeros((5, 2)))


def test_weights_follow_the_dtype():
    mlp = MLP().initialise(jax.random.key(0), Context(2, 0, jnp.float32))
    assert mlp(0.0, jnp.ones(2, jnp.float32)).dtype == jnp.float32


@pytest.mark.parametrize(("in_size", "out_size", "depth"), [(4, 4, 2), (1, 1, 2), (3, 2, 1), (4, 2, 3)])
def test_parameter_counts_can_be_matched(in_size, out_size, depth):
    network = Network(in_size, out_size, 32, depth).initialise(jax.random.key(0), Context(1, 0, jnp.float64))
    count = count_parameters(network)
    assert parameter_count(in_size, out_size, 32, depth) == count
    width = matched_width(count, in_size + 1, out_size, depth)
    counts = [abs(parameter_count(in_size + 1, out_size, w, depth) - count) for w in range(1, 80)]
    assert width == 1 + int(np.argmin(counts))
