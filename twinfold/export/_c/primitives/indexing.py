"""Indexing at constant or computed positions: `x[i]`, `x.at[i].set(v)` and the like."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from twinfold.export._c.arrays import contiguous, row_major
from twinfold.export._c.graph import BufferStatement, Graph, Nodes, buffer_key, node_array
from twinfold.export._c.lowering import rule
from twinfold.export._c.writer import Writer, emit


class Write(NamedTuple):
    """One element to update: its position, the condition (None: always), the value, and the operation or "set"."""

    position: int
    condition: int | None
    value: int
    op: str


@dataclass
class Update(BufferStatement):
    """A copy of the buffer `source` with some elements updated."""

    source: int
    writes: list[Write]

    def reads(self, graph: Graph) -> set[int]:
        used = [node for write in self.writes for node in write[:3] if node is not None]
        return graph.dependencies(used) | {buffer_key(self.source)}

    def cost(self, graph: Graph) -> int:
        return 10


@emit.register(Update)
def _update(statement: Update, out: Writer) -> None:
    name, dtype = out.declare(statement.buffer), out.graph.buffers[statement.buffer].dtype
    out.line(f"memcpy({name}, {out.buffer(statement.source)}, sizeof {name});")
    for position, condition, value, op in statement.writes:
        place, text = f"{name}[{out.name(position)}]", out.name(value)
        text = text if op == "set" else out.operation(op, [place, text], dtype, dtype)
        out.line(f"{'' if condition is None else f'if ({out.name(condition)}) '}{place} = {text};")


@rule("dynamic_slice")
def _dynamic_slice(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *start: Nodes) -> list[Nodes]:
    sizes = params["slice_sizes"]
    return [node_array(_elements(graph, x, _slice_positions(graph, x.shape, sizes, start)), sizes)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, v: Nodes, *start: Nodes) -> list[Nodes]:
    positions = _slice_positions(graph, x.shape, v.shape, start)
    values = v.reshape(-1).tolist()
    return [_updated(graph, x, [Write(at, None, value, "set") for at, value in zip(positions, values, strict=True)])]


@rule("gather")
def _gather(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, indices: Nodes) -> list[Nodes]:
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    hidden = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = dict(zip(numbers.offset_dims, (axis for axis in range(x.ndim) if axis not in hidden), strict=True))
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    windows = _Windows(x.shape, sizes, window, tuple(map(int, numbers.start_index_map)), batching)
    batch_sizes = iter(indices.shape[:-1])
    shape = [
        sizes[window[axis]] if axis in window else next(batch_sizes) for axis in range(indices.ndim - 1 + len(window))
    ]
    fill = params["fill_value"]
    missing = graph.constant((np.nan if dtype.kind == "f" else 0) if fill is None else fill, dtype)
    located = [windows.locate(graph, indices, place) for place in np.ndindex(*shape)]
    elements = _elements(graph, x, [position for position, _ in located])
    if "FILL" in str(params["mode"]):
        pairs = zip(located, elements, strict=True)
        elements = [graph.apply("select", inside, element, missing) for (_, inside), element in pairs]
    return [node_array(elements, shape)]


@rule(**{"scatter": "set", "scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max"})
def _scatter(graph: Graph, params: Any, dtype: Any, x: Nodes, indices: Nodes, v: Nodes, *, op: str) -> list[Nodes]:
    numbers = params["dimension_numbers"]
    hidden = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = dict(zip(numbers.update_window_dims, (axis for axis in range(x.ndim) if axis not in hidden), strict=True))
    batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    sizes = [1] * x.ndim
    for axis, operand_axis in window.items():
        sizes[operand_axis] = v.shape[axis]
    windows = _Windows(x.shape, sizes, window, tuple(map(int, numbers.scatter_dims_to_operand_dims)), batching)
    writes = []
    for place in np.ndindex(*v.shape):
        position, inside = windows.locate(graph, indices, place)
        writes.append(Write(position, None if "CLIP" in str(params["mode"]) else inside, int(v[place]), op))
    return [_updated(graph, x, writes)]


@dataclass(frozen=True)
class _Windows:
    """The windows of a gather or scatter.

    `shape` of the operand; `sizes` of a window along its axes; `window`: axis of the result (or update) -> axis of the
    operand; `indexed`: the axis that each component of an index vector refers to; `batching`: axis of the operand ->
    batch axis.
    """

    shape: Sequence[int]
    sizes: Sequence[int]
    window: dict[int, int]
    indexed: Sequence[int]
    batching: dict[int, int]

    def locate(self, graph: Graph, indices: Nodes, place: tuple[int, ...]) -> tuple[int, int]:
        """The position in the operand of an element of the result, and whether its window is inside.

        A window that is not inside is moved there.
        """
        batch = tuple(k for axis, k in enumerate(place) if axis not in self.window)
        corner = [_integer(graph, 0)] * len(self.shape)
        inside = graph.constant(True)
        for index, axis in zip(indices[batch].tolist(), self.indexed, strict=True):
            node = graph.apply("cast", index, dtype=np.int64)
            corner[axis] = _clamped(graph, node, self.shape[axis] - self.sizes[axis])
            inside = graph.apply("and", inside, graph.apply("eq", corner[axis], node))
        for axis, batch_axis in self.batching.items():
            corner[axis] = _integer(graph, batch[batch_axis])
        shift = [0] * len(self.shape)
        for axis, operand_axis in self.window.items():
            shift[operand_axis] = place[axis]
        return _position(graph, self.shape, corner, shift), inside


def _integer(graph: Graph, value: int) -> int:
    return graph.constant(value, np.int64)


def _clamped(graph: Graph, node: int, last: int) -> int:
    """A position moved into the range from 0 to `last`."""
    node = graph.apply("cast", node, dtype=np.int64)
    return graph.apply("min", graph.apply("max", node, _integer(graph, 0)), _integer(graph, last))


def _position(graph: Graph, shape: Sequence[int], corner: Sequence[int], shift: Sequence[int]) -> int:
    """The position of an element in row-major order."""
    position = _integer(graph, 0)
    for start, offset, stride in reversed(list(zip(corner, shift, row_major(shape), strict=True))):
        along = graph.apply("add", start, _integer(graph, offset))
        position = graph.apply("add", position, graph.apply("mul", along, _integer(graph, stride)))
    return position


def _slice_positions(graph: Graph, shape: Sequence[int], sizes: Sequence[int], start: Sequence[Nodes]) -> list[int]:
    """The positions of the elements of a window, which is moved inside."""
    corner = [_clamped(graph, int(s), n - size) for s, n, size in zip(start, shape, sizes, strict=True)]
    return [_position(graph, shape, corner, shift) for shift in np.ndindex(*sizes)]


def _elements(graph: Graph, x: Nodes, positions: Sequence[int]) -> list[int]:
    """The elements at these positions; an array that is read at a computed one is stored in memory once."""
    constants = [graph.value(position) for position in positions]
    if all(constant is not None for constant in constants):
        return x.reshape(-1)[constants].tolist()
    buffer = contiguous(graph, x)
    return [
        graph.read(buffer, position) if constant is None else int(x.reshape(-1)[constant])
        for position, constant in zip(positions, constants, strict=True)
    ]


def _updated(graph: Graph, x: Nodes, writes: list[Write]) -> Nodes:
    """`x` with some elements written: other nodes if all positions are constant, else a changed copy in memory."""
    used = [node for write in writes for node in (write.position, write.condition) if node is not None]
    if all(graph.value(node) is not None for node in used):
        flat = x.reshape(-1).copy()
        for position, condition, value, op in writes:
            if condition is None or graph.value(condition):
                at = graph.value(position)
                flat[at] = value if op == "set" else graph.apply(op, int(flat[at]), value)
        return flat.reshape(x.shape)
    source = contiguous(graph, x)
    out = graph.buffer(x.size, graph.buffers[source].dtype)
    graph.add(Update(out, source, writes))
    return graph.elements(out, x.shape)
