"""The loop of every iteration."""

import jax
import jax.numpy as jnp
import numpy as np

from twinfold.numerics._iterate import batched_alike


def test_a_carry_is_batched_as_a_whole_and_keeps_its_values():
    carry = (jnp.array(0), jnp.array([jnp.nan, 2.0]), jax.random.key(3), jnp.zeros((0, 2)), 1, None)
    counter, state, _, empty, number, nothing = batched_alike(carry, jnp.ones(3))
    np.testing.assert_array_equal(state, carry[1])
    assert counter.dtype == carry[0].dtype
    assert empty.shape == (0, 2)
    assert (number, nothing) == (1, None)
    counters = jax.vmap(lambda x: batched_alike(carry[:2], x))(jnp.arange(3.0))[0]
    np.testing.assert_array_equal(counters, np.zeros(3))


def test_the_body_of_a_batched_loop_is_transformed_once():
    """Without the common batch axis, once more for every part of the carry that turns out to be batched."""
    seen = []

    @jax.custom_batching.custom_vmap
    def counted(a):
        return a + 1

    @counted.def_vmap
    def _(axis_size, in_batched, a):
        seen.append(in_batched)
        return a + 1, in_batched[0]

    def loop(x):
        first = batched_alike((jnp.zeros(()), jnp.zeros(()), x))
        return jax.lax.while_loop(lambda c: c[1] < c[2], lambda c: (counted(c[0]), c[0], c[2]), first)

    np.testing.assert_array_equal(jax.vmap(loop)(jnp.array([1.0, 2.0]))[1], [1.0, 2.0])
    assert seen == [[True]]
