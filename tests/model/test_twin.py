"""What a twin is made of: bad input, unknown parameters, learned parts, and the rules every class obeys."""

import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold
from twinfold.model._constraint.base import Conserved, Constraint, Stack
from twinfold.model._fields import BlackBox, GreyBox
from twinfold.model._learned.base import trainable
from twinfold.model._learned.mlp import MLP, Scaling
from twinfold.model._learned.network import Network, parameter_count
from twinfold.model._twin import Twin
from twinfold.model._unknown import Unknown
from twinfold.numerics._constraint import Unconstrained
from twinfold.numerics._integrate.explicit import RK4
from twinfold.numerics._project.base import as_metric
from twinfold.numerics._project.newton import Newton
from twinfold.numerics._project.tangent import Tangent
from twinfold.numerics._rollout import rollout

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
    "metric nan matrix": (lambda: as_metric(np.full((2, 2), np.nan)), "symmetric positive definite"),
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
from twinfold import MLP
from twinfold import DiffraxStep, Newton, Tangent, Twin

def run(field, **options):
    return Twin(field, **options).simulate(np.ones(2), np.arange(3.0))

for attempt, words in [
    (lambda: Newton(derivative="exact"), "derivative='exact'"),
    (lambda: Tangent(derivative="exact"), "derivative='exact'"),
    (lambda: Twin(lambda x: -x, input_interpolation="cubic"), "input_interpolation='cubic'"),
    (lambda: Twin(lambda x: -x).simulate(np.ones(1), np.arange(3.0), inconsistent_x0="move"), "inconsistent_x0='move'"),
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
