"""Every step of every robust rollout is on the manifold: six systems, whatever the network, over the long horizon."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from twinfold_studies.bench.contenders import model_for
from twinfold_studies.systems import SYSTEMS, system

import twinfold as tw
from twinfold._core import outcome_codes, outcome_messages

RUNS = 4
LIMIT = {jnp.float64: 1e-12, jnp.float32: 2e-6}
# Of each precision, those in the short suite; the others are with the slow tests.
QUICK = {jnp.float64: ("mass_spring",), jnp.float32: ()}


def untrained(chosen, model: str, key: int, gain: float, dtype) -> tw.Twin:
    """A network as drawn (gain 1), or far larger than any that was ever trained."""
    twin = model_for(model, chosen, parameters=300)
    twin = twin.initialise(jax.random.key(key), states=len(chosen.state_names), dtype=dtype)
    weights, rest = eqx.partition(twin, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda leaf: gain * leaf, weights), rest)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, id=f"{name}-{dtype.__name__}", marks=() if name in quick else pytest.mark.slow)
        for dtype, quick in QUICK.items()
        for name in SYSTEMS
    ],
)
def test_robust_rollouts_stay_on_the_manifold(name, dtype):
    chosen = system(name)
    ts = (chosen.dt * jnp.arange(round(chosen.long_horizon / chosen.dt) + 1)).astype(dtype)
    x0 = chosen.draw(jax.random.key(7), RUNS).astype(dtype)

    @eqx.filter_jit
    def run(twin):
        out = jax.vmap(lambda x0: tw.rollout(twin.cell, x0, ts, throw=False))(x0)
        # A network that drives the state far beyond its initial size takes the spacing of floats along: g is bilinear
        # or quadratic, so what can be represented at all grows with the square.
        size = jnp.linalg.norm(out.xs, axis=-1) / jnp.linalg.norm(x0, axis=-1)[:, None]
        allowed = jnp.maximum(1, size**2)[..., None]
        return out.result, jnp.max(out.relative_violation / allowed, axis=(1, 2)), out.xs.dtype

    # The gain is data, so that all networks run the same compiled program.
    for model, gain in (("phrpinn_robust", 1.0), ("phrpinn_robust", 4.0), ("pnode_robust", 1.0)):
        result, violation, found = run(untrained(chosen, model, 1, gain, dtype))
        assert found == dtype
        reasons = {outcome_messages()[code][:40] for code in np.unique(outcome_codes(result)) if code}
        assert not reasons, f"{model}, gain {gain}: {reasons}"
        assert np.asarray(violation).max() <= LIMIT[dtype], f"{model}, gain {gain}"


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_derivative_of_one_step_three_ways(name):
    """One step of the cell, from states off the manifold: implicit against differences and through the loop."""
    chosen = system(name)
    twin = untrained(chosen, "phrpinn_robust", 2, 1.0, jnp.float64)
    x0 = chosen.draw(jax.random.key(3), 3)
    off = x0 * (1 + 0.02 * jax.random.normal(jax.random.key(4), x0.shape))
    t, dt = jnp.array(0.7), jnp.array(chosen.dt)
    level = jax.vmap(lambda x: twin.constraint.level(0.0, x, {}))(x0)

    def step(derivative, x, level):
        cell = eqx.tree_at(
            lambda cell: cell.projection,
            twin.cell,
            tw.Newton(derivative=derivative, max_steps=9 if derivative == "loop" else 50),
        )
        return cell.step(t, dt, x, None, None, {}, level)[0].x

    def jacobians(derivative):
        both = jax.jacfwd(lambda x, level: step(derivative, x, level), argnums=(0, 1))
        return jax.jit(jax.vmap(lambda x, level: jnp.concatenate(both(x, level), axis=1)))(off, level)

    @jax.jit
    @jax.vmap
    def differences(x, level):
        h, n = 1e-5, x.shape[0]
        both = jnp.concatenate([x, level])

        def along(unit, length):
            up, down = both + length * unit, both - length * unit
            return step("implicit", up[:n], up[n:]) - step("implicit", down[:n], down[n:])

        def column(unit):  # fourth order: at second order the truncation error alone can be 1e-7 here
            return (8 * along(unit, h) - along(unit, 2 * h)) / (12 * h)

        return jax.vmap(column, out_axes=1)(jnp.eye(both.shape[0]))

    exact, through, expected = jacobians("implicit"), jacobians("loop"), differences(off, level)
    size = jnp.linalg.norm(expected, axis=(1, 2))
    assert jnp.max(jnp.linalg.norm(exact - expected, axis=(1, 2)) / size) <= 1e-8
    assert jnp.max(jnp.linalg.norm(through - exact, axis=(1, 2)) / size) <= 1e-8
    neglected = jacobians("tangent")
    assert jnp.max(jnp.linalg.norm(neglected - exact, axis=(1, 2)) / size) > 1e-4
