"""One training step in JAX, the same for every contender that is written in it: loss, gradient, Adam."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.work import RATE, Task, Work


def training_task(model: Any, predict: Callable[[Any], jax.Array], work: Work, notes: str = "") -> Task:
    """`predict(model)` is [trajectory, step, state]. Each step starts from the same weights: equal work each time."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    target = jnp.asarray(work.target)
    optimiser = optax.adam(RATE)

    def loss(params: Any) -> jax.Array:
        return jnp.mean((predict(eqx.combine(params, static)) - target) ** 2)

    def step(params: Any, state: Any) -> tuple:
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(params, updates), state, value, gradient

    state = optimiser.init(params)
    began = time.perf_counter()
    compiled = jax.jit(step).lower(params, state).compile()
    seconds = time.perf_counter() - began
    _, _, value, gradient = compiled(params, state)
    flat = np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(gradient)])
    return Task(lambda: jax.block_until_ready(compiled(params, state)), seconds, float(value), flat, notes)


def with_weights(model: Any, work: Work) -> Any:
    """`model` with the weights of the work; its trainable arrays are W and b of each layer, in order."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    leaves, shape = jax.tree.flatten(params)
    given = [jnp.asarray(array) for layer in work.weights for array in layer]
    if [leaf.shape for leaf in leaves] != [leaf.shape for leaf in given]:
        raise ValueError(f"the network has arrays {[leaf.shape for leaf in leaves]}, not W and b of each layer.")
    return eqx.combine(jax.tree.unflatten(shape, given), static)
