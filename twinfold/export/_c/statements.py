"""The statements of a block beside scalar operations: loops over arrays, calls of helpers, control flow.

`needs` names what a statement reads and `gives` what it defines; a buffer is named by `key(buffer)`, which no node has.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinfold.export._c.graph import Block, Define, Graph
from twinfold.export._c.operations import OPERATIONS


def key(buffer: int) -> int:
    """The name of a buffer among those of nodes."""
    return -1 - buffer


def row_major(shape: Iterable[int]) -> tuple[int, ...]:
    """The strides of an array of this shape."""
    sizes = list(shape)
    return tuple(int(np.prod(sizes[k + 1 :], dtype=int)) for k in range(len(sizes)))


@dataclass(frozen=True)
class Access:
    """Where a loop finds an operand: an affine function of its counters in a buffer, or one node throughout."""

    buffer: int | None
    node: int | None
    offset: int
    strides: tuple[int, ...]

    @property
    def needs(self) -> int:
        return key(self.buffer) if self.buffer is not None else self.node if self.node is not None else 0


@dataclass
class Fill:
    """A buffer from scalars, one after the other."""

    buffer: int
    nodes: list[int]


@dataclass
class Loop:
    """Elementwise operations in one loop. In `program`, operand k is the k-th access, or what step k - count made."""

    buffer: int
    shape: tuple[int, ...]
    operands: list[Access]
    program: list[tuple[str, tuple[int, ...], np.dtype]]


@dataclass
class Product:
    """Matrix products: out[b, i, j] = sum_k left[b, i, k] right[b, k, j]."""

    buffer: int
    sizes: tuple[int, int, int, int]  # batch, rows, columns, inner
    left: Access
    right: Access


@dataclass
class Reduction:
    """out[i] = op over j of operand[i, j]."""

    buffer: int
    op: str
    kept: tuple[int, ...]
    reduced: tuple[int, ...]
    operand: Access


@dataclass
class Call:
    """A helper of `library.py`: sizes, then buffers that it reads, then buffers that it fills."""

    helper: str
    sizes: tuple[int, ...]
    reads: list[int]
    fills: list[int]


@dataclass
class Change:
    """A copy of a buffer in which some elements are written: (position, whether to, value, operation or "set")."""

    buffer: int
    source: int
    writes: list[tuple[int, int | None, int, str]]


@dataclass
class Put:
    """Scalars into a buffer of the loop around it, at `index` times their number and after."""

    buffer: int
    index: int
    nodes: list[int]


@dataclass
class Slot:
    """A scalar that a loop carries."""

    variable: int
    first: int
    next: int


@dataclass
class Repeat:
    """While `condition` (computed in `test`): `body`, then all slots take their next values at once."""

    slots: list[Slot]
    test: Block
    condition: int
    body: Block
    collected: list[int] = field(default_factory=list)  # buffers that `Put` fills


@dataclass
class Branch:
    """One of several blocks by an index; each variable takes the node that the block has for it."""

    index: int
    blocks: list[Block]
    results: list[tuple[int, list[int]]]


@dataclass
class Either:
    """Selections by one condition, with what only one side needs computed on that side alone."""

    condition: int
    yes: list[Any]
    no: list[Any]
    chosen: list[tuple[int, int, int]]  # the selection, its node if yes, its node if no


def names(graph: Graph, nodes: Iterable[int]) -> set[int]:
    """What has to be there for these nodes to be used: themselves, or the buffers that they are elements of."""
    found = set()
    for node in nodes:
        this = graph.nodes[node]
        if this.op == "element":
            found.add(key(this.note[0]))
        elif this.op != "constant":
            found.add(node)
    return found


def needs(graph: Graph, statement: Any) -> set[int]:
    """Everything from outside that a statement without blocks reads."""
    match statement:
        case Define(node):
            this = graph.nodes[node]
            return names(graph, this.args) | ({key(this.note)} if this.op == "read" else set())
        case Fill(_, nodes):
            return names(graph, nodes)
        case Loop(_, _, operands, _):
            return _accessed(graph, operands)
        case Product(_, _, left, right):
            return _accessed(graph, [left, right])
        case Reduction(operand=operand):
            return _accessed(graph, [operand])
        case Call(_, _, reads, _):
            return {key(buffer) for buffer in reads}
        case Change(_, source, writes):
            used = [node for position, when, value, _ in writes for node in (position, when, value) if node is not None]
            return names(graph, used) | {key(source)}
        case Put(_, index, nodes):
            return names(graph, [index, *nodes])
    raise TypeError(type(statement).__name__)


def _accessed(graph: Graph, operands: Iterable[Access]) -> set[int]:
    found = set()
    for operand in operands:
        if operand.buffer is not None:
            found.add(key(operand.buffer))
        elif operand.node is not None:
            found |= names(graph, [operand.node])
    return found


def gives(statement: Any) -> set[int]:
    """What a statement defines."""
    match statement:
        case Define(node):
            return {node}
        case Call(_, _, _, fills):
            return {key(buffer) for buffer in fills}
        case Repeat(slots=slots, collected=collected):
            return {slot.variable for slot in slots} | {key(buffer) for buffer in collected}
        case Branch(results=results):
            return {variable for variable, _ in results}
        case Either(chosen=chosen):
            return {node for node, _, _ in chosen}
    return {key(statement.buffer)}


def cost(graph: Graph, statement: Any) -> int:
    """About how many additions a statement is worth; a loop of unknown length counts a few times."""
    match statement:
        case Define(node):
            op = graph.nodes[node].op
            return OPERATIONS[op].cost if op in OPERATIONS else 1
        case Loop(_, shape, _, program):
            return int(np.prod(shape)) * sum(OPERATIONS[op].cost for op, _, _ in program)
        case Product(_, sizes, _, _):
            return int(np.prod(sizes))
        case Repeat(test=test, body=body):
            return 4 * sum(cost(graph, inner) for inner in test.statements + body.statements)
        case Branch(blocks=blocks):
            return max(sum(cost(graph, inner) for inner in block.statements) for block in blocks)
        case Call(_, sizes, _, _):
            return 10 * int(np.prod(sizes)) ** 2
    return 10
