"""The graph between jaxpr and C: scalars (nodes), arrays in memory (buffers), and blocks of statements.

A value of the jaxpr is an integer array of *nodes*, one for each element. Reshaping, slicing and transposing therefore
rearrange integers and cost nothing at run time. Equal operations in a scope share one node; operations on constants
are folded.
"""

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int

from twinfold.export._c.scalars import OPERATIONS, Node, simplify

Nodes = Int[np.ndarray, "..."]  # a value of the jaxpr: the node of each element


@dataclass(frozen=True)
class Buffer:
    """An array in memory: filled by a statement (`local`), an argument of the C function, or a table of constants."""

    name: str
    size: int
    dtype: np.dtype
    local: bool


class Statement(abc.ABC):
    """One statement of a block; `writer.emit` writes its C text.

    What a statement reads and defines are nodes and buffers; a buffer is identified by `buffer_key`.
    """

    @abc.abstractmethod
    def reads(self, graph: "Graph") -> set[int]:
        """Every node and buffer that the statement reads, in nested blocks too."""

    @abc.abstractmethod
    def defines(self) -> set[int]:
        """Every node and buffer that the statement defines for those after it."""

    @abc.abstractmethod
    def cost(self, graph: "Graph") -> int:
        """The approximate cost, in additions."""


@dataclass
class BufferStatement(Statement):
    """A statement that fills one buffer."""

    buffer: int

    def defines(self) -> set[int]:
        return {buffer_key(self.buffer)}


@dataclass
class Define(Statement):
    """The definition of a node by its scalar operation."""

    node: int

    def reads(self, graph: "Graph") -> set[int]:
        node = graph.nodes[self.node]
        return graph.dependencies(node.args) | ({buffer_key(node.payload)} if node.op == "read" else set())

    def defines(self) -> set[int]:
        return {self.node}

    def cost(self, graph: "Graph") -> int:
        op = graph.nodes[self.node].op
        return OPERATIONS[op].cost if op in OPERATIONS else 1


@dataclass
class Block:
    """Statements in order; a nested block sees the definitions of the blocks around it."""

    parent: "Block | None" = None
    statements: list[Statement] = field(default_factory=list)
    known: dict[Node, int] = field(default_factory=dict)


def buffer_key(buffer: int) -> int:
    """The identifier of a buffer among those of nodes, which are not negative."""
    return -1 - buffer


def node_array(nodes: Iterable[int], shape: Sequence[int]) -> Nodes:
    """Nodes in row-major order as an array."""
    return np.array(list(nodes), dtype=np.int64).reshape(shape)


class Graph:
    """All nodes and buffers of one C file; statements are appended to `block`, the innermost open one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.buffers: list[Buffer] = []
        self.tables: dict[int, np.ndarray] = {}
        self.block = Block()
        self._constants: dict[tuple, int] = {}
        self._elements: dict[tuple[int, int], int] = {}
        self._tables: dict[tuple, int] = {}

    def constant(self, value: Any, dtype: Any = None) -> int:
        """The node of a number."""
        value = np.asarray(value, dtype)
        key = (value.dtype.str, value.tobytes())
        if key not in self._constants:
            self._constants[key] = self._new(Node("constant", (), value.dtype, value[()]))
        return self._constants[key]

    def constants(self, values: Any) -> Nodes:
        """The nodes of an array of numbers."""
        values = np.asarray(values)
        return node_array((self.constant(value) for value in values.reshape(-1)), values.shape)

    def full(self, shape: Sequence[int], value: Any, dtype: Any) -> Nodes:
        """The node of one number in all elements."""
        return np.broadcast_to(self.constant(value, dtype), shape)

    def variable(self, dtype: Any) -> int:
        """A scalar that is assigned: the carry of a loop or the result of a branch."""
        return self._new(Node("variable", (), np.dtype(dtype), len(self.nodes)))

    def buffer(self, size: int, dtype: Any, name: str | None = None) -> int:
        """A new array in memory; `name` is that of an argument or a table."""
        self.buffers.append(Buffer(name or f"b{len(self.buffers)}", size, np.dtype(dtype), name is None))
        return len(self.buffers) - 1

    def table(self, values: np.ndarray) -> int:
        """The buffer of constants (`static const` in C); equal tables are shared."""
        values = np.ascontiguousarray(values).reshape(-1)
        key = (values.dtype.str, values.tobytes())
        if key not in self._tables:
            self._tables[key] = self.buffer(values.size, values.dtype, f"c{len(self._tables)}")
            self.tables[self._tables[key]] = values
        return self._tables[key]

    def elements(self, buffer: int, shape: Sequence[int]) -> Nodes:
        """The nodes of the elements of a buffer, in row-major order."""
        return node_array((self.element(buffer, k) for k in range(int(np.prod(shape, dtype=int)))), shape)

    def element(self, buffer: int, position: int) -> int:
        """The node of one element of a buffer."""
        key = (buffer, position)
        if key not in self._elements:
            self._elements[key] = self._new(Node("element", (), self.buffers[buffer].dtype, key))
        return self._elements[key]

    def read(self, buffer: int, index: int) -> int:
        """The element of a buffer at a computed position."""
        position = self.value(index)
        if position is not None:
            return self.element(buffer, int(position))
        return self._defined(Node("read", (index,), self.buffers[buffer].dtype, buffer))

    def apply(self, op: str, *args: int, dtype: Any = None) -> int:
        """The node of a scalar operation, simplified; `dtype` of the result, if not that of the operands."""
        result = self.result_dtype(op, *(self.nodes[arg].dtype for arg in args), dtype=dtype)
        simplified = simplify(op, args, [self.nodes[arg] for arg in args], result)
        match simplified:
            case None:
                return self._defined(Node(op, args, result))
            case int():
                return simplified
            case np.ndarray():
                return self.constant(simplified)
            case other, operands:
                return self.apply(other, *operands, dtype=dtype)

    @staticmethod
    def result_dtype(op: str, *operands: np.dtype, dtype: Any = None) -> np.dtype:
        """The dtype of a scalar operation: boolean, as given, or that of its operands."""
        same = operands[1 if op == "select" else 0]
        return np.dtype(bool if OPERATIONS[op].boolean else same if dtype is None else dtype)

    def map(self, op: str, *args: Nodes, dtype: Any = None) -> Nodes:
        """A scalar operation on each element of arrays that broadcast to one shape."""
        args = np.broadcast_arrays(*args)
        rows = zip(*(arg.reshape(-1).tolist() for arg in args), strict=True)
        return node_array((self.apply(op, *row, dtype=dtype) for row in rows), args[0].shape)

    def add(self, statement: Statement) -> None:
        """Append a statement to the open block."""
        self.block.statements.append(statement)

    def value(self, node: int) -> Any:
        """The number of a constant node, or None."""
        return self.nodes[node].payload if self.nodes[node].op == "constant" else None

    def numbers(self, nodes: Nodes) -> np.ndarray | None:
        """The numbers of an array of constant nodes, or None if one of them is not constant."""
        values = [self.value(node) for node in nodes.reshape(-1).tolist()]
        return None if any(value is None for value in values) else np.array(values).reshape(nodes.shape)

    def dtype(self, nodes: Nodes) -> np.dtype:
        """The dtype of a value of the jaxpr."""
        return self.nodes[int(nodes.reshape(-1)[0])].dtype

    def dependencies(self, nodes: Iterable[int]) -> set[int]:
        """The definitions that these nodes need: the node itself, or the buffer of which it is an element."""
        found = set()
        for node in nodes:
            if self.nodes[node].op == "element":
                found.add(buffer_key(self.nodes[node].payload[0]))
            elif self.nodes[node].op != "constant":
                found.add(node)
        return found

    def _defined(self, node: Node) -> int:
        scope: Block | None = self.block
        while scope is not None:
            if node in scope.known:
                return scope.known[node]
            scope = scope.parent
        self.block.known[node] = self._new(node)
        self.add(Define(self.block.known[node]))
        return self.block.known[node]

    def _new(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1
