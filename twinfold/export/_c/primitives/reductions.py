"""Reductions along axes, cumulative operations, argmax and sort."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from twinfold.export._c.arrays import (
    COUNTERS,
    MAX_UNROLLED_ELEMENTS,
    Access,
    access,
    affine,
    elementwise,
    row_major,
    unstack,
)
from twinfold.export._c.graph import BufferStatement, Graph, Nodes
from twinfold.export._c.lowering import rule
from twinfold.export._c.writer import Writer, c_type, emit, literal
from twinfold.export._report import NotExportable


@dataclass
class Reduction(BufferStatement):
    """out[i] = op over all j of operand[i, j]."""

    op: str
    outer: tuple[int, ...]
    reduced: tuple[int, ...]
    operand: Access

    def reads(self, graph: Graph) -> set[int]:
        return self.operand.reads(graph)

    def cost(self, graph: Graph) -> int:
        return 10


@emit.register(Reduction)
def _loops(statement: Reduction, out: Writer) -> None:
    name, dtype = out.declare(statement.buffer), out.graph.buffers[statement.buffer].dtype
    depth = len(statement.outer)
    counters = COUNTERS[: depth + len(statement.reduced)]
    with out.loops(counters[:depth], statement.outer):
        out.line(f"{c_type(dtype)} sum = {literal(_identity(statement.op, dtype), dtype)};")
        with out.loops(counters[depth:], statement.reduced):
            operands = ["sum", statement.operand.text(out, counters)]
            out.line(f"sum = {out.operation(statement.op, operands, dtype, dtype)};")
        out.line(f"{name}[{affine(row_major(statement.outer), counters[:depth])}] = sum;")


def _identity(op: str, dtype: np.dtype) -> Any:
    """The value of a reduction over nothing."""
    if op in ("max", "min"):
        ends = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return ends[op == "min"]
    return {"add": 0, "mul": 1, "and": 1, "or": 0, "xor": 0}[op]


@rule(reduce_sum="add", reduce_prod="mul", **{f"reduce_{op}": op for op in ("max", "min", "and", "or", "xor")})
def _reduce(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *, op: str) -> list[Nodes]:
    axes = list(params["axes"])
    outer = [axis for axis in range(x.ndim) if axis not in axes]
    shape = tuple(x.shape[k] for k in outer)
    moved = x.transpose([*outer, *axes])
    if x.size == 0:
        return [graph.full(shape, _identity(op, dtype), dtype)]
    if x.size <= MAX_UNROLLED_ELEMENTS or graph.numbers(x) is not None:
        return [fold(graph, op, moved.reshape(*shape, -1), len(shape))]
    out = graph.buffer(int(np.prod(shape, dtype=int)), dtype)
    graph.add(Reduction(out, op, shape, tuple(x.shape[k] for k in axes), access(graph, moved)))
    return [graph.elements(out, shape)]


def fold(graph: Graph, op: str, x: Nodes, axis: int) -> Nodes:
    """An operation applied to the slices of an array along an axis, one after the other."""
    return _running(graph, op, unstack(x, axis))[-1]


def _running(graph: Graph, op: str, parts: list[Nodes]) -> list[Nodes]:
    results = parts[:1]
    for part in parts[1:]:
        results.append(elementwise(graph, op, results[-1], part))
    return results


@rule(unvmap_any="or", unvmap_all="and", unvmap_max="max")
def _unvmap(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *, op: str) -> list[Nodes]:
    """What Equinox reduces over a batch; a step has no batch."""
    return [fold(graph, op, x.reshape(-1), 0)]


@rule(cumsum="add", cumprod="mul", cummax="max", cummin="min")
def _cumulative(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *, op: str) -> list[Nodes]:
    order = -1 if params["reverse"] else 1
    results = _running(graph, op, unstack(x, params["axis"])[::order])
    return [np.stack(results[::order], axis=params["axis"])]


@rule(argmax="gt", argmin="lt")
def _arg_extremum(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *, op: str) -> list[Nodes]:
    parts = unstack(x, params["axes"][0])
    best, place = parts[0], graph.full(parts[0].shape, 0, dtype)
    for k, part in enumerate(parts[1:], start=1):
        # As in NumPy, the first NaN wins.
        first_nan = elementwise(
            graph, "and", elementwise(graph, "ne", part, part), elementwise(graph, "eq", best, best)
        )
        better = elementwise(graph, "or", elementwise(graph, op, part, best), first_nan)
        best = elementwise(graph, "select", better, part, best)
        place = elementwise(graph, "select", better, graph.full(place.shape, k, dtype), place)
    return [place]


@rule("sort")
def _sort(graph: Graph, params: Any, dtype: np.dtype, *args: Nodes) -> list[Nodes]:
    """Odd-even transposition sort: as many rounds as there are elements."""
    axis, count = params["dimension"], args[0].shape[params["dimension"]]
    if params["num_keys"] != 1 or count > MAX_UNROLLED_ELEMENTS:
        raise NotExportable(
            f"export to C: a sort of {count} elements by {params['num_keys']} keys is not supported; use one key and "
            f"at most {MAX_UNROLLED_ELEMENTS} elements."
        )
    columns = [unstack(arg, axis) for arg in args]
    for start in range(count):
        for k in range(start % 2, count - 1, 2):
            exchange = elementwise(graph, "gt", columns[0][k], columns[0][k + 1])
            for column in columns:
                low, high = column[k], column[k + 1]
                column[k] = elementwise(graph, "select", exchange, high, low)
                column[k + 1] = elementwise(graph, "select", exchange, low, high)
    return [np.stack(column, axis=axis) for column in columns]
