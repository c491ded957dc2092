"""Rewriting a step in primitives that ONNX runtimes support.

Boolean selections become `and` and `or` (onnxruntime has no boolean `Where`), calls are inlined, symmetric matrices of
more than two rows are diagonalised by Jacobi rotations, and inverse functions that onnxruntime has in float32 only are
expressed by others.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend import core
from jaxtyping import Array, Float

from twinfold.export._jaxpr import CALLS, called_jaxpr, cpu_index

SWEEPS = 10  # of Jacobi rotations, which converge quadratically


def rewrite(closed: Any) -> Callable[..., list[Any]]:
    """A function that computes the same as a jaxpr."""
    jaxpr, consts = (closed.jaxpr, closed.consts) if isinstance(closed, core.ClosedJaxpr) else (closed, [])

    def run(*args: Any) -> list[Any]:
        known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        for equation in _live_equations(jaxpr):
            operands = [atom.val if isinstance(atom, core.Literal) else known[atom] for atom in equation.invars]
            rule = _RULES.get(equation.primitive.name, _bind)
            if any(isinstance(operand, Tracer) for operand in operands):
                results = rule(equation, operands)
            else:  # constants only: compute them now rather than in every step
                with jax.ensure_compile_time_eval():
                    results = rule(equation, operands)
            known.update(zip(equation.outvars, results, strict=True))
        return [jnp.asarray(atom.val) if isinstance(atom, core.Literal) else known[atom] for atom in jaxpr.outvars]

    return run


def _live_equations(jaxpr: Any) -> list[Any]:
    """The equations on which the results depend."""
    needed = {atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal)}
    live = []
    for equation in reversed(jaxpr.eqns):
        if needed.intersection(equation.outvars):
            live.append(equation)
            needed.update(atom for atom in equation.invars if not isinstance(atom, core.Literal))
    return live[::-1]


def _bind(equation: Any, operands: list[Any]) -> list[Any]:
    results = equation.primitive.bind(*operands, **equation.params)
    return list(results) if equation.primitive.multiple_results else [results]


def _inline(equation: Any, operands: list[Any]) -> list[Any]:
    return rewrite(called_jaxpr(equation.params))(*operands)


def _select(equation: Any, operands: list[Any]) -> list[Any]:
    if equation.outvars[0].aval.dtype != bool or len(operands) != 3:
        return _bind(equation, operands)
    which, false, true = (jnp.broadcast_to(operand, equation.outvars[0].aval.shape) for operand in operands)
    return [jnp.logical_or(jnp.logical_and(which, true), jnp.logical_and(jnp.logical_not(which), false))]


def _while(equation: Any, operands: list[Any]) -> list[Any]:
    params = equation.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    test, body = rewrite(params["cond_jaxpr"]), rewrite(params["body_jaxpr"])
    return list(
        jax.lax.while_loop(
            lambda carried: test(*operands[:first], *carried)[0],
            lambda carried: tuple(body(*operands[first:second], *carried)),
            tuple(operands[second:]),
        )
    )


def _scan(equation: Any, operands: list[Any]) -> list[Any]:
    params, carries = equation.params, equation.params["num_carry"]
    consts = params["num_consts"]
    body = rewrite(params["jaxpr"])

    def step(carried: tuple, items: tuple) -> tuple:
        out = body(*operands[:consts], *carried, *items)
        return tuple(out[:carries]), tuple(out[carries:])

    initial, sequences = tuple(operands[consts : consts + carries]), tuple(operands[consts + carries :])
    final, collected = jax.lax.scan(step, initial, sequences, params["length"], params["reverse"])
    return [*final, *collected]


def _platform_index(equation: Any, operands: list[Any]) -> list[Any]:
    return [np.int32(cpu_index(equation.params["platforms"]))]


def _cond(equation: Any, operands: list[Any]) -> list[Any]:
    branches = [rewrite(branch) for branch in equation.params["branches"]]
    if not isinstance(operands[0], Tracer):
        return branches[int(np.clip(operands[0], 0, len(branches) - 1))](*operands[1:])
    return list(jax.lax.switch(operands[0], [lambda *args, b=b: tuple(b(*args)) for b in branches], *operands[1:]))


def _eigh(equation: Any, operands: list[Any]) -> list[Any]:
    (matrix,) = operands
    if matrix.ndim != 2 or matrix.shape[-1] < 3:
        return _bind(equation, operands)
    lower = np.tri(matrix.shape[0], dtype=bool)
    values, vectors = jacobi_eigh(jnp.where(lower if equation.params["lower"] else lower.T, matrix, matrix.T))
    return [vectors, values]


def jacobi_eigh(matrix: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Eigenvalues (unordered) and eigenvectors of a symmetric matrix, by Jacobi rotations."""
    n, one = matrix.shape[0], np.eye(matrix.shape[0], dtype=matrix.dtype)
    pairs = np.array([(i, j) for i in range(n) for j in range(i + 1, n)] * SWEEPS)

    def rotate(state: tuple, pair: tuple) -> tuple:
        (a, v), (first, second) = state, pair
        off = first @ a @ second
        nonzero = jnp.abs(off) > 0
        theta = (second @ a @ second - first @ a @ first) / (2 * jnp.where(nonzero, off, 1))
        t = jnp.where(theta < 0, -1, 1).astype(a.dtype) / (jnp.abs(theta) + jnp.sqrt(theta * theta + 1))
        t = jnp.where(nonzero, t, 0)
        c = 1 / jnp.sqrt(t * t + 1)
        p, q = first[:, None], second[:, None]
        rotation = one + (c - 1) * (p * p.T + q * q.T) + t * c * (p * q.T - q * p.T)
        return (rotation.T @ a @ rotation, v @ rotation), None

    (a, v), _ = jax.lax.scan(rotate, (matrix, jnp.asarray(one)), (one[pairs[:, 0]], one[pairs[:, 1]]))
    return jnp.sum(a * one, axis=1), v


def _in_float64(fn: Callable[..., Array]) -> Callable[[Any, list[Any]], list[Any]]:
    """A rule for float64; in float32 the primitive itself is supported."""

    def rule(equation: Any, operands: list[Any]) -> list[Any]:
        double = equation.outvars[0].aval.dtype == np.float64
        return [fn(*map(jnp.asarray, operands))] if double else _bind(equation, operands)

    return rule


def _atan2(y: Array, x: Array) -> Array:
    """The angle in float32, corrected by the small remaining angle, whose arctangent needs two terms."""
    angle = jax.lax.atan2(y.astype(jnp.float32), x.astype(jnp.float32)).astype(y.dtype)
    c, s = jnp.cos(angle), jnp.sin(angle)
    along = x * c + y * s
    tangent = (y * c - x * s) / jnp.where(along == 0, 1, along)
    return angle + tangent - tangent * tangent * tangent / 3


def _asinh(x: Array) -> Array:
    a = jnp.abs(x)
    return jnp.sign(x) * jnp.log1p(a + a * a / (1 + jnp.sqrt(a * a + 1)))


_RULES: dict[str, Callable[[Any, list[Any]], list[Any]]] = {
    "select_n": _select,
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "eigh": _eigh,
    "platform_index": _platform_index,
    "atan2": _in_float64(_atan2),
    "atan": _in_float64(lambda x: _atan2(x, jnp.ones_like(x))),
    "asin": _in_float64(lambda x: _atan2(x, jnp.sqrt((1 - x) * (1 + x)))),
    "acos": _in_float64(lambda x: _atan2(jnp.sqrt((1 - x) * (1 + x)), x)),
    "tan": _in_float64(lambda x: jnp.sin(x) / jnp.cos(x)),
    "asinh": _in_float64(_asinh),
    "acosh": _in_float64(lambda x: jnp.log1p(x - 1 + jnp.sqrt((x - 1) * (x + 1)))),
    "atanh": _in_float64(lambda x: (jnp.log1p(x) - jnp.log1p(-x)) / 2),
    **dict.fromkeys(CALLS, _inline),
}
