"""Scalar operations: the C expression of each, its NumPy equivalent for constant folding, and algebraic identities.

To support another elementwise primitive of JAX, add a line to `OPERATIONS` under the name of the primitive.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np


@dataclass(frozen=True)
class Node:
    """One scalar: an operation on other nodes, or one of

    - `constant`: `payload` is the number,
    - `variable`: assigned by a loop or a branch; `payload` is unique,
    - `element` of a buffer: `payload` is (buffer, position),
    - `read` of a buffer at the position `args[0]`: `payload` is the buffer.
    """

    op: str
    args: tuple[int, ...]
    dtype: np.dtype
    payload: Any = None


@dataclass(frozen=True)
class Operation:
    """A scalar operation.

    In `text`, the C expression, {0}, {1}, ... are the operands, {f} is the suffix `f` of a single-precision function,
    {type} the type of the result, {low} and {high} its limits, and @NAME a function of `helpers.c.in`. `fold` computes
    it for constants; `cost` is relative to an addition.
    """

    text: str
    fold: Callable[..., Any]
    cost: int = 1
    boolean: bool = False  # the result is a truth value
    integer: str | None = None  # the C expression for integer operands, if it differs


def _scalar(fn: Callable[[float], float]) -> Callable[[Any], Any]:
    return lambda x: np.asarray(fn(float(x)))


OPERATIONS: dict[str, Operation] = {
    # Integers wrap around as in XLA; in C an overflow of signed ones is undefined, and a division by zero a trap.
    "add": Operation("{0} + {1}", np.add, integer="({type})((uint64_t){0} + (uint64_t){1})"),
    "sub": Operation("{0} - {1}", np.subtract, integer="({type})((uint64_t){0} - (uint64_t){1})"),
    "mul": Operation("{0} * {1}", np.multiply, integer="({type})((uint64_t){0} * (uint64_t){1})"),
    "div": Operation(
        "{0} / {1}", lambda a, b: a / b if a.dtype.kind == "f" else np.trunc(a / b), 5, integer="@idiv({0}, {1})"
    ),
    "neg": Operation("-{0}", np.negative, integer="({type})(0 - (uint64_t){0})"),
    "rem": Operation("fmod{f}({0}, {1})", np.fmod, 10, integer="@irem({0}, {1})"),
    "max": Operation("@max({0}, {1})", np.maximum, 2, integer="@imax({0}, {1})"),
    "min": Operation("@min({0}, {1})", np.minimum, 2, integer="@imin({0}, {1})"),
    "sign": Operation("@sign({0})", np.sign, 2),
    "abs": Operation("fabs{f}({0})", np.abs, integer="({0} < 0 ? ({type})(0 - (uint64_t){0}) : {0})"),
    "floor": Operation("floor{f}({0})", np.floor, 2),
    "ceil": Operation("ceil{f}({0})", np.ceil, 2),
    "round_half_away": Operation("round{f}({0})", lambda x: np.trunc(x + np.copysign(0.5, x)), 2),
    "round_half_even": Operation("rint{f}({0})", np.rint, 2),
    "sqrt": Operation("sqrt{f}({0})", np.sqrt, 5),
    "cbrt": Operation("cbrt{f}({0})", np.cbrt, 10),
    "exp": Operation("exp{f}({0})", np.exp, 10),
    "exp2": Operation("exp2{f}({0})", np.exp2, 10),
    "expm1": Operation("expm1{f}({0})", np.expm1, 10),
    "log": Operation("log{f}({0})", np.log, 10),
    "log1p": Operation("log1p{f}({0})", np.log1p, 10),
    "sin": Operation("sin{f}({0})", np.sin, 10),
    "cos": Operation("cos{f}({0})", np.cos, 10),
    "tan": Operation("tan{f}({0})", np.tan, 10),
    "asin": Operation("asin{f}({0})", np.arcsin, 10),
    "acos": Operation("acos{f}({0})", np.arccos, 10),
    "atan": Operation("atan{f}({0})", np.arctan, 10),
    "sinh": Operation("sinh{f}({0})", np.sinh, 10),
    "cosh": Operation("cosh{f}({0})", np.cosh, 10),
    "asinh": Operation("asinh{f}({0})", np.arcsinh, 10),
    "acosh": Operation("acosh{f}({0})", np.arccosh, 10),
    "atanh": Operation("atanh{f}({0})", np.arctanh, 10),
    "tanh": Operation("@tanh({0})", np.tanh, 10),
    "logistic": Operation("@logistic({0})", lambda x: 1 / (1 + np.exp(-x)), 10),
    "erf": Operation("erf{f}({0})", _scalar(math.erf), 10),
    "erfc": Operation("erfc{f}({0})", _scalar(math.erfc), 10),
    "lgamma": Operation("lgamma{f}({0})", _scalar(math.lgamma), 10),
    "pow": Operation("pow{f}({0}, {1})", np.power, 20),
    "atan2": Operation("atan2{f}({0}, {1})", np.arctan2, 10),
    "nextafter": Operation("nextafter{f}({0}, {1})", np.nextafter, 10),
    "is_finite": Operation("(isfinite({0}) != 0)", np.isfinite, boolean=True),
    "eq": Operation("{0} == {1}", np.equal, boolean=True),
    "ne": Operation("{0} != {1}", np.not_equal, boolean=True),
    "lt": Operation("{0} < {1}", np.less, boolean=True),
    "le": Operation("{0} <= {1}", np.less_equal, boolean=True),
    "gt": Operation("{0} > {1}", np.greater, boolean=True),
    "ge": Operation("{0} >= {1}", np.greater_equal, boolean=True),
    "and": Operation("{0} & {1}", np.bitwise_and),
    "or": Operation("{0} | {1}", np.bitwise_or),
    "xor": Operation("{0} ^ {1}", np.bitwise_xor),
    "not": Operation("!{0}", np.invert, integer="~{0}"),
    "shift_left": Operation("{0} << {1}", np.left_shift),
    "shift_right": Operation("{0} >> {1}", np.right_shift),
    "select": Operation("{0} ? {1} : {2}", np.where),
    "cast": Operation("({type}){0}", lambda x: x),
    "truncate": Operation("({type})@truncate({0}, {low}, {high})", np.nan_to_num, 2),  # to an integer
    "nonzero": Operation("({0} != 0)", lambda x: x != 0, boolean=True),
}

# What an operation simplifies to: a node, a constant, or another operation (name and operands).
Simplified: TypeAlias = int | np.ndarray | tuple[str, tuple[int, ...]] | None


def simplify(op: str, args: tuple[int, ...], operands: Sequence[Node], dtype: np.dtype) -> Simplified:
    """A cheaper equivalent of an operation, or None.

    A product with a constant zero is zero, although 0 * inf is not: derivatives in JAX are full of such products (one
    unit vector after another), and a non-finite value is detected in the value itself, beside its derivative.
    """
    values = [node.payload if node.op == "constant" else None for node in operands]
    if all(value is not None for value in values):
        with np.errstate(all="ignore"):
            return np.asarray(OPERATIONS[op].fold(*values)).astype(dtype)
    if op in ("neg", "not"):
        return operands[0].args[0] if operands[0].op == op else None
    if op == "cast":
        return args[0] if operands[0].dtype == dtype else None
    if op == "select":
        return _simplify_select(args, values, operands[0], dtype)
    if len(args) != 2:
        return None
    for value, this, other in ((values[0], *args), (values[1], *reversed(args))):
        if value is not None and dtype.kind == "b" and op in ("and", "or"):
            return this if bool(value) == (op == "or") else other
        if (op == "add" and _is(value, 0)) or (op == "mul" and _is(value, 1)):
            return other
        if op == "mul" and _is(value, 0):
            return np.zeros((), dtype)
        if op == "mul" and _is(value, -1):
            return "neg", (other,)
    if (op == "sub" and _is(values[1], 0)) or (op == "div" and (_is(values[0], 0) or _is(values[1], 1))):
        return args[0]
    if op == "sub" and _is(values[0], 0):
        return "neg", args[1:]
    if op in ("and", "or") and dtype.kind == "b" and args[0] == args[1]:
        return args[0]
    # Commuted operands give the same node.
    commutes = op in ("add", "mul") or (op in ("and", "or") and dtype.kind == "b")
    return (op, args[::-1]) if commutes and args[0] > args[1] else None


def _simplify_select(args: tuple[int, ...], values: Sequence[Any], condition: Node, dtype: np.dtype) -> Simplified:
    if values[0] is not None:
        return args[1] if values[0] else args[2]
    if args[1] == args[2]:
        return args[1]
    if dtype.kind == "b" and values[1] is not None and values[2] is not None:
        return args[0] if values[1] else ("not", args[:1])
    if condition.op == "not":
        return "select", (condition.args[0], args[2], args[1])
    return None


def _is(value: Any, number: int) -> bool:
    return value is not None and bool(value == number)
