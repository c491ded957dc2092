"""Matrix products: the rule of `dot_general`, and the C loops of a large product."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twinfold.export._c.arrays import Access, access, affine, in_memory
from twinfold.export._c.graph import BufferStatement, Graph, Nodes
from twinfold.export._c.lowering import rule
from twinfold.export._c.primitives.reductions import fold
from twinfold.export._c.writer import Writer, emit

MAX_UNROLLED_MULTIPLICATIONS = 40  # a larger product is a loop; half of it, if both factors are in memory


@dataclass
class Product(BufferStatement):
    """Matrix products: out[b, i, j] = sum_k left[b, i, k] right[b, k, j]."""

    sizes: tuple[int, int, int, int]  # batch b, rows i, columns j, inner k
    left: Access
    right: Access

    def reads(self, graph: Graph) -> set[int]:
        return self.left.reads(graph) | self.right.reads(graph)

    def cost(self, graph: Graph) -> int:
        return int(np.prod(self.sizes))


@emit.register(Product)
def _loops(statement: Product, out: Writer) -> None:
    name = out.declare(statement.buffer)
    size = dict(zip("bijk", statement.sizes, strict=True))
    _, rows, columns, _ = statement.sizes
    # The innermost loop runs along memory.
    counters = "".join(c for c in ("bkij" if columns == 1 else "bikj") if size[c] > 1)

    def strides(letters: str, given: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(stride if size[c] > 1 else 0 for c, stride in zip(letters, given, strict=True))

    def factor(operand: Access, letters: str) -> str:
        return replace(operand, strides=strides(letters, operand.strides)).text(out, letters)

    out.line(f"for (int i = 0; i < {out.graph.buffers[statement.buffer].size}; i++) {name}[i] = 0;")
    with out.loops(counters, [size[c] for c in counters]):
        target = affine(strides("bij", (rows * columns, columns, 1)), "bij")
        out.line(f"{name}[{target}] += {factor(statement.left, 'bik')} * {factor(statement.right, 'bkj')};")


@rule("dot_general")
def _dot_general(graph: Graph, params: Any, dtype: np.dtype, left: Nodes, right: Nodes) -> list[Nodes]:
    (inner_l, inner_r), (batch_l, batch_r) = params["dimension_numbers"]
    free_l = [axis for axis in range(left.ndim) if axis not in (*inner_l, *batch_l)]
    free_r = [axis for axis in range(right.ndim) if axis not in (*inner_r, *batch_r)]
    shape = [left.shape[k] for k in (*batch_l, *free_l)] + [right.shape[k] for k in free_r]
    batch, rows, columns, inner = (
        int(np.prod([array.shape[k] for k in axes], dtype=int))
        for array, axes in ((left, batch_l), (left, free_l), (right, free_r), (left, inner_l))
    )
    if batch * rows * columns * inner == 0:
        return [graph.full(shape, 0, dtype)]
    a = left.transpose([*batch_l, *free_l, *inner_l]).reshape(batch, rows, inner)
    b = right.transpose([*batch_r, *inner_r, *free_r]).reshape(batch, inner, columns)
    return [_product(graph, a, b, dtype).reshape(shape)]


def _product(graph: Graph, a: Nodes, b: Nodes, dtype: np.dtype) -> Nodes:
    """Products of matrices in a batch: constant, unrolled, or as a loop."""
    sizes = batch, rows, columns, inner = (*a.shape[:2], b.shape[2], a.shape[2])
    constants = graph.numbers(a), graph.numbers(b)
    if constants[0] is not None and constants[1] is not None:
        return graph.constants((constants[0] @ constants[1]).astype(dtype))
    work = batch * rows * columns * inner
    for numbers in constants:
        if numbers is not None:  # unit vectors and the like: a product with zero is not written
            work = work * np.count_nonzero(numbers) // numbers.size
    limit = MAX_UNROLLED_MULTIPLICATIONS // (2 if in_memory(graph, a) and in_memory(graph, b) else 1)
    if work <= limit:
        return fold(graph, "add", graph.map("mul", a[:, :, :, None], b[:, None, :, :]), 2)
    if columns == 1:  # store a constant matrix by columns: the inner loop is that over its rows
        left = access(graph, a.transpose(0, 2, 1))
        left = replace(left, strides=tuple(left.strides[k] for k in (0, 2, 1)))
    else:
        left = access(graph, a)
    right = access(graph, b)
    out = graph.buffer(batch * rows * columns, dtype)
    graph.add(Product(out, sizes, left, right))
    return graph.elements(out, (batch, rows, columns))
