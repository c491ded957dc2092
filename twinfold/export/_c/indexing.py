"""Indexing, with positions that are known or computed: what `x[i]`, `x.at[i].set(v)` and their like become."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from twinfold.export._c.arrays import contiguous
from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._c.rules import rule, rule_with
from twinfold.export._c.statements import Change

PLACE = np.dtype(np.int64)
Write = tuple[int, int | None, int, str]


@rule("dynamic_slice")
def _dynamic_slice(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, *start: Nodes) -> list[Nodes]:
    sizes = params["slice_sizes"]
    corner = [_within(graph, int(s), n - size) for s, n, size in zip(start, x.shape, sizes, strict=True)]
    found = [_picked(graph, x, _position(graph, x.shape, corner, shift)) for shift in np.ndindex(*sizes)]
    return [np.array(found, dtype=np.int64).reshape(sizes)]


@rule("dynamic_update_slice")
def _dynamic_update_slice(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, v: Nodes, *start: Nodes) -> list[Nodes]:
    corner = [_within(graph, int(s), n - size) for s, n, size in zip(start, x.shape, v.shape, strict=True)]
    shifts = np.ndindex(*v.shape)
    writes: list[Write] = [(_position(graph, x.shape, corner, shift), None, int(v[shift]), "set") for shift in shifts]
    return [_changed(graph, x, writes)]


@rule("gather")
def _gather(graph: Graph, params: Any, dtype: np.dtype, x: Nodes, indices: Nodes) -> list[Nodes]:
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    hidden = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = dict(zip(numbers.offset_dims, (axis for axis in range(x.ndim) if axis not in hidden), strict=True))
    rank = indices.ndim - 1 + len(window)
    batch_axes = [axis for axis in range(rank) if axis not in window]
    shape = [0] * rank
    for axis, size in zip(batch_axes, indices.shape[:-1], strict=True):
        shape[axis] = size
    for axis, of in window.items():
        shape[axis] = sizes[of]
    filling, fill = "FILL" in str(params["mode"]), params["fill_value"]
    fill = (np.nan if dtype.kind == "f" else 0) if fill is None else fill
    batching = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    out = np.zeros(shape, dtype=np.int64)
    for place in np.ndindex(*shape):
        batch = tuple(place[axis] for axis in batch_axes)
        corner, inside = _corner(graph, x.shape, sizes, indices[batch], numbers.start_index_map, batching, batch)
        shift = _shift(x.ndim, window, place)
        found = _picked(graph, x, _position(graph, x.shape, corner, shift))
        missing = graph.constant(np.asarray(fill, dtype))
        out[place] = graph.apply("select", inside, found, missing) if filling else found
    return [out]


@rule_with({"scatter": "set", "scatter-add": "add", "scatter-mul": "mul", "scatter-min": "min", "scatter-max": "max"})
def _scatter(graph: Graph, params: Any, dtype: Any, x: Nodes, indices: Nodes, v: Nodes, *, op: str) -> list[Nodes]:
    numbers = params["dimension_numbers"]
    hidden = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    window = dict(zip(numbers.update_window_dims, (axis for axis in range(x.ndim) if axis not in hidden), strict=True))
    batch_axes = [axis for axis in range(v.ndim) if axis not in window]
    sizes = [1] * x.ndim
    for axis, of in window.items():
        sizes[of] = v.shape[axis]
    clipping = "CLIP" in str(params["mode"])
    batching = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    writes = []
    for place in np.ndindex(*v.shape):
        batch = tuple(place[axis] for axis in batch_axes)
        axes = numbers.scatter_dims_to_operand_dims
        corner, inside = _corner(graph, x.shape, sizes, indices[batch], axes, batching, batch)
        position = _position(graph, x.shape, corner, _shift(x.ndim, window, place))
        writes.append((position, None if clipping else inside, int(v[place]), op))
    return [_changed(graph, x, writes)]


def _corner(
    graph: Graph, shape: Any, sizes: Any, index: Nodes, axes: Any, batching: dict[int, int], batch: tuple[int, ...]
) -> tuple[list[int], int]:
    """Where a window begins in each axis, moved inside where it is not, and whether it was inside."""
    corner = [_number(graph, 0)] * len(shape)
    inside = graph.constant(np.asarray(True))
    for k, axis in enumerate(axes):
        node = graph.apply("cast", int(index[k]), dtype=PLACE)
        corner[axis] = _within(graph, node, shape[axis] - sizes[axis])
        inside = graph.apply("and", inside, graph.apply("eq", corner[axis], node))
    for axis, of in batching.items():
        corner[axis] = _number(graph, batch[of])
    return corner, inside


def _shift(rank: int, window: dict[int, int], place: tuple[int, ...]) -> list[int]:
    """How far an element lies from the corner of its window."""
    shift = [0] * rank
    for axis, of in window.items():
        shift[of] = place[axis]
    return shift


def _number(graph: Graph, value: int) -> int:
    return graph.constant(np.asarray(value, PLACE))


def _within(graph: Graph, node: int, last: int) -> int:
    """A position moved into the range from 0 to `last`."""
    node = graph.apply("cast", node, dtype=PLACE)
    return graph.apply("min", graph.apply("max", node, _number(graph, 0)), _number(graph, last))


def _position(graph: Graph, shape: Sequence[int], corner: Sequence[int], shift: Sequence[int]) -> int:
    """The place of an element in row-major order."""
    found, step = _number(graph, 0), 1
    for size, start, by in reversed(list(zip(shape, corner, shift, strict=True))):
        along = graph.apply("add", start, _number(graph, by))
        found = graph.apply("add", found, graph.apply("mul", along, _number(graph, step)))
        step *= size
    return found


def _picked(graph: Graph, x: Nodes, position: int) -> int:
    known = graph.value(position)
    return int(x.reshape(-1)[known]) if known is not None else graph.read(contiguous(graph, x), position)


def _changed(graph: Graph, x: Nodes, writes: list[Write]) -> Nodes:
    """`x` with these elements written: other nodes where all positions are known, else a changed copy in memory."""
    known = [(graph.value(place), None if when is None else graph.value(when)) for place, when, _, _ in writes]
    if all(
        place is not None and (w[1] is None or sure is not None) for (place, sure), w in zip(known, writes, strict=True)
    ):
        flat = x.reshape(-1).copy()
        for (place, sure), (_, _, value, op) in zip(known, writes, strict=True):
            if sure is None or sure:
                flat[place] = value if op == "set" else graph.apply(op, int(flat[place]), value)
        return flat.reshape(x.shape)
    source = contiguous(graph, x)
    out = graph.buffer(x.size, graph.buffers[source].dtype)
    graph.add(Change(out, source, writes))
    return graph.elements(out, x.shape)
