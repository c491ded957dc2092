"""Optimisation passes over the statements of a function: dead code, loop fusion, branches."""

from collections.abc import Iterable

from twinfold.export._c.arrays import Loop
from twinfold.export._c.branches import branch
from twinfold.export._c.control_flow import Switch, While, map_blocks
from twinfold.export._c.graph import Block, Graph, Statement, buffer_key


def optimise(graph: Graph, statements: list[Statement], results: Iterable[int]) -> list[Statement]:
    """All passes; `results` are the nodes that the function returns."""
    needed = graph.dependencies(results)
    statements = remove_dead_code(graph, statements, set(needed))
    statements = fuse_loops(graph, statements, needed)
    return branch(graph, statements, needed)


def remove_dead_code(graph: Graph, statements: list[Statement], needed: set[int]) -> list[Statement]:
    """The statements on which something in `needed` depends; what they read is added to `needed`."""
    live: list[Statement] = []
    for statement in reversed(statements):
        if not statement.defines() & needed:
            continue
        match statement:
            case While():
                statement = _live_loop(graph, statement, needed)
            case Switch():
                statement = _live_switch(graph, statement, needed)
            case _:
                needed |= statement.reads(graph)
        live.append(statement)
    return live[::-1]


def _live_loop(graph: Graph, loop: While, needed: set[int]) -> While:
    collected = [buffer for buffer in loop.collected if buffer_key(buffer) in needed]
    live: set[int] = set()
    while True:
        carried = [carry for carry in loop.carries if carry.variable in live]
        inside = graph.dependencies([loop.condition, *(carry.next for carry in carried)])
        inside |= {buffer_key(buffer) for buffer in collected}
        body = remove_dead_code(graph, loop.body.statements, inside)
        test = remove_dead_code(graph, loop.test.statements, inside)
        read = {carry.variable for carry in loop.carries} & (inside | needed)
        if read == live:
            break
        live = read
    needed |= inside | graph.dependencies(carry.initial for carry in carried)
    return While(carried, Block(statements=test), loop.condition, Block(statements=body), collected)


def _live_switch(graph: Graph, switch: Switch, needed: set[int]) -> Switch:
    results = [(variable, nodes) for variable, nodes in switch.results if variable in needed]
    blocks = []
    for k, block in enumerate(switch.blocks):
        inside = graph.dependencies(nodes[k] for _, nodes in results)
        blocks.append(Block(statements=remove_dead_code(graph, block.statements, inside)))
        needed |= inside
    needed |= graph.dependencies([switch.index])
    return Switch(switch.index, blocks, results)


def fuse_loops(graph: Graph, statements: list[Statement], needed: set[int]) -> list[Statement]:
    """Merge loops over the same elements if nothing else reads the intermediate array."""
    statements = [map_blocks(graph, statement, fuse_loops) for statement in statements]
    readers: dict[int, int] = {}
    for statement in statements:
        for read in statement.reads(graph):
            readers[read] = readers.get(read, 0) + 1
    loops: dict[int, Loop] = {}
    fused: list[Statement] = []
    for statement in statements:
        if isinstance(statement, Loop):
            for inner in [loops[operand.buffer] for operand in statement.operands if operand.buffer in loops]:
                key = buffer_key(inner.buffer)
                if readers[key] == 1 and key not in needed and statement.reads_elements_of(inner):
                    statement = statement.fused(inner)
                    fused = [other for other in fused if other is not inner]
            loops[statement.buffer] = statement
        fused.append(statement)
    return fused
