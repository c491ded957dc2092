"""Arrays in loops: when an operation is written as one, and where such a loop finds its operands."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._c.operations import OPERATIONS
from twinfold.export._c.statements import Access, Fill, Loop

LARGE = 64  # elements beyond which an array is never written out in scalars
VECTOR = 9  # and from which it is kept in loops where it comes from one (the hidden layers of a network)


def in_loops(graph: Graph, args: Sequence[Nodes], size: int) -> bool:
    """Whether an operation on these arrays is written as a loop."""
    return size > LARGE or (size >= VECTOR and any(arg.size >= VECTOR and computed(graph, arg) for arg in args))


def computed(graph: Graph, nodes: Nodes) -> bool:
    """Whether an array lies in a buffer that a loop has filled."""
    ends = [graph.nodes[int(nodes.reshape(-1)[k])] for k in (0, -1)]
    return all(end.op == "element" and graph.buffers[end.note[0]].name.startswith("b") for end in ends)


def elementwise(graph: Graph, op: str, *args: Nodes, dtype: Any = None) -> Nodes:
    """An operation on the elements of arrays of equal shape, in scalars or as a loop."""
    args = tuple(np.broadcast_arrays(*args))
    shape = args[0].shape
    if not in_loops(graph, args, args[0].size) or all(graph.numbers(arg) is not None for arg in args):
        return graph.map(op, *args, dtype=dtype)
    sample = graph.nodes[int(args[1 if op == "select" else 0].reshape(-1)[0])].dtype
    result = np.dtype(bool) if OPERATIONS[op].truth else np.dtype(sample if dtype is None else dtype)
    operands = [access(graph, arg) for arg in args]
    out = graph.buffer(args[0].size, result)
    graph.add(Loop(out, shape, operands, [(op, tuple(range(len(args))), result)]))
    return graph.elements(out, shape)


def along(x: Nodes, axis: int) -> list[Nodes]:
    """The parts of an array along an axis; arrays too where they have one element each."""
    moved = np.moveaxis(x, axis, 0)
    return [moved[k, ...] for k in range(len(moved))]


def access(graph: Graph, nodes: Nodes) -> Access:
    """Where a loop over the axes of an array finds its elements; they are put into a buffer where they are in none."""
    flat = nodes.reshape(-1)
    if (flat == flat[0]).all():
        return Access(None, int(flat[0]), 0, (0,) * nodes.ndim)
    found = _affine(graph, nodes)
    if found is not None:
        return found
    # One row is enough along an axis on which nothing changes.
    shrunk = nodes
    for axis in range(nodes.ndim):
        first = shrunk.take([0], axis=axis)
        if (shrunk == first).all():
            shrunk = first
    numbers = graph.numbers(shrunk)
    buffer = graph.table(numbers) if numbers is not None else filled(graph, shrunk)
    strides, step = [0] * nodes.ndim, 1
    for axis in reversed(range(nodes.ndim)):
        strides[axis] = 0 if shrunk.shape[axis] == 1 else step
        step *= shrunk.shape[axis]
    return Access(buffer, None, 0, tuple(strides))


def contiguous(graph: Graph, nodes: Nodes) -> int:
    """A buffer that holds these elements in order from its beginning, and nothing else."""
    numbers = graph.numbers(nodes)
    if numbers is not None:
        return graph.table(numbers)
    flat = nodes.reshape(-1)
    found = [graph.nodes[node] for node in flat.tolist()]
    if all(node.op == "element" for node in found):
        buffer = found[0].note[0]
        if [node.note for node in found] == [(buffer, k) for k in range(graph.buffers[buffer].size)]:
            return buffer
    return filled(graph, nodes)


def filled(graph: Graph, nodes: Nodes) -> int:
    """A new buffer with these elements."""
    flat = nodes.reshape(-1).tolist()
    buffer = graph.buffer(len(flat), graph.nodes[flat[0]].dtype)
    graph.add(Fill(buffer, flat))
    return buffer


def _affine(graph: Graph, nodes: Nodes) -> Access | None:
    found = [graph.nodes[node] for node in nodes.reshape(-1).tolist()]
    if any(node.op != "element" or node.note[0] != found[0].note[0] for node in found):
        return None
    positions = np.array([node.note[1] for node in found]).reshape(nodes.shape)
    corner = (0,) * nodes.ndim
    offset, strides, expected = int(positions[corner]), [], np.zeros(nodes.shape, int)
    for axis, size in enumerate(nodes.shape):
        step = int(positions[tuple(int(k == axis) for k in range(nodes.ndim))]) - offset if size > 1 else 0
        strides.append(step)
        expected = expected + step * np.arange(size).reshape([-1 if k == axis else 1 for k in range(nodes.ndim)])
    return Access(found[0].note[0], None, offset, tuple(strides)) if (positions == offset + expected).all() else None
