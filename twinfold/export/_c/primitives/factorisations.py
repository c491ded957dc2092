"""Factorisations and triangular solves: calls of the C functions in `helpers.c.in`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.export._c.arrays import contiguous
from twinfold.export._c.graph import Graph, Nodes, Statement, buffer_key
from twinfold.export._c.lowering import USED, rule
from twinfold.export._c.writer import Writer, emit
from twinfold.export._report import NotExportable


@dataclass
class HelperCall(Statement):
    """A call of a helper: sizes, then the buffers that it reads, then those that it fills."""

    helper: str
    sizes: tuple[int, ...]
    inputs: list[int]
    outputs: list[int]

    def reads(self, graph: Graph) -> set[int]:
        return {buffer_key(buffer) for buffer in self.inputs}

    def defines(self) -> set[int]:
        return {buffer_key(buffer) for buffer in self.outputs}

    def cost(self, graph: Graph) -> int:
        return 10 * int(np.prod(self.sizes)) ** 2


@emit.register(HelperCall)
def _helper_call(statement: HelperCall, out: Writer) -> None:
    outputs = [out.declare(buffer) for buffer in statement.outputs]
    args = [*map(str, statement.sizes), *(out.buffer(buffer) for buffer in statement.inputs), *outputs]
    out.line(f"{out.helper(statement.helper)}({', '.join(args)});")


def _call(
    graph: Graph, helper: str, sizes: tuple, inputs: list[Nodes], shapes: list[tuple], *dtypes: Any
) -> list[Nodes]:
    """Call a helper once; the results have these shapes and dtypes."""
    outputs = [graph.buffer(int(np.prod(s, dtype=int)), dtype) for s, dtype in zip(shapes, dtypes, strict=True)]
    graph.add(HelperCall(helper, sizes, [contiguous(graph, value) for value in inputs], outputs))
    return [graph.elements(buffer, shape) for buffer, shape in zip(outputs, shapes, strict=True)]


def _batched(graph: Graph, x: Nodes, helper: str, sizes: tuple, shapes: list[tuple], *dtypes: Any) -> list[Nodes]:
    """Call a helper for each matrix of a batch."""
    matrices = x.reshape(-1, *x.shape[-2:])
    results = [_call(graph, helper, sizes, [matrix], shapes, *dtypes) for matrix in matrices]
    return [np.stack(each).reshape(*x.shape[:-2], *each[0].shape) for each in zip(*results, strict=True)]


@rule("eigh")
def _eigh(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    n = x.shape[-1]
    stored = np.tri(n, dtype=bool) if params["lower"] else np.tri(n, dtype=bool).T
    symmetric = np.where(stored, x, np.swapaxes(x, -1, -2))
    return _batched(graph, symmetric, "eigh", (n,), [(n, n), (n,)], dtype, dtype)


@rule("qr")
def _qr(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    rows, columns = x.shape[-2:]
    if (params["full_matrices"] and rows != columns) or params.get("pivoting") or rows < columns:
        raise NotExportable(
            "export to C: a QR factorisation with more columns than rows, with pivoting or with a full Q is not "
            'supported; use `jnp.linalg.qr(a, mode="reduced")` of a tall matrix.'
        )
    if not params[USED][0]:  # as in `jnp.linalg.qr(a, mode="r")`
        (upper,) = _batched(graph, x, "qr_r", (rows, columns), [(columns, columns)], dtype)
        return [graph.full(x.shape, 0, dtype), upper]
    return _batched(graph, x, "qr", (rows, columns), [(rows, columns), (columns, columns)], dtype, dtype)


@rule("cholesky")
def _cholesky(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    n = x.shape[-1]
    return _batched(graph, x, "cholesky", (n,), [(n, n)], dtype)


@rule("lu")
def _lu(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    n = x.shape[-1]
    return _batched(graph, x, "lu", (n,), [(n, n), (n,), (n,)], dtype, np.int32, np.int32)


@rule("lu_pivots_to_permutation")
def _permutation(graph: Graph, params: Any, dtype: np.dtype, pivots: Nodes) -> list[Nodes]:
    n, size = pivots.shape[-1], params["permutation_size"]
    return _batched(graph, pivots[..., None, :], "permutation", (n, size), [(size,)], dtype)


@rule("triangular_solve")
def _triangular_solve(graph: Graph, params: Any, dtype: np.dtype, a: Nodes, b: Nodes) -> list[Nodes]:
    if not params["left_side"]:  # x a = b is a' x' = b'
        flipped = dict(params, left_side=True, transpose_a=not params["transpose_a"])
        return [np.swapaxes(_triangular_solve(graph, flipped, dtype, a, np.swapaxes(b, -1, -2))[0], -1, -2)]
    lower = params["lower"]
    if params["transpose_a"]:
        a, lower = np.swapaxes(a, -1, -2), not lower
    n, columns = b.shape[-2:]
    order = slice(None) if lower else slice(None, None, -1)  # an upper matrix backwards is lower
    sizes, results = (n, columns, int(params["unit_diagonal"])), []
    for matrix, sides in zip(a.reshape(-1, n, n), b.reshape(-1, n, columns), strict=True):
        inputs = [matrix[order, order], sides[order]]
        (x,) = _call(graph, "lower_solve", sizes, inputs, [(n, columns)], dtype)
        results.append(x[order])
    return [np.stack(results).reshape(b.shape)]
