"""What a twin is made of: bad input, unknown parameters, learned parts, and the rules every class obeys."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold
from twinfold.constraint.base import Conserved, Constraint, Stack, Unconstrained
from twinfold.field.boxes import BlackBox, GreyBox
from twinfold.field.learned import Context, Statistics, count_parameters, learned_parts, trainable
from twinfold.field.network import Network, matched_width, parameter_count
from twinfold.field.residual import MLP, Scaling
from twinfold.field.unknown import Unknown
from twinfold.integrate.explicit import RK4
from twinfold.project.base import metric_root
from twinfold.project.newton import Newton
from twinfold.project.tangent import Tangent
from twinfold.rollout import rollout
from twinfold.twin import Twin

TS = np.linspace(0.0, 1.0, 5)
X0 = np.array([1.0, 0.5])


ON_CIRCLE = np.array([1.0, 0.0])


def decay(x):
    return -x


def simulate(x0=X0, ts=TS, w=None, *, field=decay, key=None, call=None, **options):
    twin = Twin(field, **options)
    if key is not None:
        twin = twin.initialise(jax.random.key(key), states=2, inputs=0 if w is None else w.shape[1])
    return twin.simulate(x0, ts, w, **(call or {}))


def circle(x):
    return x @ x - 1


BAD_INPUT = {
    "x0 matrix": (lambda: simulate(np.ones((2, 2))), r"x0 has shape \(2, 2\)"),
    "x0 scalar": (lambda: simulate(np.array(1.0)), r"x0 has shape \(\)"),
    "x0 empty": (lambda: simulate(np.zeros(0)), r"x0 has shape \(0,\)"),
    "x0 nan": (lambda: simulate(np.array([np.nan, 1.0])), "x0 is not finite"),
    "one time": (lambda: simulate(ts=np.zeros(1)), "ts has shape .* at least two times"),
    "times matrix": (lambda: simulate(ts=np.ones((3, 2))), "ts has shape"),
    "nan time": (lambda: simulate(ts=np.array([0.0, np.nan, 1.0])), "ts is not finite at sample 1"),
    "equal times": (lambda: simulate(ts=np.array([0.0, 1.0, 1.0])), r"ts must increase: sample 2 \(1\)"),
    "falling times": (lambda: simulate(ts=np.array([0.0, 2.0, 1.0])), "ts must increase: sample 2"),
    "w rows": (lambda: simulate(w=np.ones((3, 1))), r"w has shape \(3, 1\).* 5 times"),
    "w vector": (lambda: simulate(w=np.ones(5)), r"w has shape \(5,\)"),
    "w inf": (lambda: simulate(w=np.full((5, 1), np.inf)), "w is not finite"),
    "field argument": (
        lambda: Twin(lambda t, state: state),
        "field: argument 'state' is not one of t, x",
    ),
    "observe argument": (lambda: Twin(decay, observe=lambda x, q: x), "observe: argument 'q'"),
    "algebraic argument": (lambda: Twin(decay, algebraic=lambda x, z: x), "algebraic: argument 'z'"),
    "initial argument": (
        lambda: Twin(decay, initial=lambda x: x),
        "initial: argument 'x' is not one of t, y",
    ),
    "physics argument": (
        lambda: simulate(field=GreyBox(lambda u: u, lambda x: x)),
        "physics: argument 'u' is not one of t, x, z, w, p",
    ),
    "constraint argument": (
        lambda: simulate(constraint=Constraint(lambda q: q), projection=Newton()),
        "constraint: argument 'q' is not one of t, x, p",
    ),
    "nothing to project on": (lambda: Twin(decay, projection=Newton()), "give a constraint"),
    "constraint shape": (
        lambda: simulate(constraint=Constraint(lambda x: jnp.outer(x, x)), projection=Newton()),
        r"constraint: g\(t, x, p\) returned shape \(2, 2\)",
    ),
    "too many": (
        lambda: simulate(constraint=Constraint(lambda x: jnp.concatenate([x, x])), projection=Newton()),
        "constraint: 4 equations for 2 states",
    ),
    "stacked too many": (
        lambda: simulate(constraint=Stack([Constraint(decay), Conserved(circle)]), projection=Newton()),
        "constraint: 3 equations for 2 states",
    ),
    "empty stack": (lambda: Stack([]), "give at least one constraint"),
    "level shape": (
        lambda: simulate(
            np.array([1.0, 0.0]),
            constraint=Conserved(circle),
            projection=Newton(),
            call={"level": np.zeros(2)},
        ),
        "finite values, one for each constraint",
    ),
    "level nan": (
        lambda: simulate(ON_CIRCLE, constraint=Conserved(circle), projection=Newton(), call={"level": np.nan}),
        "finite values, one for each constraint",
    ),
    "unknown p": (
        lambda: simulate(field=lambda x, p: -p["a"] * x, params={"a": 1.0}, call={"p": {"b": 1.0}}),
        "p: there is no parameter 'b'; the twin has a",
    ),
    "run name": (lambda: simulate(call={"run": "B0005"}), "run='B0005'.*no named runs"),
    "metric size": (
        lambda: simulate(np.array([1.0, 0.0]), constraint=Constraint(circle), projection=Newton(metric=np.ones(3))),
        "metric: it has 3 weights for 2 states",
    ),
    "metric negative": (lambda: Newton(metric=np.array([1.0, -1.0])), "vector of positive weights"),
    "metric nan": (lambda: Tangent(metric=np.array([1.0, np.nan])), "vector of positive weights"),
    "metric nan matrix": (lambda: metric_root(np.full((2, 2), np.nan)), "symmetric positive definite"),
    "metric lopsided": (
        lambda: Newton(metric=np.array([[1.0, 2.0], [0.0, 1.0]])),
        "symmetric positive definite",
    ),
    "metric indefinite": (lambda: Newton(metric=np.array([[1.0, 2.0], [2.0, 1.0]])), "positive definite"),
    "newton steps": (lambda: Newton(max_steps=0), r"Newton\(max_steps=0\)"),
    "newton tolerance": (lambda: Newton(tolerance=-1.0), r"Newton\(tolerance=-1"),
    "tangent steps": (lambda: Tangent(max_steps=0), r"Tangent\(max_steps=0\)"),
    "adds to": (lambda: grey_box(adds_to=[2]), r"MLP\(adds_to=\[2\]\): there is no state 2"),
    "negative index": (lambda: grey_box(states=[-1]), "there is no state -1"),
    "sees": (lambda: grey_box(states=[0, 5]), r"MLP\(states=\[0, 5\]\): there is no state 5"),
    "sees input": (lambda: grey_box(inputs=[0]), r"MLP\(inputs=\[0\]\): the model has no inputs"),
    "adds twice": (lambda: grey_box(adds_to=[1, 1]), "appears twice"),
    "adds to nothing": (lambda: grey_box(adds_to=[]), "must add to at least one"),
    "sees nothing": (lambda: grey_box(states=[]), "must see a state, an input or time"),
    "no data to scale with": (lambda: grey_box(scaling="data"), "no training data"),
    "scaling shape": (
        lambda: grey_box(scaling=Scaling(jnp.zeros(3), jnp.ones(3), jnp.ones(2))),
        r"MLP\(scaling=",
    ),
    "width": (lambda: grey_box(width=0), "width=0"),
    "depth": (lambda: grey_box(depth=0), "depth=0"),
    "no weights": (lambda: simulate(field=BlackBox(MLP())), "no weights yet"),
    "network size": (lambda: Network(0, 1), r"Network\(in_size=0\)"),
    "start nan": (lambda: Unknown(np.nan), "must be finite"),
    "start negative": (lambda: Unknown(-1.0, positive=True), "must be positive"),
    "start zero": (lambda: Unknown([1.0, 0.0], positive=True), "must be positive"),
    "start outside": (lambda: Unknown(3.0, bounds=(0.0, 2.0)), "must lie inside"),
    "start on a bound": (lambda: Unknown(2.0, bounds=(0.0, 2.0)), "must lie inside"),
    "bounds swapped": (lambda: Unknown(1.0, bounds=(2.0, 0.0)), "lower bound must be below"),
    "bounds and positive": (lambda: Unknown(1.0, positive=True, bounds=(0.0, 2.0)), "not both"),
    "no x0": (
        lambda: Twin(decay, observe=lambda x: x[:1]).initial_state(0.0, jnp.ones(1), None, {}),
        "initial: the state is not what is observed",
    ),
}


def grey_box(**options):
    return simulate(field=GreyBox(decay, MLP(**options)), key=0)


@pytest.mark.parametrize("name", list(BAD_INPUT))
def test_bad_input(name):
    attempt, message = BAD_INPUT[name]
    with pytest.raises(ValueError, match=message):
        attempt()


def test_what_the_type_checker_hides_is_a_value_error_for_a_user():
    """In this suite the type checker refuses these first; a user has none."""
    script = """
import jax.numpy as jnp, numpy as np
from twinfold.field.residual import MLP
from twinfold.integrate.diffrax_step import DiffraxStep
from twinfold.project.newton import Newton
from twinfold.project.tangent import Tangent
from twinfold.twin import Twin

def run(field, **options):
    return Twin(field, **options).simulate(np.ones(2), np.arange(3.0))

for attempt, words in [
    (lambda: Newton(derivative="exact"), "derivative='exact'"),
    (lambda: Tangent(derivative="exact"), "derivative='exact'"),
    (lambda: Twin(lambda x: -x, between="cubic"), "between='cubic'"),
    (lambda: Twin(lambda x: -x).simulate(np.ones(1), np.arange(3.0), start="move"), "start='move'"),
    (lambda: MLP(scaling="auto"), "scaling='auto'"),
    (lambda: Newton(metric=[1.0, -1.0]), "metric"),
    (lambda: DiffraxStep("Tsit5"), "DiffraxStep(solver='Tsit5')"),
    (lambda: run(lambda x: x[:1]), "field: dx has shape (1,)"),
    (lambda: run(lambda x: jnp.outer(x, x)), "field: dx has shape (2, 2)"),
    (lambda: run(lambda x: (x[0], x[1])), "field: dx has shape"),
    (lambda: run(lambda x: x, observe=lambda x: jnp.outer(x, x)), "observe: y has shape (2, 2)"),
]:
    try:
        attempt()
    except ValueError as error:
        assert words in str(error), (words, str(error))
    else:
        raise AssertionError(words)
"""
    root = str(Path(next(iter(twinfold.__path__))).parent)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr


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


def test_initial_state_in_the_documented_order():
    y, p = jnp.array([2.0]), {}
    assert Twin(decay).initial_state(0.0, y, None, p)[0] == 2
    assert Twin(decay).initial_state(0.0, y, None, p, x0=jnp.array([3.0]))[0] == 3
    computed = Twin(decay, initial=lambda y: 10 * y)
    assert computed.initial_state(0.0, y, None, p, x0=jnp.array([3.0]))[0] == 20
    assert Twin(decay, initial=Unknown([5.0])).initial_state(0.0, y, None, p)[0] == 5


def test_stacked_levels_go_to_their_parts():
    stack = Stack([Conserved(lambda x: x[:2]), Constraint(lambda t, x: x[0] * t), Conserved(circle)])
    x = jnp.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(stack.level(2.0, x, {}), [1.0, 2.0, 0.0, 13.0])
    left = stack.residual(2.0, 2 * x, {}, jnp.array([1.0, 2.0, 0.5, 13.0]))
    np.testing.assert_array_equal(left, [1.0, 2.0, 3.5, 42.0])
    assert Unconstrained().residual(0.0, x, {}, jnp.zeros(0)).shape == (0,)


# --- house rules ---


def modules():
    """Every module of the package that can be imported without an extra."""
    found = []
    for info in pkgutil.walk_packages(twinfold.__path__, "twinfold."):
        try:
            found.append(importlib.import_module(info.name))
        except ImportError as error:
            if "twinfold" in str(error):
                raise
    return found


def classes():
    return [
        item
        for module in modules()
        for item in vars(module).values()
        if inspect.isclass(item) and item.__module__ == module.__name__ and issubclass(item, eqx.Module)
    ]


def test_every_class_is_abstract_or_final():
    """Nothing subclasses a concrete class, and no concrete method is overridden."""
    found = classes()
    assert len(found) >= 20
    for cls in found:
        for base in cls.__mro__[1:]:
            if base not in found:
                continue
            assert inspect.isabstract(base) or base.__name__.startswith("Abstract"), f"{cls}: {base}"
            for name, method in vars(base).items():
                concrete = inspect.isfunction(method) and not getattr(method, "__isabstractmethod__", False)
                if concrete and not name.startswith("__"):
                    assert name not in vars(cls), f"{cls.__name__}.{name} overrides {base.__name__}.{name}"


def test_no_module_calls_super():
    """Only an exception may: it has no other way to set its message."""
    for module in modules():
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not any("Error" in ast.unparse(base) for base in node.bases):
                calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name) and inner.id == "super"]
                assert not calls, f"{module.__name__}.{node.name} calls super()"


def test_trainable_leaves_out_what_is_frozen():
    twin = Twin(
        GreyBox(decay, MLP(width=4, depth=1)),
        params={"a": 1.0, "b": Unknown([1.0, 2.0])},
        constraint=Constraint(circle),
        projection=Newton(metric=np.array([1.0, 2.0])),
        integrator=RK4(),
    ).initialise(jax.random.key(0), states=2)
    kept = eqx.filter(twin, trainable(twin))
    assert sum(leaf.size for leaf in jax.tree.leaves(kept)) == 2 + parameter_count(2, 2, 4, 1)


def test_rollout_of_a_twin_is_its_simulation():
    twin = Twin(lambda t, x, p: -p["a"] * x * t, params={"a": Unknown(0.5)}, observe=lambda x: x[0])
    simulation = twin.simulate(X0, TS)
    direct = rollout(twin.cell, jnp.asarray(X0), jnp.asarray(TS), p=twin.parameters())
    np.testing.assert_allclose(simulation.xs, direct.xs, rtol=1e-14)
    np.testing.assert_array_equal(simulation.ys[:, 0], simulation.xs[:, 0])
