"""Factorisations: calls of the helpers in `library.py`."""

from typing import Any

import numpy as np

from twinfold.export._c.arrays import contiguous
from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._c.interpret import NotExportable
from twinfold.export._c.rules import rule
from twinfold.export._c.statements import Call


def _batched(
    graph: Graph, matrices: Nodes, helper: str, sizes: Any, shapes: list[tuple], dtypes: list[Any]
) -> list[Nodes]:
    """A helper applied to each matrix of a stack."""
    lead = matrices.shape[:-2]
    results: list[list[Nodes]] = [[] for _ in shapes]
    for matrix in matrices.reshape(-1, *matrices.shape[-2:]):
        fills = [graph.buffer(int(np.prod(s, dtype=int)), d) for s, d in zip(shapes, dtypes, strict=True)]
        graph.add(Call(helper, sizes, [contiguous(graph, matrix)], fills))
        for found, fill, shape in zip(results, fills, shapes, strict=True):
            found.append(graph.elements(fill, shape))
    return [np.stack(found).reshape(*lead, *shape) for found, shape in zip(results, shapes, strict=True)]


@rule("eigh")
def _eigh(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    n = x.shape[-1]
    lower = np.tril(np.ones((n, n), bool))
    stored = lower if params["lower"] else lower.T
    x = np.where(stored, x, np.swapaxes(x, -1, -2))
    return _batched(graph, x, "eigh", (n,), [(n, n), (n,)], [dtype, dtype])


@rule("qr")
def _qr(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    rows, columns = x.shape[-2:]
    if (params["full_matrices"] and rows != columns) or params.get("pivoting") or rows < columns:
        raise NotExportable("export to C: a QR factorisation with more columns than rows, pivots or a full Q.")
    return _batched(graph, x, "qr", (rows, columns), [(rows, columns), (columns, columns)], [dtype, dtype])


@rule("cholesky")
def _cholesky(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    n = x.shape[-1]
    return _batched(graph, x, "cholesky", (n,), [(n, n)], [dtype])


@rule("lu")
def _lu(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    n = x.shape[-1]
    kinds = [dtype, np.dtype(np.int32), np.dtype(np.int32)]
    return _batched(graph, x, "lu", (n,), [(n, n), (n,), (n,)], kinds)


@rule("lu_pivots_to_permutation")
def _permutation(graph: Graph, params: Any, dtype: np.dtype, pivots: Nodes) -> list[Nodes]:
    n, size = pivots.shape[-1], params["permutation_size"]
    return _batched(graph, pivots[..., None, :], "permutation", (n, size), [(size,)], [dtype])


@rule("triangular_solve")
def _triangular_solve(graph: Graph, params: Any, dtype: np.dtype, a: Nodes, b: Nodes) -> list[Nodes]:
    if not params["left_side"]:  # x a = b is a' x' = b'
        flipped = dict(params, left_side=True, transpose_a=not params["transpose_a"])
        return [np.swapaxes(_triangular_solve(graph, flipped, dtype, a, np.swapaxes(b, -1, -2))[0], -1, -2)]
    lower = params["lower"]
    if params["transpose_a"]:
        a, lower = np.swapaxes(a, -1, -2), not lower
    n, columns = b.shape[-2:]
    results = []
    for matrix, sides in zip(a.reshape(-1, n, n), b.reshape(-1, n, columns), strict=True):
        if not lower:
            matrix, sides = matrix[::-1, ::-1], sides[::-1]
        out = graph.buffer(n * columns, dtype)
        reads = [contiguous(graph, matrix), contiguous(graph, sides)]
        graph.add(Call("lower_solve", (n, columns, int(params["unit_diagonal"])), reads, [out]))
        found = graph.elements(out, (n, columns))
        results.append(found if lower else found[::-1])
    return [np.stack(results).reshape(b.shape)]
