"""Elementwise primitives: those in `OPERATIONS`, by name, and those composed of several operations."""

from typing import Any

import numpy as np

from twinfold.export._c.arrays import elementwise
from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._c.lowering import rule
from twinfold.export._c.scalars import OPERATIONS

_SAME_OPERATION = {"add_any": "add", "shift_right_logical": "shift_right", "shift_right_arithmetic": "shift_right"}


@rule(**{name: name for name in OPERATIONS} | _SAME_OPERATION)
def _operation(graph: Graph, params: Any, dtype: np.dtype, *args: Nodes, op: str) -> list[Nodes]:
    return [elementwise(graph, op, *args)]


@rule("copy", "stop_gradient", "optimization_barrier", "reduce_precision", "real", "nonbatchable")
def _identity(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    return list(args)


@rule("round")
def _round(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    even = "EVEN" in str(params["rounding_method"])
    return [elementwise(graph, "round_half_even" if even else "round_half_away", x)]


@rule("square")
def _square(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    return [elementwise(graph, "mul", x, x)]


@rule("rsqrt")
def _rsqrt(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    return [elementwise(graph, "div", graph.full(x.shape, 1, dtype), elementwise(graph, "sqrt", x))]


@rule("integer_pow")
def _integer_pow(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    result, square, exponent = None, x, abs(params["y"])
    while exponent:
        if exponent % 2:
            result = square if result is None else elementwise(graph, "mul", result, square)
        exponent //= 2
        square = elementwise(graph, "mul", square, square) if exponent else square
    one = graph.full(x.shape, 1, dtype)
    result = one if result is None else result
    return [elementwise(graph, "div", one, result) if params["y"] < 0 else result]


@rule("clamp")
def _clamp(graph: Graph, params: Any, dtype: np.dtype, low: Nodes, x: Nodes, high: Nodes) -> list[Nodes]:
    return [elementwise(graph, "min", elementwise(graph, "max", x, low), high)]


@rule("select_n")
def _select_n(graph: Graph, params: Any, dtype: np.dtype, which: Nodes, *cases: Nodes) -> list[Nodes]:
    if not cases[0].size:
        return [cases[0]]
    index = graph.dtype(which)
    if index.kind == "b":
        return [elementwise(graph, "select", which, cases[1], cases[0])]
    result = cases[-1]
    for k in range(len(cases) - 2, -1, -1):
        here = elementwise(graph, "eq", which, graph.full(which.shape, k, index))
        result = elementwise(graph, "select", here, cases[k], result)
    return [result]


@rule("convert_element_type")
def _convert(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    given = graph.dtype(x) if x.size else dtype
    if given == dtype:
        return [x]
    if dtype.kind == "b":
        return [elementwise(graph, "nonzero", x)]
    to_integer = given.kind == "f" and dtype.kind in "iu"
    return [elementwise(graph, "truncate" if to_integer else "cast", x, dtype=dtype)]
