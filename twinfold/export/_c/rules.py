"""The rules of the primitives: for each, the nodes of its results from those of its operands."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.export._c.arrays import elementwise
from twinfold.export._c.graph import Graph, Nodes

Rule = Callable[..., list[Nodes]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a function of (graph, params, result dtype, operands...) for these primitives."""

    def register(fn: Rule) -> Rule:
        for name in names:
            RULES[name] = fn
        return fn

    return register


def rule_with(op_of: dict[str, str]) -> Callable[[Rule], Rule]:
    """Register a function that is also told the operation `op=` that belongs to each primitive."""

    def register(fn: Rule) -> Rule:
        for name, op in op_of.items():
            RULES[name] = functools.partial(fn, op=op)
        return fn

    return register


# Primitives that are one scalar operation of the same or another name.
_SAME = [
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "max",
    "min",
    "sign",
    "floor",
    "ceil",
    "sqrt",
    "cbrt",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "tanh",
    "logistic",
    "erf",
    "erfc",
    "lgamma",
    "pow",
    "atan2",
    "nextafter",
    "is_finite",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "xor",
    "shift_left",
]
_OTHER = {"add_any": "add", "shift_right_logical": "shift_right", "shift_right_arithmetic": "shift_right"}


@rule_with({name: name for name in _SAME} | _OTHER)
def _operation(graph: Graph, params: Any, dtype: np.dtype, *args: Nodes, op: str) -> list[Nodes]:
    return [elementwise(graph, op, *args)]


@rule("copy", "stop_gradient", "optimization_barrier", "reduce_precision", "real", "nonbatchable")
def _nothing(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    return list(args)


@rule("abs")
def _abs(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    return [elementwise(graph, "abs" if dtype.kind == "f" else "magnitude", x)]


@rule("rem")
def _rem(graph: Graph, params: Any, dtype: np.dtype, a: Nodes, b: Nodes) -> list[Nodes]:
    return [elementwise(graph, "rem" if dtype.kind == "f" else "mod", a, b)]


@rule("round")
def _round(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    return [elementwise(graph, "rint" if "EVEN" in str(params["rounding_method"]) else "round", x)]


@rule("not")
def _not(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    return [elementwise(graph, "not" if dtype.kind == "b" else "complement", x)]


@rule("square")
def _square(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    return [elementwise(graph, "mul", x, x)]


@rule("rsqrt")
def _rsqrt(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    one = np.broadcast_to(graph.constant(np.ones((), dtype)), x.shape)
    return [elementwise(graph, "div", one, elementwise(graph, "sqrt", x))]


@rule("integer_pow")
def _integer_pow(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    one = np.broadcast_to(graph.constant(np.ones((), dtype)), x.shape)
    result, square, left = None, x, abs(params["y"])
    while left:
        if left % 2:
            result = square if result is None else elementwise(graph, "mul", result, square)
        left //= 2
        square = elementwise(graph, "mul", square, square) if left else square
    result = one if result is None else result
    return [elementwise(graph, "div", one, result) if params["y"] < 0 else result]


@rule("clamp")
def _clamp(graph: Graph, params: Any, dtype: np.dtype, low: Nodes, x: Nodes, high: Nodes) -> list[Nodes]:
    return [elementwise(graph, "min", elementwise(graph, "max", x, low), high)]


@rule("select_n")
def _select_n(graph: Graph, params: Any, dtype: np.dtype, which: Nodes, *cases: Nodes) -> list[Nodes]:
    if graph.nodes[int(which.reshape(-1)[0])].dtype == bool:
        return [elementwise(graph, "select", which, cases[1], cases[0])]
    result = cases[-1]
    for k in range(len(cases) - 2, -1, -1):
        here = elementwise(graph, "eq", which, _like(graph, which, k))
        result = elementwise(graph, "select", here, cases[k], result)
    return [result]


@rule("convert_element_type")
def _convert(graph: Graph, params: Any, dtype: np.dtype, x: Nodes) -> list[Nodes]:
    if dtype.kind == "b" and not _all_truths(graph, x):
        return [elementwise(graph, "truth", x)]
    return [_cast(graph, x, dtype)]


def _cast(graph: Graph, x: Nodes, dtype: np.dtype) -> Nodes:
    if x.size and graph.nodes[int(x.reshape(-1)[0])].dtype == dtype:
        return x
    return elementwise(graph, "cast", x, dtype=dtype)


def _all_truths(graph: Graph, x: Nodes) -> bool:
    return all(graph.nodes[node].dtype == bool for node in x.reshape(-1).tolist())


def _like(graph: Graph, which: Nodes, number: int) -> Nodes:
    dtype = graph.nodes[int(which.reshape(-1)[0])].dtype
    return np.broadcast_to(graph.constant(np.asarray(number, dtype)), which.shape)
