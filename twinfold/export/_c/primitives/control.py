"""Primitives that contain jaxprs: calls, loops and branches."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend import core

from twinfold.export._c.arrays import contiguous, elementwise
from twinfold.export._c.control_flow import Carry, Store, Switch, While
from twinfold.export._c.graph import Block, Graph, Nodes, node_array
from twinfold.export._c.lowering import lower, rule
from twinfold.export._jaxpr import CALLS, called_jaxpr, cpu_index


@rule(*CALLS)
def _call(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    return lower(graph, called_jaxpr(params), list(args))


@rule("custom_linear_solve")
def _linear_solve(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    lengths = params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    end = start + lengths.solve + lengths.transpose_solve
    return lower(graph, params["jaxprs"].solve, [*args[start : start + lengths.solve], *args[end:]])


@rule("while")
def _while(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    count, skip = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    test_consts, body_consts, initial = args[:count], args[count:skip], list(args[skip:])

    def condition(carried: list[Nodes]) -> int:
        running = lower(graph, test, [*test_consts, *carried])[0].reshape(-1).tolist()
        return functools.reduce(lambda a, b: graph.apply("or", a, b), running)

    def advance(carried: list[Nodes]) -> list[Nodes]:
        out = lower(graph, body, [*body_consts, *carried])
        running = lower(graph, test, [*test_consts, *carried])[0]
        if running.ndim == 0:
            return out
        # A loop under vmap runs until all members are done; those that are done keep their values.
        masks = (running.reshape(running.shape + (1,) * (value.ndim - running.ndim)) for value in out)
        return [elementwise(graph, "select", *row) for row in zip(masks, out, carried, strict=True)]

    return _loop(graph, initial, condition, advance, [])


@rule("scan")
def _scan(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    body, length, carries = params["jaxpr"], params["length"], params["num_carry"]
    consts, skip = params["num_consts"], params["num_consts"] + carries
    outer, initial, sequences = args[:consts], list(args[consts:skip]), args[skip:]
    results = body.out_avals[carries:]
    if length == 1:
        out = lower(graph, body, [*outer, *initial, *(sequence[0, ...] for sequence in sequences)])
        return [*out[:carries], *(value[None] for value in out[carries:])]
    stored = [contiguous(graph, sequence) if sequence.size else None for sequence in sequences]
    collected = [graph.buffer(max(length * aval.size, 1), aval.dtype) for aval in results]
    integer = functools.partial(graph.constant, dtype=np.int64)

    def item(buffer: int | None, index: int, shape: tuple[int, ...]) -> Nodes:
        """One entry of a sequence."""
        if buffer is None:
            return np.zeros(shape, dtype=np.int64)
        size = int(np.prod(shape, dtype=int))
        start = graph.apply("mul", index, integer(size))
        places = [graph.apply("add", start, integer(k)) for k in range(size)]
        return node_array((graph.read(buffer, place) for place in places), shape)

    def condition(carried: list[Nodes]) -> int:
        return graph.apply("lt", int(carried[0]), integer(length))

    def advance(carried: list[Nodes]) -> list[Nodes]:
        count = int(carried[0])
        index = graph.apply("sub", integer(length - 1), count) if params["reverse"] else count
        items = [item(buffer, index, sequence.shape[1:]) for buffer, sequence in zip(stored, sequences, strict=True)]
        out = lower(graph, body, [*outer, *carried[1:], *items])
        for buffer, value in zip(collected, out[carries:], strict=True):
            if value.size:
                graph.add(Store(buffer, index, value.reshape(-1).tolist()))
        return [np.array(graph.apply("add", count, integer(1))), *out[:carries]]

    final = _loop(graph, [np.array(integer(0)), *initial], condition, advance, collected)[1:]
    stacked = (graph.elements(b, (length, *aval.shape)) for b, aval in zip(collected, results, strict=True))
    return [*final, *stacked]


def _loop(
    graph: Graph,
    initial: list[Nodes],
    condition: Callable[[list[Nodes]], int],
    advance: Callable[[list[Nodes]], list[Nodes]],
    collected: list[int],
) -> list[Nodes]:
    """A loop; carried elements that never change are not variables."""
    invariant: set[int] = set()
    start = [node for value in initial for node in value.reshape(-1).tolist()]
    ends = np.cumsum([value.size for value in initial])[:-1]
    outside = graph.block
    while True:
        now = [node if k in invariant else graph.variable(graph.nodes[node].dtype) for k, node in enumerate(start)]
        parts = np.split(node_array(now, (-1,)), ends) if initial else []
        carried = [part.reshape(value.shape) for part, value in zip(parts, initial, strict=True)]
        graph.block = test = Block(outside)
        running = condition(carried)
        # The body sees what the condition has computed: both are inside the same braces.
        graph.block = body = Block(test)
        after = [node for value in advance(carried) for node in value.reshape(-1).tolist()]
        graph.block = outside
        rows = list(zip(now, start, after, strict=True))
        unchanged = {k for k, (variable, first, following) in enumerate(rows) if following in (first, variable)}
        if unchanged <= invariant:
            break
        invariant |= unchanged
    carries = [Carry(*row) for k, row in enumerate(rows) if k not in invariant]
    graph.add(While(carries, test, running, body, collected))
    return carried


@rule("platform_index")
def _platform_index(graph: Graph, params: Any, dtype: np.dtype) -> list[Nodes]:
    return [np.array(graph.constant(cpu_index(params["platforms"]), dtype))]


@rule("cond")
def _cond(graph: Graph, params: Any, dtype: Any, index: Nodes, *args: Nodes) -> list[Nodes]:
    branches: tuple[core.ClosedJaxpr, ...] = params["branches"]
    constant = graph.value(int(index))
    if constant is not None:
        return lower(graph, branches[int(np.clip(constant, 0, len(branches) - 1))], list(args))
    outside, blocks, outcomes = graph.block, [], []
    for branch in branches:
        graph.block = Block(outside)
        outcomes.append(lower(graph, branch, list(args)))
        blocks.append(graph.block)
    graph.block = outside
    results: list[tuple[int, list[int]]] = []

    def merged(*options: int) -> int:
        """The node that all branches agree on, or a new variable."""
        if len(set(options)) == 1:
            return options[0]
        results.append((graph.variable(graph.nodes[options[0]].dtype), list(options)))
        return results[-1][0]

    values = []
    for sides in zip(*outcomes, strict=True):
        rows = zip(*(side.reshape(-1).tolist() for side in sides), strict=True)
        values.append(node_array((merged(*row) for row in rows), sides[0].shape))
    graph.add(Switch(int(index), blocks, results))
    return values
