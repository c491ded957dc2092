"""Arrays: elementwise operations, unrolled into scalars or written as a loop over arrays in memory."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from twinfold.export._c.graph import BufferStatement, Graph, Nodes, buffer_key
from twinfold.export._c.scalars import OPERATIONS
from twinfold.export._c.writer import Writer, c_type, emit

MAX_UNROLLED_ELEMENTS = 64  # a larger array is never unrolled
MIN_LOOP_ELEMENTS = 9  # from here on, what comes from a loop stays in loops (the hidden layers of a network)
COUNTERS = "ijklmnopq"


@dataclass(frozen=True)
class Access:
    """An operand of a loop: an element of a buffer, affine in the counters, or one node throughout."""

    buffer: int | None
    offset: int
    strides: tuple[int, ...]
    node: int = -1  # if there is no buffer

    def reads(self, graph: Graph) -> set[int]:
        """The definition that the operand needs, if any."""
        return graph.dependencies([self.node]) if self.buffer is None else {buffer_key(self.buffer)}

    def dtype(self, graph: Graph) -> np.dtype:
        """The dtype of the operand."""
        return graph.nodes[self.node].dtype if self.buffer is None else graph.buffers[self.buffer].dtype

    def text(self, out: Writer, counters: str) -> str:
        """The operand in C; `counters` has a letter for each stride."""
        if self.buffer is None:
            return out.name(self.node)
        return f"{out.buffer(self.buffer)}[{affine(self.strides, counters, self.offset)}]"


def affine(strides: Iterable[int], counters: str, offset: int = 0) -> str:
    """A position in memory as a C expression in the counters."""
    terms = [c if s == 1 else f"{s} * {c}" for s, c in zip(strides, counters, strict=True) if s]
    return " + ".join(terms + ([str(offset)] if offset or not terms else []))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    return tuple(int(np.prod(shape[k + 1 :], dtype=int)) for k in range(len(shape)))


@dataclass
class Fill(BufferStatement):
    """A buffer filled with scalars."""

    nodes: list[int]

    def reads(self, graph: Graph) -> set[int]:
        return graph.dependencies(self.nodes)

    def cost(self, graph: Graph) -> int:
        return 10


@emit.register(Fill)
def _fill(statement: Fill, out: Writer) -> None:
    name = out.declare(statement.buffer)
    items = [f"{name}[{k}] = {out.name(node)};" for k, node in enumerate(statement.nodes)]
    for k in range(0, len(items), 4):
        out.line(" ".join(items[k : k + 4]))


@dataclass
class Loop(BufferStatement):
    """Elementwise operations in one loop.

    `program` lists (operation, operands, dtype); operand k >= 0 is `operands[k]`, operand ~k is the result of line k.
    The last line fills the buffer.
    """

    shape: tuple[int, ...]
    operands: list[Access]
    program: list[tuple[str, tuple[int, ...], np.dtype]]

    def reads(self, graph: Graph) -> set[int]:
        return set().union(*(operand.reads(graph) for operand in self.operands))

    def cost(self, graph: Graph) -> int:
        return int(np.prod(self.shape)) * sum(OPERATIONS[op].cost for op, _, _ in self.program)

    def reads_elements_of(self, inner: "Loop") -> bool:
        """Whether each element that `inner` writes is read in the iteration with the same counters."""
        return inner.shape == self.shape and all(
            operand.offset == 0
            and all(
                a == b or size == 1
                for a, b, size in zip(operand.strides, row_major(inner.shape), inner.shape, strict=True)
            )
            for operand in self.operands
            if operand.buffer == inner.buffer
        )

    def fused(self, inner: "Loop") -> "Loop":
        """One loop that computes `inner` and uses its result without storing it."""
        lines = len(inner.program)
        operands, position = list(inner.operands), []
        for operand in self.operands:
            position.append(~(lines - 1) if operand.buffer == inner.buffer else len(operands))
            operands += [] if operand.buffer == inner.buffer else [operand]
        program = [
            (op, tuple(position[arg] if arg >= 0 else arg - lines for arg in args), dtype)
            for op, args, dtype in self.program
        ]
        return Loop(self.buffer, self.shape, operands, inner.program + program)


@emit.register(Loop)
def _loop(statement: Loop, out: Writer) -> None:
    name = out.declare(statement.buffer)
    operands, program = statement.operands, statement.program
    sizes, strides = _merged(statement.shape, [row_major(statement.shape), *(o.strides for o in operands)])
    counters = COUNTERS[: len(sizes)]
    with out.loops(counters, sizes):
        texts = [replace(o, strides=s).text(out, counters) for o, s in zip(operands, strides[1:], strict=True)]
        for k, (op, args, dtype) in enumerate(program):
            kind = operands[args[-1]].dtype(out.graph) if args[-1] >= 0 else program[~args[-1]][2]
            text = out.operation(op, [texts[arg] if arg >= 0 else f"u{~arg}" for arg in args], dtype, kind)
            last = k + 1 == len(program)
            target = f"{name}[{affine(strides[0], counters)}]" if last else f"const {c_type(dtype)} u{k}"
            out.line(f"{target} = {text};")


def _merged(shape: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple[list[int], list[tuple[int, ...]]]:
    """Sizes and strides with axes of length one dropped, and axes merged that one counter can run through."""
    sizes: list[int] = []
    columns: list[list[int]] = []  # the strides of all arrays along an axis
    for size, column in zip(shape, zip(*strides, strict=True), strict=True):
        if size == 1:
            continue
        if sizes and columns[-1] == [stride * size for stride in column]:
            sizes[-1], columns[-1] = sizes[-1] * size, list(column)
        else:
            sizes.append(size)
            columns.append(list(column))
    return sizes, [tuple(column[k] for column in columns) for k in range(len(strides))]


def elementwise(graph: Graph, op: str, *args: Nodes, dtype: Any = None) -> Nodes:
    """A scalar operation on the elements of arrays, unrolled or as a loop."""
    args = tuple(np.broadcast_arrays(*args))
    shape, size = args[0].shape, args[0].size
    small = size <= MAX_UNROLLED_ELEMENTS and (size < MIN_LOOP_ELEMENTS or not any(in_memory(graph, x) for x in args))
    if small or all(graph.numbers(arg) is not None for arg in args):
        return graph.map(op, *args, dtype=dtype)
    result = graph.result_dtype(op, *(graph.dtype(arg) for arg in args), dtype=dtype)
    operands = [access(graph, arg) for arg in args]
    out = graph.buffer(size, result)
    graph.add(Loop(out, shape, operands, [(op, tuple(range(len(args))), result)]))
    return graph.elements(out, shape)


def in_memory(graph: Graph, nodes: Nodes) -> bool:
    """Whether an array lies in a buffer that a loop has filled."""
    ends = [graph.nodes[int(nodes.reshape(-1)[k])] for k in (0, -1)]
    return all(end.op == "element" and graph.buffers[end.payload[0]].local for end in ends)


def unstack(x: Nodes, axis: int) -> list[Nodes]:
    """The slices of an array along an axis, as arrays even if they are scalars."""
    moved = np.moveaxis(x, axis, 0)
    return [moved[k, ...] for k in range(len(moved))]


def access(graph: Graph, nodes: Nodes) -> Access:
    """How a loop over the axes of an array reads its elements; they are copied to a buffer if necessary."""
    flat = nodes.reshape(-1)
    if (flat == flat[0]).all():
        return Access(None, 0, (0,) * nodes.ndim, int(flat[0]))
    found = _affine_access(graph, nodes)
    if found is not None:
        return found
    # Store an axis along which nothing changes once.
    stored = nodes
    for axis in range(nodes.ndim):
        first = stored.take([0], axis=axis)
        if (stored == first).all():
            stored = first
    numbers = graph.numbers(stored)
    buffer = graph.table(numbers) if numbers is not None else _filled(graph, stored)
    strides = tuple(0 if n == 1 else s for n, s in zip(stored.shape, row_major(stored.shape), strict=True))
    return Access(buffer, 0, strides)


def contiguous(graph: Graph, nodes: Nodes) -> int:
    """A buffer that holds exactly these elements in row-major order."""
    numbers = graph.numbers(nodes)
    if numbers is not None:
        return graph.table(numbers)
    found = [graph.nodes[node] for node in nodes.reshape(-1).tolist()]
    if all(node.op == "element" for node in found):
        buffer = found[0].payload[0]
        if [node.payload for node in found] == [(buffer, k) for k in range(graph.buffers[buffer].size)]:
            return buffer
    return _filled(graph, nodes)


def _filled(graph: Graph, nodes: Nodes) -> int:
    buffer = graph.buffer(nodes.size, graph.dtype(nodes))
    graph.add(Fill(buffer, nodes.reshape(-1).tolist()))
    return buffer


def _affine_access(graph: Graph, nodes: Nodes) -> Access | None:
    """The access to elements of one buffer whose positions are affine in the indices, or None."""
    found = [graph.nodes[node] for node in nodes.reshape(-1).tolist()]
    if any(node.op != "element" or node.payload[0] != found[0].payload[0] for node in found):
        return None
    positions = np.array([node.payload[1] for node in found]).reshape(nodes.shape)
    offset = int(positions.reshape(-1)[0])
    units = np.eye(nodes.ndim, dtype=int)
    strides = [int(positions[tuple(unit)]) - offset if n > 1 else 0 for n, unit in zip(nodes.shape, units, strict=True)]
    expected = offset + np.tensordot(strides, np.indices(nodes.shape), 1)
    return Access(found[0].payload[0], offset, tuple(strides)) if (positions == expected).all() else None
