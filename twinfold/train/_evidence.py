"""Weights of the loss that are estimated together with what is trained (`Loss(l2="auto", correlation="auto")`).

Errors of a model are correlated in time: e_t = rho e_(t-1) + sqrt(1 - rho^2) w_t with white w, whose mean square is the
loss. rho is the correlation of neighbouring errors (Cochrane and Orcutt), for each output. The weight of l2 is that of
the largest evidence (MacKay 1992): with a prior N(0, s^2) of the change of the weights since they were drawn, and noise
of variance q in N samples,

    l2 = q / (N s^2),    s^2 = |change|^2 / gamma,    q = N L / (N - gamma - others),    gamma = P - l2 tr((J'J)^-1),

gamma being the number of weights, of P, that the data determine, L the loss of the data and J'J that of the whole loss.
"""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

if TYPE_CHECKING:
    from twinfold.train._problem import TrainingProblem

AUTO = "auto"
FIRST_L2 = 1e-6  # until it is estimated
L2_RANGE = (1e-10, 1e-1)
MOST_CORRELATED = 0.995  # beyond which the level of an output would not count
LEAST_NOISE_SHARE = 0.2  # of the samples that are left after as many as there are parameters
SETTLED_L2, SETTLED_CORRELATION = 0.1, 0.01  # changes (of l2, a relative one) that are none
FIRST_STEP, EVERY = 60, 10  # of a least-squares method, after which the weights are estimated


class Weights(eqx.Module):
    """The weights of the loss as they are estimated at present."""

    l2: Float[Array, ""]
    correlation: Float[Array, " k"]

    def settled(self, before: "Weights") -> Bool[Array, ""]:
        """Whether they are what they were before."""
        same = jnp.abs(jnp.log(self.l2 / before.l2)) < SETTLED_L2
        return same & jnp.all(jnp.abs(self.correlation - before.correlation) < SETTLED_CORRELATION)


def estimate_weights(
    problem: "TrainingProblem", params: PyTree, residuals: Float[Array, " N"], gramian: Float[Array, "P P"]
) -> Weights:
    """The weights that follow from the residuals r and J'J of a problem at some parameters.

    What `problem` does not estimate stays what it is.
    """
    batch, now = problem.batch, problem.weights
    w = residuals[: batch.y.size].reshape(batch.y.shape)
    correlation, l2 = now.correlation, now.l2
    if "l2" in problem.estimated:
        l2 = _most_evident(problem, params, jnp.sum(w**2), gramian)
    if "correlation" in problem.estimated:
        correlation = jnp.clip(_neighbours(coloured(w, batch.mask, correlation), batch.mask), 0, MOST_CORRELATED)
    return Weights(l2, correlation)


def whitened(
    error: Float[Array, "B T k"], mask: Bool[Array, "B T k"], correlation: Float[Array, " k"]
) -> Float[Array, "B T k"]:
    """w of errors e (zero where nothing was measured): what neither the error before nor its correlation tells."""
    rho = correlation[None, None]
    before, known = _shifted(error), _shifted(mask) & mask
    return jnp.where(known, (error - rho * before) / jnp.sqrt(1 - rho**2), error)


def coloured(
    white: Float[Array, "B T k"], mask: Bool[Array, "B T k"], correlation: Float[Array, " k"]
) -> Float[Array, "B T k"]:
    """e of w: the inverse of `whitened`."""
    rho = correlation[None]

    def step(before: Float[Array, "B k"], sample: tuple[Array, Array]) -> tuple[Array, Array]:
        w, known = sample
        error = jnp.where(known, jnp.sqrt(1 - rho**2) * w + rho * before, w)
        return error, error

    known = _shifted(mask) & mask
    errors = jax.lax.scan(step, jnp.zeros_like(white[:, 0]), (white.swapaxes(0, 1), known.swapaxes(0, 1)))[1]
    return errors.swapaxes(0, 1)


def _most_evident(
    problem: "TrainingProblem", params: PyTree, loss: Float[Array, ""], gramian: Float[Array, "P P"]
) -> Float[Array, ""]:
    weights, dtype = problem.weights, gramian.dtype
    # One at each entry of the vector that is a weight of a network: the derivative of their sum.
    is_weight = ravel_pytree(jax.grad(lambda params: sum(map(jnp.sum, problem.changes(params))))(params))[0]
    ridge = jnp.finfo(dtype).eps * jnp.max(jnp.diagonal(gramian))
    inverse = jnp.linalg.inv(gramian + ridge * jnp.eye(gramian.shape[0], dtype=dtype))
    count = jnp.sum(is_weight)
    gamma = jnp.clip(count - weights.l2 * jnp.sum(jnp.diagonal(inverse) * is_weight), 1e-3, count)
    samples = jnp.sum(problem.batch.mask).astype(dtype)
    left = jnp.maximum(1 - (gamma + is_weight.size - count) / samples, LEAST_NOISE_SHARE)
    change = sum((jnp.sum(each**2) for each in problem.changes(params)), jnp.zeros((), dtype))
    found = gamma * loss / (left * samples * jnp.maximum(change, jnp.finfo(dtype).tiny))
    return jnp.where(jnp.isfinite(found), jnp.clip(found, *L2_RANGE), weights.l2)


def _neighbours(error: Float[Array, "B T k"], mask: Bool[Array, "B T k"]) -> Float[Array, " k"]:
    """The correlation of errors at neighbouring samples, for each output."""
    both = _shifted(mask) & mask
    before = jnp.where(both, _shifted(error), 0)
    now = jnp.where(both, error, 0)
    size = jnp.sqrt(jnp.sum(before**2, (0, 1)) * jnp.sum(now**2, (0, 1)))
    return jnp.sum(before * now, (0, 1)) / jnp.where(size > 0, size, 1)


def _shifted(values: Array) -> Array:
    """The value one sample before; zero, or False, at the first one."""
    return jnp.concatenate([jnp.zeros_like(values[:, :1]), values[:, :-1]], axis=1)
