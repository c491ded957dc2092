"""The C form of each primitive compared with JAX, as outputs of one twin."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
from support.exports import STRICT, compiled_step, needs_compiler

import twinfold as tw
from twinfold.export import ExportSpec, NotExportable, export_c
from twinfold.export._c.source import write_source
from twinfold.export._step import build_step, precision

N = 12


def square(x):
    return x.reshape(3, 4) @ x.reshape(4, 3) + 3 * jnp.eye(3)


def large(x):
    """A matrix that is too large to be unrolled."""
    return jnp.outer(x, x[::-1]) + 5 * jnp.eye(N)


def counted(x):
    """A loop whose length depends on the data, with two carries that are exchanged."""
    return jnp.stack(
        jax.lax.while_loop(lambda s: s[2] < 3 + x[0], lambda s: (s[1], s[0] * 1.1, s[2] + 1.0), (x[1], x[2], 0.0))
    )


def scanned(x):
    carry, ys = jax.lax.scan(lambda c, v: (c * 0.9 + v.sum(), jnp.stack([c, v[0]])), x[0], x.reshape(4, 3))
    _, back = jax.lax.scan(lambda c, v: (c + v, c), x[0], x, reverse=True)
    return jnp.concatenate([carry[None], ys.reshape(-1), back])


CASES = {
    "arithmetic": lambda x: jnp.concatenate([x + x[::-1], x - 1, x * x[0], x / x[1], -x, x % 0.3, x**3, x**-2, x**1.7]),
    "rounding": lambda x: jnp.concatenate([jnp.floor(7 * x), jnp.ceil(7 * x), jnp.round(7 * x), jnp.sign(x - 1)]),
    "roots": lambda x: jnp.concatenate([jnp.sqrt(x), jax.lax.rsqrt(x), jnp.cbrt(x), jnp.abs(x - 1), jnp.square(x)]),
    "exponentials": lambda x: jnp.concatenate([jnp.exp(x), jnp.expm1(x), jnp.exp2(x), jnp.log(x), jnp.log1p(x)]),
    "angles": lambda x: jnp.concatenate([jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan(x), jnp.arctan2(x, x[::-1])]),
    "inverse": lambda x: jnp.concatenate([jnp.arcsin(x / 3), jnp.arccos(x / 3), jnp.arctanh(x / 3)]),
    "hyperbolic": lambda x: jnp.concatenate([jnp.sinh(x), jnp.cosh(x), jnp.tanh(9 * x - 9), jnp.arcsinh(x)]),
    "activations": lambda x: jnp.concatenate([jax.nn.sigmoid(x), jax.nn.softplus(x), jax.nn.gelu(x), jax.nn.silu(x)]),
    "special": lambda x: jnp.concatenate([jax.lax.erf(x), jax.lax.erfc(x), jax.lax.lgamma(x)]),
    "choices": lambda x: jnp.concatenate([jnp.where(x > 1, x, -x), jnp.clip(x, 0.5, 1), jnp.maximum(x, 1.0)]),
    "not numbers": lambda x: jnp.where(jnp.isnan(jnp.maximum(jnp.log(x - 1), 0.0)), 1.0, 2.0),
    "logic": lambda x: ((x > 0.5) & ~(x > 1.0) | (x < 0.3)).astype(x.dtype) + jnp.isfinite(1 / (x - x)),
    "integers": lambda x: ((3 * x).astype(int) // 2 + (5 * x).astype(int) % 3).astype(x.dtype),
    "shapes": lambda x: jnp.concatenate([x.reshape(3, 4).T[::-1].ravel(), jnp.pad(x, (2, 1))[1::2], jnp.tile(x, 2)]),
    "stacks": lambda x: jnp.stack(jnp.split(jnp.roll(x, 2), 3), axis=1),
    "sums": lambda x: jnp.stack([x.sum(), x.prod(), x.max(), x.min(), x.mean(), x.std(), (x > 0.4).all() * 1.0]),
    "long sums": lambda x: jnp.concatenate([large(x).sum(axis=0), large(x).max(axis=1), large(x).min()[None]]),
    "running": lambda x: jnp.concatenate([jnp.cumsum(x), jnp.cumprod(x), jax.lax.cummax(x), jnp.cumsum(x[::-1])]),
    "places": lambda x: jnp.stack([jnp.argmax(x), jnp.argmin(x), jnp.argmax(x.reshape(3, 4), axis=1).sum()]) * 1.0,
    "sorted": lambda x: jnp.concatenate([jnp.sort(x), x[jnp.argsort(x)]]),
    "products": lambda x: jnp.concatenate([(square(x) @ x[:3]), jnp.outer(x, x).ravel(), x @ large(x)]),
    "long products": lambda x: jnp.einsum("ij,kj->ik", large(x), jnp.sin(large(x))),
    "batched products": lambda x: jnp.einsum("bij,bjk->bik", x.reshape(3, 2, 2), jnp.cos(x).reshape(3, 2, 2)),
    "known index": lambda x: x[jnp.array([3, 1, 1])] + x.at[2].set(5.0)[:3] + x.at[jnp.array([0, 0])].add(1.0)[:3],
    "computed index": lambda x: x[jnp.argmax(x)] + jax.lax.dynamic_slice(x, (jnp.argmin(x),), (4,)),
    "computed write": lambda x: x.at[jnp.argmax(x)].set(9.0).at[jnp.argmin(x)].add(x[0]),
    "large write": lambda x: large(x).at[jnp.argmax(x)].set(x).at[jnp.argmin(x), 2].mul(3.0),
    "window": lambda x: jax.lax.dynamic_update_slice(x.reshape(3, 4), 7 * x[:2].reshape(1, 2), (jnp.argmax(x[:3]), 1)),
    "while": counted,
    "scan": scanned,
    "vmapped while": lambda x: jax.vmap(lambda v: jax.lax.while_loop(lambda s: s < 5, lambda s: s * 1.5, v))(x),
    "branches": lambda x: jax.lax.switch((2 * x[0]).astype(int), [jnp.sin, jnp.cos, lambda x: x * 2, jnp.exp], x),
    "derivatives": lambda x: jax.jacfwd(lambda x: jnp.tanh(square(x)) @ x[:3])(x) + jax.hessian(jnp.prod)(x[:3]).sum(),
    "cholesky": lambda x: jnp.linalg.cholesky(square(x) @ square(x).T),
    "solve": lambda x: jnp.linalg.solve(large(x), x),
    "triangular": lambda x: jax.scipy.linalg.solve_triangular(large(x), x, trans=1),
    "qr": lambda x: jnp.concatenate([a.ravel() for a in jnp.linalg.qr(large(x)[:, :9])]) ** 2,
    "triangular factor": lambda x: (
        jnp.concatenate(
            [
                jnp.linalg.qr(a, mode="r").ravel()
                for a in (large(x)[:, :9], jnp.where(jnp.eye(N, 5) > 0, large(x)[:, :5], 0))
            ]
        )
        ** 2
    ),
    "nothing to choose": lambda x: jnp.append(jnp.where(x[:0] > 1, x[:0], 2.0), x[0]),
    "eigh": lambda x: jnp.concatenate(
        [jnp.linalg.eigh(large(x) + large(x).T)[0], jnp.linalg.eigh(square(x))[1].ravel() ** 2]
    ),
}


QUICK = ("arithmetic", "hyperbolic", "choices", "logic", "shapes", "sums", "computed write", "while", "scan", "qr")


@needs_compiler
@pytest.mark.parametrize("names", [QUICK, pytest.param(tuple(CASES), marks=pytest.mark.slow)], ids=["quick", "all"])
def test_primitives(names, tmp_path):
    """C and JAX agree up to rounding, for five states, so that all branches are taken."""
    cases = {name: CASES[name] for name in names}

    def observed(x):
        return jnp.concatenate([jnp.ravel(jnp.asarray(case(x), x.dtype)) for case in cases.values()])

    x = np.random.default_rng(3).uniform(0.2, 2.0, (5, N))
    with precision(np.float64):
        sizes = [int(np.prod(jax.eval_shape(case, x[0]).shape)) for case in cases.values()]
        outputs = [f"y{k}" for k in range(sum(sizes))]
        spec = ExportSpec("rules", [f"x{k}" for k in range(N)], [], outputs, 0.1, x[0])
        step = build_step(tw.Twin(lambda x: -x, observe=observed), spec)
        files = write_source(step, tmp_path)
        flags = ["-std=c99", "-O0", "-fPIC", "-shared"]  # three huge functions: optimising them takes minutes
        compiled = compiled_step(files[0], step, flags=flags)
        expected = np.asarray(jax.jit(jax.vmap(observed))(x))
    wrong, ends = {}, np.cumsum(sizes)[:-1]
    for row, values in zip(x, expected, strict=True):
        _, y, status = compiled.init(0.0, row, np.zeros(0), np.zeros(0))
        assert status == 0
        for name, ours, theirs in zip(cases, np.split(y, ends), np.split(values, ends), strict=True):
            off = np.max(np.abs(ours - theirs)) / max(np.max(np.abs(theirs)), 1e-300)
            if not off < 1e-13:
                wrong[name] = off
    assert wrong == {}, wrong


def integers(x):
    """Conversions and operations of integers that C leaves undefined, or that end the process."""
    i, j = x.astype(jnp.int64), (0 * x[::-1]).astype(jnp.int64)
    results = [i, i + 1, i - 1, 3 * i, -i, jnp.abs(i), jax.lax.div(i, j), jax.lax.rem(i, j)]
    results += [jax.lax.div(i, j - 1), jax.lax.rem(i, j - 1), x.astype(jnp.int32), x.astype(jnp.uint8)]
    return jnp.concatenate([result.astype(x.dtype) for result in results] + [jnp.arange(9.0)[i]])


@needs_compiler
def test_integers_beyond_their_limits(tmp_path):
    """C and JAX agree: conversions saturate, sums wrap around, and a division by zero has a result."""
    x = np.array([np.nan, np.inf, -np.inf, 1e300, -1e300, 3e9, -3e9, 2.0**63, -(2.0**63), 2.5, -2.5, 300.0])
    with precision(np.float64):
        outputs = [f"y{k}" for k in range(13 * N)]
        spec = ExportSpec("rules", [f"x{k}" for k in range(N)], [], outputs, 0.1, np.ones(N))
        step = build_step(tw.Twin(lambda x: -x, observe=integers), spec)
        compiled = compiled_step(write_source(step, tmp_path)[0], step, flags=STRICT)
        expected = np.asarray(jax.jit(step.output)(0.0, np.zeros(0), np.zeros(0), x))
    state, y, status = compiled.step(0.0, np.zeros(0), np.zeros(0), np.zeros(0), x)
    np.testing.assert_array_equal(state, x)  # it is not finite: no step was made
    np.testing.assert_array_equal(y, expected)
    assert status


def test_unsupported_primitives_are_named():
    """The message names the primitive and what to do."""
    spec = ExportSpec("unsupported", ["x"], [], ["x"], 0.1, [1.0])
    with pytest.raises(NotExportable, match=r"'erf_inv'.*StableHLO"):
        export_c(tw.Twin(lambda x: jax.lax.erf_inv(x)), spec, "unused")
    with pytest.raises(NotExportable, match="random"):
        export_c(tw.Twin(lambda x: x * jax.random.normal(jax.random.PRNGKey(0))), spec, "unused")
