"""Loops, branches and calls: the primitives that have jaxprs of their own."""

import functools
from typing import Any

import numpy as np
from jax.extend import core

from twinfold.export._c.arrays import contiguous, elementwise
from twinfold.export._c.graph import Block, Graph, Nodes
from twinfold.export._c.interpret import evaluate, inner_jaxpr, own_platform
from twinfold.export._c.rules import rule
from twinfold.export._c.statements import Branch, Put, Repeat, Slot


@rule(
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "remat2",
    "checkpoint",
    "remat",
)
def _call(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    return evaluate(graph, inner_jaxpr(params), list(args))


@rule("custom_linear_solve")
def _linear_solve(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    lengths = params["const_lengths"]
    skipped = lengths.matvec + lengths.vecmat
    total = skipped + lengths.solve + lengths.transpose_solve
    return evaluate(graph, params["jaxprs"].solve, [*args[skipped : skipped + lengths.solve], *args[total:]])


@rule("while")
def _while(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    count, skip = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    outer_test, outer_body, first = list(args[:count]), list(args[count:skip]), list(args[skip:])

    def condition(carried: list[Nodes]) -> int:
        wanted = evaluate(graph, test, [*outer_test, *carried])[0].reshape(-1).tolist()
        return functools.reduce(lambda a, b: graph.apply("or", a, b), wanted)

    def advance(carried: list[Nodes]) -> list[Nodes]:
        out = evaluate(graph, body, [*outer_body, *carried])
        wanted = evaluate(graph, test, [*outer_test, *carried])[0]
        if wanted.ndim == 0:
            return out
        # A loop under vmap goes on until all are done; those that are keep what they have.
        shaped = (wanted.reshape(wanted.shape + (1,) * (value.ndim - wanted.ndim)) for value in out)
        return [elementwise(graph, "select", *row) for row in zip(shaped, out, carried, strict=True)]

    return _repeat(graph, first, condition, advance, [])


@rule("scan")
def _scan(graph: Graph, params: Any, dtype: Any, *args: Nodes) -> list[Nodes]:
    body, length, reverse = params["jaxpr"], params["length"], params["reverse"]
    consts, carry = params["num_consts"], params["num_consts"] + params["num_carry"]
    outer, first, sequences = list(args[:consts]), list(args[consts:carry]), list(args[carry:])
    results = body.out_avals[params["num_carry"] :]
    if length == 1:
        out = evaluate(graph, body, [*outer, *first, *(sequence[0, ...] for sequence in sequences)])
        return [*out[: params["num_carry"]], *(value[None] for value in out[params["num_carry"] :])]
    stored = [contiguous(graph, sequence) if sequence.size else None for sequence in sequences]
    collected = [graph.buffer(max(length * aval.size, 1), aval.dtype) for aval in results]
    int_type = np.dtype(np.int64)

    def condition(carried: list[Nodes]) -> int:
        return graph.apply("lt", int(carried[0]), graph.constant(np.asarray(length, int_type)))

    def advance(carried: list[Nodes]) -> list[Nodes]:
        index = int(carried[0])
        last = graph.constant(np.asarray(length - 1, int_type))
        place = graph.apply("sub", last, index) if reverse else index
        items = [
            _item(graph, buffer, place, sequence.shape[1:]) for buffer, sequence in zip(stored, sequences, strict=True)
        ]
        out = evaluate(graph, body, [*outer, *carried[1:], *items])
        for buffer, value in zip(collected, out[params["num_carry"] :], strict=True):
            if value.size:
                graph.add(Put(buffer, place, value.reshape(-1).tolist()))
        following = graph.apply("add", index, graph.constant(np.asarray(1, int_type)))
        return [np.array(following), *out[: params["num_carry"]]]

    start = np.array(graph.constant(np.asarray(0, int_type)))
    final = _repeat(graph, [start, *first], condition, advance, collected)[1:]
    return [
        *final,
        *(graph.elements(b, (length, *aval.shape)) for b, aval in zip(collected, results, strict=True)),
    ]


def _item(graph: Graph, buffer: int | None, index: int, shape: tuple[int, ...]) -> Nodes:
    """One entry of a sequence, whose place in it is computed."""
    size = int(np.prod(shape, dtype=int))
    if buffer is None:
        return np.zeros(shape, dtype=np.int64)
    start = graph.apply("mul", index, graph.constant(np.asarray(size, np.int64)))
    places = [graph.apply("add", start, graph.constant(np.asarray(k, np.int64))) for k in range(size)]
    return np.array([graph.read(buffer, place) for place in places], dtype=np.int64).reshape(shape)


def _repeat(graph: Graph, first: list[Nodes], condition: Any, advance: Any, collected: list[int]) -> list[Nodes]:
    """A loop whose carried elements are variables, except for those that keep their first value for ever."""
    fixed: set[int] = set()
    start = np.concatenate([value.reshape(-1) for value in first]) if first else np.zeros(0, np.int64)
    ends = np.cumsum([0] + [value.size for value in first])
    outside = graph.block
    while True:
        now = np.array(
            [node if k in fixed else graph.variable(graph.nodes[node].dtype) for k, node in enumerate(start.tolist())],
            dtype=np.int64,
        )
        carried = [now[a:b].reshape(v.shape) for a, b, v in zip(ends[:-1], ends[1:], first, strict=True)]
        test = Block(outside)
        graph.block = test
        goes_on = condition(carried)
        # What the condition has computed is known in the body too: both are in the same braces.
        body = Block(test)
        graph.block = body
        after = np.concatenate([value.reshape(-1) for value in advance(carried)] or [start])
        graph.block = outside
        same = {
            k
            for k, (a, b, c) in enumerate(zip(start.tolist(), now.tolist(), after.tolist(), strict=True))
            if c in (a, b)
        }
        if same <= fixed:
            break
        fixed |= same
    slots = [
        Slot(variable, node, following)
        for k, (variable, node, following) in enumerate(zip(now.tolist(), start.tolist(), after.tolist(), strict=True))
        if k not in fixed
    ]
    graph.add(Repeat(slots, test, goes_on, body, collected))
    return carried


@rule("platform_index")
def _platform(graph: Graph, params: Any, dtype: np.dtype) -> list[Nodes]:
    return [np.array(graph.constant(np.asarray(own_platform(params["platforms"]), dtype)))]


@rule("cond")
def _cond(graph: Graph, params: Any, dtype: Any, index: Nodes, *args: Nodes) -> list[Nodes]:
    branches: tuple[core.ClosedJaxpr, ...] = params["branches"]
    known = graph.value(int(index))
    if known is not None:
        return evaluate(graph, branches[int(np.clip(known, 0, len(branches) - 1))], list(args))
    outside, blocks, outcomes = graph.block, [], []
    for branch in branches:
        graph.block = Block(outside)
        outcomes.append(evaluate(graph, branch, list(args)))
        blocks.append(graph.block)
    graph.block = outside
    results, values = [], []
    for sides in zip(*outcomes, strict=True):
        flat = [side.reshape(-1).tolist() for side in sides]
        nodes = []
        for options in zip(*flat, strict=True):
            if len(set(options)) == 1:
                nodes.append(options[0])
                continue
            variable = graph.variable(graph.nodes[options[0]].dtype)
            results.append((variable, list(options)))
            nodes.append(variable)
        values.append(np.array(nodes, dtype=np.int64).reshape(sides[0].shape))
    graph.add(Branch(int(index), blocks, results))
    return values
