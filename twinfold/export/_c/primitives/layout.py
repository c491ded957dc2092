"""Primitives that only rearrange elements: they move nodes and write no C code."""

from collections.abc import Callable
from typing import Any

import numpy as np

from twinfold.export._c.arrays import unstack
from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._c.lowering import rule

# The NumPy function that each does to the nodes of its operand, given its parameters.
_REARRANGED: dict[str, Callable[[Any, Nodes], Nodes]] = {
    "reshape": lambda params, x: x.reshape(params["new_sizes"]),
    "transpose": lambda params, x: x.transpose(params["permutation"]),
    "squeeze": lambda params, x: x.squeeze(params["dimensions"]),
    "expand_dims": lambda params, x: np.expand_dims(x, params["dimensions"]),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "tile": lambda params, x: np.tile(x, params["reps"]),
}


@rule(**{name: name for name in _REARRANGED})
def _rearrange(graph: Graph, params: Any, dtype: Any, x: Nodes, *_: Nodes, op: str) -> list[Nodes]:
    return [_REARRANGED[op](params, x)]


@rule("broadcast_in_dim")
def _broadcast(graph: Graph, params: Any, dtype: Any, x: Nodes, *_: Nodes) -> list[Nodes]:
    shape = [1] * len(params["shape"])
    for axis, size in zip(params["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return [np.broadcast_to(x.reshape(shape), params["shape"])]


@rule("slice")
def _slice(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    strides = params["strides"] or (1,) * x.ndim
    return [x[tuple(map(slice, params["start_indices"], params["limit_indices"], strides))]]


@rule("concatenate")
def _concatenate(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    return [np.concatenate(args, axis=params["dimension"])]


@rule("stack")
def _stack(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    return [np.stack(args, axis=params["axis"])]


@rule("unstack")
def _unstack(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    return unstack(x, params["axis"])


@rule("split")
def _split(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    return np.split(x, np.cumsum(params["sizes"])[:-1], axis=params["axis"])


@rule("pad")
def _pad(graph: Graph, params: Any, dtype: Any, x: Nodes, value: Nodes) -> list[Nodes]:
    for axis, (low, high, interior) in enumerate(params["padding_config"]):
        size = x.shape[axis]
        spread = np.moveaxis(np.full((*np.delete(x.shape, axis), size + max(size - 1, 0) * interior), value), -1, axis)
        lead = (slice(None),) * axis
        spread[(*lead, slice(None, None, interior + 1))] = x
        widths = [(0, 0)] * x.ndim
        widths[axis] = (max(low, 0), max(high, 0))
        grown = np.pad(spread, widths, constant_values=int(value))
        x = grown[(*lead, slice(max(-low, 0), grown.shape[axis] - max(-high, 0)))]
    return [x]


@rule("iota")
def _iota(graph: Graph, params: Any, dtype: np.dtype) -> list[Nodes]:
    return [graph.constants(np.indices(params["shape"])[params["dimension"]].astype(dtype))]
