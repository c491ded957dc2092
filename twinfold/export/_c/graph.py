"""What is computed, between the jaxpr and the C text: scalars, buffers, and blocks of statements in order.

A value of the jaxpr is an array of *nodes*, small integers that stand for scalars: constants, variables, elements of a
buffer, or operations on other nodes. Reshaping, slicing, transposing and the like then move integers and leave nothing
to do at run time. An operation is made once in its scope (equal ones are the same node), and not at all where its
operands are constants.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int

from twinfold.export._c.operations import OPERATIONS, simplified

Nodes = Int[np.ndarray, "..."]  # a value of the jaxpr: the node of each element


@dataclass(frozen=True)
class Node:
    """One scalar: what makes it, from which nodes, of which dtype; `note` is what else it needs."""

    op: str
    args: tuple[int, ...]
    dtype: np.dtype
    note: Any = None


@dataclass(frozen=True)
class Buffer:
    """An array in memory: one that a statement fills, or an argument of the function, or a table of constants."""

    name: str
    size: int
    dtype: np.dtype


@dataclass
class Define:
    """A scalar operation, whose result has the name of its node."""

    node: int


@dataclass
class Block:
    """Statements in order; what is defined in a block is seen in the blocks inside it."""

    parent: "Block | None" = None
    statements: list[Any] = field(default_factory=list)
    known: dict[Node, int] = field(default_factory=dict)


class Graph:
    """All nodes and buffers of one C file; statements are added to `block`, the innermost one that is open."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.buffers: list[Buffer] = []
        self.tables: dict[int, np.ndarray] = {}
        self.block = Block()
        self._constants: dict[tuple, int] = {}
        self._elements: dict[tuple[int, int], int] = {}
        self._tables: dict[tuple, int] = {}

    def constant(self, value: Any) -> int:
        """The node of a number."""
        value = np.asarray(value)
        key = (value.dtype.str, value.tobytes())
        if key not in self._constants:
            self._constants[key] = self._new(Node("constant", (), value.dtype, value[()]))
        return self._constants[key]

    def constants(self, values: np.ndarray) -> Nodes:
        """The nodes of an array of numbers."""
        values = np.asarray(values)
        flat = [self.constant(value) for value in values.reshape(-1)]
        return np.array(flat, dtype=np.int64).reshape(values.shape)

    def variable(self, dtype: Any) -> int:
        """A scalar that is assigned to: what a loop carries, or what a branch results in."""
        return self._new(Node("variable", (), np.dtype(dtype), len(self.nodes)))

    def buffer(self, size: int, dtype: Any, name: str | None = None) -> int:
        """A new array in memory."""
        self.buffers.append(Buffer(name or f"b{len(self.buffers)}", size, np.dtype(dtype)))
        return len(self.buffers) - 1

    def table(self, values: np.ndarray) -> int:
        """The buffer of an array of constants (`static const` in C), the same for equal ones."""
        values = np.ascontiguousarray(values).reshape(-1)
        key = (values.dtype.str, values.tobytes())
        if key not in self._tables:
            self._tables[key] = self.buffer(values.size, values.dtype, f"c{len(self._tables)}")
            self.tables[self._tables[key]] = values
        return self._tables[key]

    def elements(self, buffer: int, shape: Sequence[int]) -> Nodes:
        """The nodes of a buffer's elements, in row-major order."""
        size = int(np.prod(shape, dtype=int))
        return np.array([self.element(buffer, k) for k in range(size)], dtype=np.int64).reshape(shape)

    def element(self, buffer: int, position: int) -> int:
        """The node of one element of a buffer."""
        key = (buffer, position)
        if key not in self._elements:
            self._elements[key] = self._new(Node("element", (), self.buffers[buffer].dtype, key))
        return self._elements[key]

    def read(self, buffer: int, index: int) -> int:
        """The element of a buffer whose position is computed."""
        found = self.nodes[index]
        if found.op == "constant":
            return self.element(buffer, int(found.note))
        return self._once(Node("read", (index,), self.buffers[buffer].dtype, buffer))

    def apply(self, op: str, *args: int, dtype: Any = None) -> int:
        """The node of a scalar operation."""
        operand = args[1] if op == "select" else args[0]
        result = np.dtype(bool) if OPERATIONS[op].truth else self.nodes[operand].dtype if dtype is None else dtype
        known = simplified(self, op, args, np.dtype(result))
        return self._once(Node(op, args, np.dtype(result))) if known is None else known

    def map(self, op: str, *args: Nodes, dtype: Any = None) -> Nodes:
        """The same operation on the elements of arrays of equal shape."""
        args = np.broadcast_arrays(*args)
        columns = [arg.reshape(-1).tolist() for arg in args]
        flat = [self.apply(op, *row, dtype=dtype) for row in zip(*columns, strict=True)]
        return np.array(flat, dtype=np.int64).reshape(args[0].shape)

    def add(self, statement: Any) -> None:
        """Append a statement to the open block."""
        self.block.statements.append(statement)

    def value(self, node: int) -> Any:
        """The number that a node is, or None."""
        found = self.nodes[node]
        return found.note if found.op == "constant" else None

    def numbers(self, nodes: Nodes) -> np.ndarray | None:
        """The numbers that an array of nodes is, or None where one of them is not known."""
        flat = [self.nodes[node] for node in nodes.reshape(-1).tolist()]
        if any(node.op != "constant" for node in flat):
            return None
        return np.array([node.note for node in flat]).reshape(nodes.shape)

    def scopes(self) -> Iterator[Block]:
        """The open block and those around it, innermost first."""
        block: Block | None = self.block
        while block is not None:
            yield block
            block = block.parent

    def _once(self, node: Node) -> int:
        for block in self.scopes():
            if node in block.known:
                return block.known[node]
        found = self._new(node)
        self.block.known[node] = found
        self.block.statements.append(Define(found))
        return found

    def _new(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1
