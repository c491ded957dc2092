"""The matrix products of the training step alone: how far is a step from the machine?

They have the shapes, number and order of those in the step: 16 trajectories times the weights of each layer, four
evaluations in each of 200 steps inside `lax.scan`, forwards and backwards. There is no tanh, no bias, no Runge-Kutta
combination (each evaluation moves the state by a quarter of the step) and no Adam.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.work import DT, STEPS, Task, Work

STAGES = 4


def products(work: Work) -> Task:
    """Loss and gradient of the linear network, batched by hand."""
    x0, target = jnp.asarray(work.x0), jnp.swapaxes(jnp.asarray(work.target), 0, 1)
    weights = [jnp.asarray(matrix.T) for matrix, _ in work.weights]

    def loss(weights: list[jax.Array]) -> jax.Array:
        def step(x: jax.Array, nothing: None) -> tuple[jax.Array, jax.Array]:
            for _ in range(STAGES):
                h = x
                for matrix in weights:
                    h = h @ matrix
                x = x + DT / STAGES * h
            return x, x

        return jnp.mean((jax.lax.scan(step, x0, length=STEPS)[1] - target) ** 2)

    began = time.perf_counter()
    compiled = jax.jit(jax.value_and_grad(loss)).lower(weights).compile()
    seconds = time.perf_counter() - began
    value, gradient = compiled(weights)
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in gradient])
    return Task(lambda: jax.block_until_ready(compiled(weights)), seconds, float(value), flat, "no tanh, no bias")
