"""The C text of a block of statements."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from twinfold.export._c.graph import Define, Graph
from twinfold.export._c.operations import OPERATIONS
from twinfold.export._c.statements import (
    Access,
    Branch,
    Call,
    Change,
    Either,
    Fill,
    Loop,
    Product,
    Put,
    Reduction,
    Repeat,
    row_major,
)

C_TYPES = {
    "float64": "double",
    "float32": "float",
    "bool": "int",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
COUNTERS = "ijklmnopq"


def c_type(dtype: np.dtype) -> str:
    """The C type of a dtype."""
    return C_TYPES[dtype.name]


def literal(value: Any, dtype: np.dtype) -> str:
    """A number as C text that reads back the same."""
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


class Writer:
    """Lines of C, and the helpers that they call."""

    def __init__(self, graph: Graph, prefix: str):
        self.graph, self.prefix = graph, prefix
        self.lines: list[str] = []
        self.helpers: set[str] = set()
        self.tables: set[int] = set()
        self.depth = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self, node: int) -> str:
        """A node as an operand."""
        this = self.graph.nodes[node]
        if this.op == "constant":
            return literal(this.note, this.dtype)
        if this.op == "element":
            return f"{self.buffer(this.note[0])}[{this.note[1]}]"
        return f"v{node}"

    def buffer(self, buffer: int) -> str:
        if buffer in self.graph.tables:
            self.tables.add(buffer)
            return f"{self.prefix}{self.graph.buffers[buffer].name}"
        return self.graph.buffers[buffer].name

    def operation(self, op: str, args: list[str], dtype: np.dtype, operand: np.dtype) -> str:
        """One scalar operation as an expression."""
        this = OPERATIONS[op]
        text = this.text
        if this.helper is not None:
            helper = "i" + this.helper if operand.kind in "iub" and this.helper in ("max", "min") else this.helper
            self.helpers.add(helper)
            text = text.replace("@" + this.helper, self.prefix + helper)
        return text.format(*args, f="f" if operand == np.float32 else "", type=c_type(dtype))

    def access(self, access: Access, counters: str) -> str:
        if access.buffer is None:
            assert access.node is not None
            return self.name(access.node)
        return f"{self.buffer(access.buffer)}[{self.place(access.offset, access.strides, counters)}]"

    @staticmethod
    def place(offset: int, strides: Iterable[int], counters: str) -> str:
        terms = [c if s == 1 else f"{s} * {c}" for s, c in zip(strides, counters, strict=True) if s]
        terms += [str(offset)] if offset or not terms else []
        return " + ".join(terms)

    def declare(self, buffer: int) -> str:
        this = self.graph.buffers[buffer]
        self.line(f"{c_type(this.dtype)} {this.name}[{max(this.size, 1)}];")
        return this.name

    def block(self, statements: list[Any]) -> None:
        for statement in statements:
            WRITERS[type(statement)](self, statement)

    def braces(self, head: str, statements: list[Any]) -> None:
        """Statements inside braces."""
        self.line(head + " {")
        self.depth += 1
        self.block(statements)
        self.depth -= 1
        self.line("}")


def _define(out: Writer, statement: Define) -> None:
    node = out.graph.nodes[statement.node]
    if node.op == "read":
        text = f"{out.buffer(node.note)}[{out.name(node.args[0])}]"
    else:
        operand = out.graph.nodes[node.args[-1]].dtype
        text = out.operation(node.op, [out.name(arg) for arg in node.args], node.dtype, operand)
    out.line(f"const {c_type(node.dtype)} v{statement.node} = {text};")


def _fill(out: Writer, statement: Fill) -> None:
    name = out.declare(statement.buffer)
    row = [f"{name}[{k}] = {out.name(node)};" for k, node in enumerate(statement.nodes)]
    for k in range(0, len(row), 4):
        out.line(" ".join(row[k : k + 4]))


def _merged(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """Axes that can be run through as one are one; those of length one are none."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        if sizes and all(step[-1] == stride[axis] * size for step, stride in zip(steps, strides, strict=True)):
            sizes[-1] *= size
            for step, stride in zip(steps, strides, strict=True):
                step[-1] = stride[axis]
            continue
        sizes.append(size)
        for step, stride in zip(steps, strides, strict=True):
            step.append(stride[axis])
    return sizes, steps


def _loop(out: Writer, statement: Loop) -> None:
    name = out.declare(statement.buffer)
    strides = [row_major(statement.shape), *(operand.strides for operand in statement.operands)]
    sizes, steps = _merged(statement.shape, strides)
    counters = COUNTERS[: len(sizes)]
    _for(out, counters, sizes)
    operands = [
        out.access(Access(o.buffer, o.node, o.offset, tuple(step)), counters)
        for o, step in zip(statement.operands, steps[1:], strict=True)
    ]
    kinds = [_kind(out.graph, operand) for operand in statement.operands]
    for k, (op, args, dtype) in enumerate(statement.program):
        text = out.operation(op, [operands[arg] for arg in args], dtype, kinds[args[-1]])
        if k + 1 < len(statement.program):
            out.line(f"const {c_type(dtype)} u{k} = {text};")
            operands.append(f"u{k}")
            kinds.append(dtype)
        else:
            out.line(f"{name}[{out.place(0, steps[0], counters)}] = {text};")
    _end(out, counters)


def _kind(graph: Graph, operand: Access) -> np.dtype:
    if operand.buffer is not None:
        return graph.buffers[operand.buffer].dtype
    assert operand.node is not None
    return graph.nodes[operand.node].dtype


def _for(out: Writer, counters: str, sizes: Iterable[int]) -> None:
    for counter, size in zip(counters, sizes, strict=True):
        out.line(f"for (int {counter} = 0; {counter} < {size}; {counter}++) {{")
        out.depth += 1
    if not counters:
        out.line("{")
        out.depth += 1


def _end(out: Writer, counters: str) -> None:
    for _ in counters or "-":
        out.depth -= 1
        out.line("}")


def _product(out: Writer, statement: Product) -> None:
    name = out.declare(statement.buffer)
    batch, rows, columns, inner = statement.sizes
    total = batch * rows * columns
    out.line(f"for (int i = 0; i < {total}; i++) {name}[i] = 0;")
    # counters b, i (row), j (column), k (inner); the innermost loop runs along memory
    order = "bkij" if columns == 1 else "bikj"
    size = {"b": batch, "i": rows, "j": columns, "k": inner}
    counters = "".join(c for c in order if size[c] > 1)
    _for(out, counters, [size[c] for c in counters])
    left, right = (
        out.access(
            Access(a.buffer, a.node, a.offset, tuple(_used(a.strides, which, size))),
            "".join(c for c in which if size[c] > 1),
        )
        for a, which in ((statement.left, "bik"), (statement.right, "bkj"))
    )
    place = out.place(0, _used((rows * columns, columns, 1), "bij", size), "".join(c for c in "bij" if size[c] > 1))
    out.line(f"{name}[{place}] += {left} * {right};")
    _end(out, counters)


def _used(strides: Iterable[int], which: str, size: dict[str, int]) -> list[int]:
    return [stride for stride, counter in zip(strides, which, strict=True) if size[counter] > 1]


def _reduction(out: Writer, statement: Reduction) -> None:
    name = out.declare(statement.buffer)
    dtype = out.graph.buffers[statement.buffer].dtype
    shape = (*statement.kept, *statement.reduced)
    counters, outer = COUNTERS[: len(shape)], len(statement.kept)
    place = out.place(0, row_major(statement.kept), counters[:outer])
    first = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf, "and": 1, "or": 0, "xor": 0}[statement.op]
    if statement.op in ("max", "min") and dtype.kind != "f":
        limits = np.iinfo(dtype)
        first = limits.min if statement.op == "max" else limits.max
    _for(out, counters[:outer], statement.kept)
    out.line(f"{c_type(dtype)} sum = {literal(first, dtype)};")
    _for(out, counters[outer:], statement.reduced)
    text = out.operation(statement.op, ["sum", out.access(statement.operand, counters)], dtype, dtype)
    out.line(f"sum = {text};")
    _end(out, counters[outer:])
    out.line(f"{name}[{place}] = sum;")
    _end(out, counters[:outer])


def _call(out: Writer, statement: Call) -> None:
    out.helpers.add(statement.helper)
    fills = [out.declare(buffer) for buffer in statement.fills]
    args = [*map(str, statement.sizes), *(out.buffer(buffer) for buffer in statement.reads), *fills]
    out.line(f"{out.prefix}{statement.helper}({', '.join(args)});")


def _change(out: Writer, statement: Change) -> None:
    name = out.declare(statement.buffer)
    dtype = out.graph.buffers[statement.buffer].dtype
    out.line(f"memcpy({name}, {out.buffer(statement.source)}, sizeof {name});")
    for position, when, value, op in statement.writes:
        place = f"{name}[{out.name(position)}]"
        text = out.name(value) if op == "set" else out.operation(op, [place, out.name(value)], dtype, dtype)
        guard = "" if when is None else f"if ({out.name(when)}) "
        out.line(f"{guard}{place} = {text};")


def _put(out: Writer, statement: Put) -> None:
    name, index, count = out.buffer(statement.buffer), out.name(statement.index), len(statement.nodes)
    for k, node in enumerate(statement.nodes):
        out.line(f"{name}[{count} * {index} + {k}] = {out.name(node)};")


def _repeat(out: Writer, statement: Repeat) -> None:
    for buffer in statement.collected:
        out.declare(buffer)
    for slot in statement.slots:
        dtype = out.graph.nodes[slot.variable].dtype
        out.line(f"{c_type(dtype)} v{slot.variable} = {out.name(slot.first)};")
    out.line("for (;;) {")
    out.depth += 1
    out.block(statement.test.statements)
    out.line(f"if (!{out.name(statement.condition)}) break;")
    out.block(statement.body.statements)
    # All at once: what one slot has now may be what another has next.
    carried = {slot.variable for slot in statement.slots}
    kept: dict[int, str] = {}
    for slot in statement.slots:
        if slot.next in carried and slot.next not in kept:
            kept[slot.next] = f"v{slot.next}_"
            out.line(f"const {c_type(out.graph.nodes[slot.next].dtype)} v{slot.next}_ = v{slot.next};")
    for slot in statement.slots:
        out.line(f"v{slot.variable} = {kept.get(slot.next) or out.name(slot.next)};")
    out.depth -= 1
    out.line("}")


def _branch(out: Writer, statement: Branch) -> None:
    _declared(out, [variable for variable, _ in statement.results])
    last = len(statement.blocks) - 1
    index = out.name(statement.index)
    for k, block in enumerate(statement.blocks):
        out.line(
            (f"if ({index} <= {k}) {{" if k == 0 else f"}} else if ({index} == {k}) {{") if k < last else "} else {"
        )
        out.depth += 1
        out.block(block.statements)
        for variable, nodes in statement.results:
            out.line(f"v{variable} = {out.name(nodes[k])};")
        out.depth -= 1
    out.line("}")


def _either(out: Writer, statement: Either) -> None:
    _declared(out, [node for node, _, _ in statement.chosen])
    for head, inside, side in (
        (f"if ({out.name(statement.condition)}) {{", statement.yes, 1),
        ("} else {", statement.no, 2),
    ):
        out.line(head)
        out.depth += 1
        out.block(inside)
        for entry in statement.chosen:
            out.line(f"v{entry[0]} = {out.name(entry[side])};")
        out.depth -= 1
    out.line("}")


def _declared(out: Writer, nodes: list[int]) -> None:
    """Declarations of variables, a line for each type."""
    by_type: dict[str, list[str]] = {}
    for node in nodes:
        by_type.setdefault(c_type(out.graph.nodes[node].dtype), []).append(f"v{node}")
    for kind, variables in by_type.items():
        out.line(f"{kind} {', '.join(variables)};")


WRITERS = {
    Define: _define,
    Fill: _fill,
    Loop: _loop,
    Product: _product,
    Reduction: _reduction,
    Call: _call,
    Change: _change,
    Put: _put,
    Repeat: _repeat,
    Branch: _branch,
    Either: _either,
}
