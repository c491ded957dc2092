"""The carry of a loop, packed and batched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinfold.numerics._carry import MAX_PACKED, batched_alike, packing
from twinfold.numerics._iterate import iterate


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


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_small_carry_is_one_vector_and_keeps_its_values(dtype):
    carry = {
        "x": jnp.array([[1.5, jnp.nan], [-jnp.inf, 1e-30]], dtype),
        "count": jnp.array(2**24),
        "flag": jnp.array([True, False]),
        "empty": jnp.zeros(0, dtype),
    }
    pack, unpack = packing(carry)
    assert pack(carry).shape == (7,)
    assert pack(carry).dtype == dtype
    for before, after in zip(jax.tree.leaves(carry), jax.tree.leaves(unpack(pack(carry))), strict=True):
        assert after.dtype == before.dtype
        np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    "carry",
    [
        (jnp.zeros(MAX_PACKED), jnp.array(0)),
        (jnp.zeros(2, jnp.float32), jnp.zeros(2, jnp.float64)),
        (jnp.zeros(2), jax.random.key(0)),
        (jnp.array(1), jnp.array(True)),
        (jnp.zeros(2, complex), jnp.zeros(2)),
    ],
    ids=["large", "two dtypes", "key", "no real number", "complex"],
)
def test_other_carries_stay_as_they_are(carry):
    pack, unpack = packing(carry)
    assert pack(carry) is carry
    assert unpack(carry) is carry


def test_lanes_of_a_packed_loop_end_by_themselves():
    """Heron's square roots, each with its own number of steps."""

    def root(a):
        def step(at):
            x, count, _ = at
            return 0.5 * (x + a / x), count + 1, jnp.abs(x * x - a) > 1e-12 * a

        return iterate((a, jnp.array(0), jnp.array(True)), step, lambda at: at[2])

    a = jnp.array([1.0, 2.0, 1e6])
    roots, counts, _ = jax.vmap(root)(a)
    np.testing.assert_allclose(roots, np.sqrt(a), rtol=1e-12)
    assert counts[0] < counts[1] < counts[2]
