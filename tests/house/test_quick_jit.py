"""A program that is compiled quickly is the same program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from twinfold._core import quick_jit
from twinfold._core._quick_jit import _known


def _roots(values: jax.Array, power: float) -> jax.Array:
    return jnp.cumsum(jnp.sin(values) ** 2 + jnp.exp(-values)) ** power


@pytest.mark.parametrize("once", [False, True])
def test_it_computes_what_the_function_computes(once):
    values = jnp.linspace(0.0, 3.0, 1000)
    np.testing.assert_allclose(quick_jit(_roots, once=once)(values, 0.5), _roots(values, 0.5), rtol=1e-14)


def test_it_is_compiled_once_for_arguments_of_one_shape():
    traced = []

    @quick_jit
    def double(values: jax.Array) -> jax.Array:
        traced.append(values.shape)
        return 2 * values

    for size in (3, 3, 4, 3):
        double(jnp.ones(size))
    assert traced == [(3,), (4,)]


def test_options_that_the_compiler_does_not_have_are_left_out():
    there, unknown = ("xla_backend_optimization_level", 0), ("xla_cpu_no_such_option", True)
    assert _known((there, unknown)) == dict([there])
    assert _known((unknown,)) is None
