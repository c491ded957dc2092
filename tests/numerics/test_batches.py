"""A trajectory fails or not whatever its batch: XLA's maximum over thousands of values can lose a NaN on the CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw

MANY, FEW = 6000, 6  # trajectories; values by the thousand are reduced by another kernel
TS = jnp.linspace(0, 0.4, 5)


def field(x):
    """Not defined for x2 > 1, which some trajectories reach."""
    nowhere = jnp.where(x[2] > 1.0, jnp.nan, 0.0)
    return jnp.stack([nowhere - 3 * x[0] * x[1], x[2], -1.0 - x[1] * jnp.sqrt(jnp.maximum(x[0], 0))])


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [tw.RK4(), tw.BDF()], ids=["rk4", "bdf"])
@pytest.mark.parametrize("projection", [None, tw.Newton()], ids=["none", "newton"])
def test_failures_do_not_depend_on_the_size_of_the_batch(integrator, projection):
    constraint = None if projection is None else tw.Conserved(lambda x: jnp.log(x[0]) + x @ x)
    twin = tw.Twin(field, integrator=integrator, constraint=constraint, projection=projection)
    x0s = np.random.default_rng(0).normal(size=(MANY, 3))
    x0s[:, 0] = np.abs(x0s[:, 0]) + 0.1
    run = jax.jit(jax.vmap(lambda x0: tw.rollout(twin.cell, x0, TS, throw=False)))
    together = run(x0s)
    parts = [run(x0s[start : start + FEW]) for start in range(0, 50 * FEW, FEW)]
    failed, states = (
        np.concatenate([np.asarray(part) for part in each])
        for each in zip(*((p.failed, p.xs) for p in parts), strict=True)
    )
    assert 0 < failed.sum() < len(failed)
    np.testing.assert_array_equal(np.asarray(together.failed)[: len(failed)], failed)
    np.testing.assert_allclose(np.asarray(together.xs)[: len(failed)], states, rtol=0, atol=1e-13)
