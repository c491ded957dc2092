"""Products, reductions and scans along an axis: in scalars where they are small, else as loops."""

from typing import Any

import numpy as np

from twinfold.export._c.arrays import LARGE, access, along, computed, elementwise
from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._c.interpret import NotExportable
from twinfold.export._c.rules import rule, rule_with
from twinfold.export._c.statements import Product, Reduction

WORK = 40  # multiplications beyond which a product is a loop


@rule("dot_general")
def _dot_general(graph: Graph, params: Any, dtype: np.dtype, left: Nodes, right: Nodes) -> list[Nodes]:
    (inner_l, inner_r), (batch_l, batch_r) = params["dimension_numbers"]
    free_l = [axis for axis in range(left.ndim) if axis not in (*inner_l, *batch_l)]
    free_r = [axis for axis in range(right.ndim) if axis not in (*inner_r, *batch_r)]
    shape = [left.shape[k] for k in (*batch_l, *free_l)] + [right.shape[k] for k in free_r]
    a = left.transpose([*batch_l, *free_l, *inner_l])
    b = right.transpose([*batch_r, *inner_r, *free_r])
    batch, rows, columns, inner = (
        int(np.prod([array.shape[k] for k in axes], dtype=int))
        for array, axes in ((left, batch_l), (left, free_l), (right, free_r), (left, inner_l))
    )
    a, b = a.reshape(batch, rows, inner), b.reshape(batch, inner, columns)
    if batch * rows * columns * inner == 0:
        return [graph.constants(np.zeros(shape, dtype))]
    return [_product(graph, a, b, dtype).reshape(shape)]


def _product(graph: Graph, a: Nodes, b: Nodes, dtype: np.dtype) -> Nodes:
    batch, rows, inner = a.shape
    columns = b.shape[2]
    known = graph.numbers(a), graph.numbers(b)
    if known[0] is not None and known[1] is not None:
        return graph.constants((known[0] @ known[1]).astype(dtype))
    work = batch * rows * columns * inner
    for numbers in known:
        # Unit vectors and the like leave little to multiply.
        if numbers is not None:
            work = int(work * np.count_nonzero(numbers) / numbers.size)
    if work > WORK or (work > WORK // 2 and computed(graph, a) and computed(graph, b)):
        left = access(graph, a if columns > 1 else a.transpose(0, 2, 1))
        right = access(graph, b)
        if columns == 1:  # the rows of a matrix lie next to each other in memory: the loop over them is the inner one
            batch_step, inner_step, row_step = left.strides
            left = type(left)(left.buffer, left.node, left.offset, (batch_step, row_step, inner_step))
        out = graph.buffer(batch * rows * columns, dtype)
        graph.add(Product(out, (batch, rows, columns, inner), left, right))
        return graph.elements(out, (batch, rows, columns))
    products = graph.map("mul", a[:, :, :, None], b[:, None, :, :])
    return _folded(graph, "add", products, 2)


@rule_with(
    {f"reduce_{name}": name for name in ("max", "min", "and", "or", "xor")}
    | {"reduce_sum": "add", "reduce_prod": "mul"}
)
def _reduce(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *, op: str) -> list[Nodes]:
    axes = list(params["axes"])
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    shape = tuple(x.shape[k] for k in kept)
    moved = x.transpose([*kept, *axes])
    if x.size == 0:
        empty = {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf, "and": True, "or": False, "xor": False}[op]
        return [graph.constants(np.full(shape, empty, dtype))]
    if x.size <= LARGE or graph.numbers(x) is not None:
        return [_folded(graph, op, moved.reshape(*shape, -1), len(shape))]
    out = graph.buffer(int(np.prod(shape, dtype=int)), dtype)
    graph.add(Reduction(out, op, shape, tuple(x.shape[k] for k in axes), access(graph, moved)))
    return [graph.elements(out, shape)]


def _folded(graph: Graph, op: str, x: Nodes, axis: int) -> Nodes:
    parts = along(x, axis)
    result = parts[0]
    for part in parts[1:]:
        result = elementwise(graph, op, result, part)
    return result


@rule_with({"unvmap_any": "or", "unvmap_all": "and", "unvmap_max": "max"})
def _over_all(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *, op: str) -> list[Nodes]:
    """What Equinox asks of a whole batch; here there is none."""
    return [_folded(graph, op, x.reshape(-1), 0)]


@rule_with({"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"})
def _cumulative(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *, op: str) -> list[Nodes]:
    parts = along(x, params["axis"])
    parts = parts[::-1] if params["reverse"] else parts
    results = [parts[0]]
    for part in parts[1:]:
        results.append(elementwise(graph, op, results[-1], part))
    return [np.stack(results[::-1] if params["reverse"] else results, axis=params["axis"])]


@rule_with({"argmax": "gt", "argmin": "lt"})
def _argbest(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *, op: str) -> list[Nodes]:
    parts = along(x, params["axes"][0])
    best, place = parts[0], np.broadcast_to(graph.constant(np.asarray(0, dtype)), parts[0].shape)
    for k, part in enumerate(parts[1:], start=1):
        # The first that is not a number wins over all.
        lost = elementwise(graph, "and", elementwise(graph, "ne", part, part), elementwise(graph, "eq", best, best))
        better = elementwise(graph, "or", elementwise(graph, op, part, best), lost)
        best = elementwise(graph, "select", better, part, best)
        here = np.broadcast_to(graph.constant(np.asarray(k, dtype)), place.shape)
        place = elementwise(graph, "select", better, here, place)
    return [place]


@rule("sort")
def _sort(graph: Graph, params: Any, dtype: np.dtype, *args: Nodes) -> list[Nodes]:
    """By exchanges of neighbours: as many rounds as there are elements."""
    axis, count = params["dimension"], args[0].shape[params["dimension"]]
    if params["num_keys"] != 1 or count > LARGE:
        raise NotExportable(
            f"export to C: a sort of {count} elements by {params['num_keys']} keys; at most {LARGE} by one."
        )
    columns = [along(arg, axis) for arg in args]
    for start in range(count):
        for k in range(start % 2, count - 1, 2):
            exchange = elementwise(graph, "gt", columns[0][k], columns[0][k + 1])
            for column in columns:
                low, high = column[k], column[k + 1]
                column[k] = elementwise(graph, "select", exchange, high, low)
                column[k + 1] = elementwise(graph, "select", exchange, low, high)
    return [np.stack(column, axis=axis) for column in columns]
