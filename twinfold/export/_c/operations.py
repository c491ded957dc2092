"""The scalar operations: how each is written in C, how it is computed in advance, and what is simpler.

A product with a constant zero is zero. The derivatives of JAX are full of these (one unit vector after another), and a
number that is not finite is found in the value itself, beside its derivative.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from twinfold.export._c.graph import Graph


@dataclass(frozen=True)
class Operation:
    """`text` in C, with {0}, {1}, ... for the operands and {f} for the `f` of single precision; `cost` in additions."""

    text: str
    known: Callable[..., Any]
    cost: int = 1
    truth: bool = False  # whether the result is a truth value
    helper: str | None = None  # the function of `library.py` that it calls


def _function(name: str, known: Callable[..., Any], operands: int = 1, cost: int = 10) -> Operation:
    return Operation(f"{name}{{f}}({', '.join(f'{{{k}}}' for k in range(operands))})", known, cost)


def _own(name: str, known: Callable[..., Any], operands: int = 1, cost: int = 2) -> Operation:
    text = f"@{name}({', '.join(f'{{{k}}}' for k in range(operands))})"
    return Operation(text, known, cost, helper=name)


def _vector(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: np.asarray(fn(float(x)))


OPERATIONS: dict[str, Operation] = {
    "add": Operation("{0} + {1}", np.add),
    "sub": Operation("{0} - {1}", np.subtract),
    "mul": Operation("{0} * {1}", np.multiply),
    "div": Operation("{0} / {1}", lambda a, b: a / b if a.dtype.kind == "f" else np.trunc(a / b), 5),
    "neg": Operation("-{0}", np.negative),
    "rem": Operation("fmod{f}({0}, {1})", np.fmod, 10),
    "mod": Operation("{0} % {1}", np.fmod, 5),
    "max": _own("max", np.maximum, 2),
    "min": _own("min", np.minimum, 2),
    "sign": _own("sign", np.sign),
    "abs": Operation("fabs{f}({0})", np.abs),
    "magnitude": Operation("({0} < 0 ? -{0} : {0})", np.abs),  # of an integer
    "floor": _function("floor", np.floor, cost=2),
    "ceil": _function("ceil", np.ceil, cost=2),
    "round": _function("round", lambda x: np.trunc(x + np.copysign(0.5, x)), cost=2),
    "rint": _function("rint", np.rint, cost=2),
    "sqrt": _function("sqrt", np.sqrt, cost=5),
    "cbrt": _function("cbrt", np.cbrt),
    "exp": _function("exp", np.exp),
    "exp2": _function("exp2", np.exp2),
    "expm1": _function("expm1", np.expm1),
    "log": _function("log", np.log),
    "log1p": _function("log1p", np.log1p),
    "sin": _function("sin", np.sin),
    "cos": _function("cos", np.cos),
    "tan": _function("tan", np.tan),
    "asin": _function("asin", np.arcsin),
    "acos": _function("acos", np.arccos),
    "atan": _function("atan", np.arctan),
    "sinh": _function("sinh", np.sinh),
    "cosh": _function("cosh", np.cosh),
    "asinh": _function("asinh", np.arcsinh),
    "acosh": _function("acosh", np.arccosh),
    "atanh": _function("atanh", np.arctanh),
    "tanh": _own("tanh", np.tanh, cost=10),
    "logistic": _own("logistic", lambda x: 1 / (1 + np.exp(-x)), cost=10),
    "erf": _function("erf", _vector(math.erf)),
    "erfc": _function("erfc", _vector(math.erfc)),
    "lgamma": _function("lgamma", _vector(math.lgamma)),
    "pow": _function("pow", np.power, 2, 20),
    "atan2": _function("atan2", np.arctan2, 2),
    "nextafter": _function("nextafter", np.nextafter, 2),
    "is_finite": Operation("(isfinite({0}) != 0)", np.isfinite, truth=True),
    "eq": Operation("{0} == {1}", np.equal, truth=True),
    "ne": Operation("{0} != {1}", np.not_equal, truth=True),
    "lt": Operation("{0} < {1}", np.less, truth=True),
    "le": Operation("{0} <= {1}", np.less_equal, truth=True),
    "gt": Operation("{0} > {1}", np.greater, truth=True),
    "ge": Operation("{0} >= {1}", np.greater_equal, truth=True),
    "and": Operation("{0} & {1}", np.bitwise_and),
    "or": Operation("{0} | {1}", np.bitwise_or),
    "xor": Operation("{0} ^ {1}", np.bitwise_xor),
    "not": Operation("!{0}", np.logical_not, truth=True),
    "complement": Operation("~{0}", np.bitwise_not),
    "shift_left": Operation("{0} << {1}", np.left_shift),
    "shift_right": Operation("{0} >> {1}", np.right_shift),
    "select": Operation("{0} ? {1} : {2}", np.where),
    "cast": Operation("({type}){0}", lambda x: x),
    "truth": Operation("({0} != 0)", lambda x: x != 0, truth=True),
}


def simplified(graph: "Graph", op: str, args: Sequence[int], dtype: np.dtype) -> int | None:
    """The node that an operation comes down to, or None where it has to be computed."""
    values = [graph.value(arg) for arg in args]
    if all(value is not None for value in values):
        with np.errstate(all="ignore"):
            return graph.constant(np.asarray(OPERATIONS[op].known(*values)).astype(dtype))
    rule = _RULES.get(op)
    return None if rule is None else rule(graph, args, values, dtype)


def _is(value: Any, number: int) -> bool:
    return value is not None and bool(value == number)


def _add(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
    if _is(values[0], 0):
        return args[1]
    return args[0] if _is(values[1], 0) else _ordered(graph, "add", args)


def _sub(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
    if _is(values[1], 0):
        return args[0]
    return graph.apply("neg", args[1]) if _is(values[0], 0) else None


def _mul(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
    for value, other in ((values[0], args[1]), (values[1], args[0])):
        if _is(value, 0):
            return graph.constant(np.zeros((), dtype))
        if _is(value, 1):
            return other
        if _is(value, -1):
            return graph.apply("neg", other)
    return _ordered(graph, "mul", args)


def _div(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
    if _is(values[0], 0):
        return args[0]
    return args[0] if _is(values[1], 1) else None


def _inverted(op: str) -> Callable[..., int | None]:
    """Twice the same operation is none."""

    def rule(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
        inner = graph.nodes[args[0]]
        return inner.args[0] if inner.op == op else None

    return rule


def _and(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
    if dtype.kind != "b":
        return None
    for value, this, other in ((values[0], *args), (values[1], *reversed(args))):
        if value is not None:
            return other if value else this
    return args[0] if args[0] == args[1] else _ordered(graph, "and", args)


def _or(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
    if dtype.kind != "b":
        return None
    for value, this, other in ((values[0], *args), (values[1], *reversed(args))):
        if value is not None:
            return this if value else other
    return args[0] if args[0] == args[1] else _ordered(graph, "or", args)


def _select(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
    which, first, second = args
    if values[0] is not None:
        return first if values[0] else second
    if first == second:
        return first
    if dtype.kind == "b" and values[1] is not None and values[2] is not None:
        return which if values[1] else graph.apply("not", which)
    if graph.nodes[which].op == "not":
        return graph.apply("select", graph.nodes[which].args[0], second, first, dtype=dtype)
    return None


def _cast(graph: "Graph", args: Sequence[int], values: Sequence[Any], dtype: np.dtype) -> int | None:
    return args[0] if graph.nodes[args[0]].dtype == dtype else None


def _ordered(graph: "Graph", op: str, args: Sequence[int]) -> int | None:
    """The same sum or product with its operands exchanged is the same node."""
    return graph.apply(op, args[1], args[0]) if args[0] > args[1] else None


_RULES: dict[str, Callable[..., int | None]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": _inverted("neg"),
    "not": _inverted("not"),
    "and": _and,
    "or": _or,
    "select": _select,
    "cast": _cast,
}
