"""C text: types, literals, expressions, and `emit`, which writes a statement.

The module that defines a statement registers its text with `@emit.register`: the loops of a matrix product, for
instance, are in `primitives/products.py`.
"""

import contextlib
import functools
import re
import string
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from twinfold.export._c.graph import Define, Graph, Statement
from twinfold.export._c.scalars import OPERATIONS

_C_TYPES = {
    "float64": "double",
    "float32": "float",
    "bool": "int",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
SAFE_IN_STRING = frozenset(string.ascii_letters + string.digits + " _.,:;'()[]<>=+-*/")


def c_type(dtype: np.dtype) -> str:
    """The C type of a dtype."""
    return _C_TYPES[dtype.name]


def literal(value: Any, dtype: np.dtype) -> str:
    """A number as a C literal that reads back exactly."""
    if dtype.kind != "f":
        return str(int(value))
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = repr(float(value))
    text = text if any(c in text for c in ".en") else text + ".0"
    text += "f" if dtype == np.float32 else ""
    return f"({text})" if text.startswith("-") else text


def string_literal(text: str) -> str:
    """A text as a C string literal.

    Every byte outside `SAFE_IN_STRING` is an octal escape: names come from files that may be hostile, and `??/` is a
    backslash in C99. Three digits end an escape, whatever follows.
    """
    return '"' + "".join(chr(byte) if chr(byte) in SAFE_IN_STRING else f"\\{byte:03o}" for byte in text.encode()) + '"'


def _limits(dtype: np.dtype) -> tuple[str, str]:
    """The C names of the limits of an integer type; both fit into a signed integer of 64 bits."""
    name = dtype.name.upper()
    return "0" if dtype.kind == "u" else f"{name}_MIN", f"{name.removeprefix('U') if '64' in name else name}_MAX"


class Writer:
    """The lines of one C function, with the helpers and tables that they use."""

    def __init__(self, graph: Graph, prefix: str):
        self.graph, self.prefix = graph, prefix
        self.lines: list[str] = []
        self.helpers: set[str] = set()
        self.tables: set[int] = set()
        self.depth = 1

    def line(self, text: str) -> None:
        """Append a line at the present indentation."""
        self.lines.append("    " * self.depth + text)

    def block(self, statements: Iterable[Statement]) -> None:
        """Write statements in order."""
        for statement in statements:
            emit(statement, self)

    @contextlib.contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """Indent what is written inside, between `head {` and `}`."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextlib.contextmanager
    def loops(self, counters: str, sizes: Iterable[int]) -> Iterator[None]:
        """Nested `for` loops, one for each letter of `counters`; plain braces if there are none."""
        heads = [f"for (int {c} = 0; {c} < {size}; {c}++)" for c, size in zip(counters, sizes, strict=True)]
        with contextlib.ExitStack() as stack:
            for head in heads or [""]:
                stack.enter_context(self.braces(head))
            yield

    def declare(self, buffer: int) -> str:
        """Declare a local array; its name."""
        this = self.graph.buffers[buffer]
        self.line(f"{c_type(this.dtype)} {this.name}[{max(this.size, 1)}];")
        return this.name

    def buffer(self, buffer: int) -> str:
        """The name of an array."""
        if buffer in self.graph.tables:
            self.tables.add(buffer)
            return f"{self.prefix}{self.graph.buffers[buffer].name}"
        return self.graph.buffers[buffer].name

    def name(self, node: int) -> str:
        """A node as an operand."""
        this = self.graph.nodes[node]
        if this.op == "constant":
            return literal(this.payload, this.dtype)
        if this.op == "element":
            return f"{self.buffer(this.payload[0])}[{this.payload[1]}]"
        return f"v{node}"

    def helper(self, name: str) -> str:
        """The C name of a function of `helpers.c.in`, which is added to the file."""
        self.helpers.add(name)
        return self.prefix + name

    def operation(self, op: str, args: list[str], dtype: np.dtype, operand: np.dtype) -> str:
        """A scalar operation as an expression; `dtype` of the result, `operand` of the last operand."""
        operation = OPERATIONS[op]
        text = operation.integer if operation.integer and operand.kind in "iu" else operation.text
        text = re.sub(r"@(\w+)", lambda found: self.helper(found[1]), text)
        low, high = _limits(dtype)
        return text.format(*args, f="f" if operand == np.float32 else "", type=c_type(dtype), low=low, high=high)


@functools.singledispatch
def emit(statement: Any, out: Writer) -> None:
    """Write the C text of a statement."""
    raise TypeError(f"there is no C text for the statement {type(statement).__name__}")


@emit.register(Define)
def _define(statement: Define, out: Writer) -> None:
    node = out.graph.nodes[statement.node]
    if node.op == "read":
        text = f"{out.buffer(node.payload)}[{out.name(node.args[0])}]"
    else:
        operand = out.graph.nodes[node.args[-1]].dtype
        text = out.operation(node.op, [out.name(arg) for arg in node.args], node.dtype, operand)
    out.line(f"const {c_type(node.dtype)} v{statement.node} = {text};")
