"""Primitives that only move elements: they cost nothing in C, since an array is known by the nodes of its elements."""

from typing import Any

import numpy as np

from twinfold.export._c.arrays import along
from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._c.rules import rule


@rule("broadcast_in_dim")
def _broadcast(graph: Graph, params: Any, dtype: Any, x: Nodes, *_: Nodes) -> list[Nodes]:
    shape = [1] * len(params["shape"])
    for axis, place in enumerate(params["broadcast_dimensions"]):
        shape[place] = x.shape[axis]
    return [np.broadcast_to(x.reshape(shape), params["shape"])]


@rule("reshape")
def _reshape(graph: Graph, params: Any, dtype: Any, x: Nodes, *_: Nodes) -> list[Nodes]:
    return [x.reshape(params["new_sizes"])]


@rule("transpose")
def _transpose(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    return [x.transpose(params["permutation"])]


@rule("squeeze")
def _squeeze(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    return [x.squeeze(params["dimensions"])]


@rule("expand_dims")
def _expand_dims(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    return [np.expand_dims(x, params["dimensions"])]


@rule("rev")
def _rev(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    return [np.flip(x, params["dimensions"])]


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
    return along(x, params["axis"])


@rule("split")
def _split(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    return np.split(x, np.cumsum(params["sizes"])[:-1], axis=params["axis"])


@rule("pad")
def _pad(graph: Graph, params: Any, dtype: Any, x: Nodes, value: Nodes) -> list[Nodes]:
    for axis, (low, high, between) in enumerate(params["padding_config"]):
        size = x.shape[axis] + max(x.shape[axis] - 1, 0) * between
        spread = np.full((*x.shape[:axis], size, *x.shape[axis + 1 :]), int(value), dtype=np.int64)
        spread[(slice(None),) * axis + (slice(None, None, between + 1),)] = x
        widths = [(0, 0)] * x.ndim
        widths[axis] = (max(low, 0), max(high, 0))
        grown = np.pad(spread, widths, constant_values=int(value))
        cut = slice(max(-low, 0), grown.shape[axis] - max(-high, 0))
        x = grown[(slice(None),) * axis + (cut,)]
    return [x]


@rule("tile")
def _tile(graph: Graph, params: Any, dtype: Any, x: Nodes) -> list[Nodes]:
    return [np.tile(x, params["reps"])]


@rule("iota")
def _iota(graph: Graph, params: Any, dtype: np.dtype) -> list[Nodes]:
    shape, axis = params["shape"], params["dimension"]
    counts = np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return [graph.constants(np.broadcast_to(counts, shape).astype(dtype))]
