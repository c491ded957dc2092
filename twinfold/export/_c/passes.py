"""What is done to the statements before they are written: drop what nobody reads, do not compute what is not chosen.

A `jnp.where` computes both sides, on an accelerator at no cost. Here a side that takes some work is computed inside an
`if`: of the four iterations that a projection has in store, those after convergence cost one comparison each.
"""

import dataclasses
from typing import Any

from twinfold.export._c.graph import Block, Define, Graph
from twinfold.export._c.statements import Branch, Either, Loop, Put, Repeat, cost, gives, key, names, needs, row_major

WORTHWHILE = 12  # additions that an `if` has to spare


def sweep(graph: Graph, statements: list[Any], needed: set[int]) -> list[Any]:
    """The statements that something in `needed` depends on; what they need is added to it."""
    kept = []
    for statement in reversed(statements):
        if isinstance(statement, Repeat):
            live = _live_loop(graph, statement, needed)
        elif isinstance(statement, Branch):
            live = _live_branch(graph, statement, needed)
        elif gives(statement) & needed:
            needed |= needs(graph, statement)
            live = statement
        else:
            live = None
        if live is not None:
            kept.append(live)
    return kept[::-1]


def _live_loop(graph: Graph, loop: Repeat, needed: set[int]) -> Repeat | None:
    if not gives(loop) & needed:
        return None
    collected = [buffer for buffer in loop.collected if key(buffer) in needed]
    live: set[int] = set()
    while True:
        inside = names(graph, [loop.condition, *(slot.next for slot in loop.slots if slot.variable in live)])
        inside |= {key(buffer) for buffer in collected}
        body = sweep(graph, loop.body.statements, inside)
        test = sweep(graph, loop.test.statements, inside)
        wanted = {slot.variable for slot in loop.slots} & (inside | needed)
        if wanted == live:
            break
        live = wanted
    slots = [slot for slot in loop.slots if slot.variable in live]
    needed |= inside | names(graph, [slot.first for slot in slots])
    return Repeat(slots, Block(statements=test), loop.condition, Block(statements=body), collected)


def _live_branch(graph: Graph, branch: Branch, needed: set[int]) -> Branch | None:
    results = [(variable, nodes) for variable, nodes in branch.results if variable in needed]
    if not results:
        return None
    blocks = []
    for k, block in enumerate(branch.blocks):
        inside = names(graph, [nodes[k] for _, nodes in results])
        blocks.append(Block(statements=sweep(graph, block.statements, inside)))
        needed |= inside
    needed |= names(graph, [branch.index])
    return Branch(branch.index, blocks, results)


def all_needs(graph: Graph, statement: Any) -> set[int]:
    """Everything that a statement reads, with what the blocks inside it read (some of it their own)."""
    match statement:
        case Repeat(slots, test, condition, body, _):
            own = names(graph, [condition, *(node for slot in slots for node in (slot.first, slot.next))])
            return own.union(*(all_needs(graph, inner) for inner in test.statements + body.statements))
        case Branch(index, blocks, results):
            own = names(graph, [index, *(node for _, nodes in results for node in nodes)])
            return own.union(*(all_needs(graph, inner) for block in blocks for inner in block.statements))
        case Either(condition, yes, no, chosen):
            own = names(graph, [condition, *(node for _, *sides in chosen for node in sides)])
            return own.union(*(all_needs(graph, inner) for inner in yes + no))
    return needs(graph, statement)


def with_branches(graph: Graph, statements: list[Any], needed: set[int]) -> list[Any]:
    """The same with selections turned into branches where that spares work; `needed`: what is read afterwards."""
    statements = [_inside(graph, statement) for statement in statements]
    tried: set[int] = set()
    while True:
        found = _best(graph, statements, needed, tried)
        if found is None:
            return statements
        statements, condition = found
        tried.add(condition)


def _inside(graph: Graph, statement: Any) -> Any:
    match statement:
        case Repeat(slots, test, condition, body, _):
            after = names(graph, [condition, *(slot.next for slot in slots)])
            inside = after | set().union(*(all_needs(graph, inner) for inner in body.statements), set())
            return dataclasses.replace(
                statement,
                test=Block(statements=with_branches(graph, test.statements, inside)),
                body=Block(statements=with_branches(graph, body.statements, after)),
            )
        case Branch(_, blocks, results):
            new = []
            for k, block in enumerate(blocks):
                after = names(graph, [nodes[k] for _, nodes in results])
                new.append(Block(statements=with_branches(graph, block.statements, after)))
            return dataclasses.replace(statement, blocks=new)
    return statement


def _best(graph: Graph, statements: list[Any], needed: set[int], tried: set[int]) -> tuple[list[Any], int] | None:
    """The statements with the most expensive selections (by one condition) turned into a branch."""
    reads = [all_needs(graph, statement) for statement in statements]
    defined = [gives(statement) for statement in statements]
    by_condition: dict[int, list[int]] = {}
    for k, statement in enumerate(statements):
        if isinstance(statement, Define) and graph.nodes[statement.node].op == "select":
            condition = graph.nodes[statement.node].args[0]
            if condition not in tried:
                by_condition.setdefault(condition, []).append(k)
    best: tuple[int, int, tuple] | None = None
    for condition, selections in by_condition.items():
        group = _independent(graph, statements, reads, defined, selections)
        yes = _only_for(graph, statements, reads, defined, needed, group, side=1)
        no = _only_for(graph, statements, reads, defined, needed, group, side=2) - yes
        spared = sum(cost(graph, statements[k]) for k in yes | no)
        if spared < WORTHWHILE:
            tried.add(condition)
        elif best is None or spared > best[0]:
            best = (spared, condition, (group, yes, no))
    if best is None:
        return None
    _, condition, (group, yes, no) = best
    chosen = [(statements[k].node, *graph.nodes[statements[k].node].args[1:]) for k in sorted(group)]
    sides = []
    for side, members in ((1, yes), (2, no)):
        after = names(graph, [entry[side] for entry in chosen])
        sides.append(with_branches(graph, [statements[k] for k in sorted(members)], after))
    either = Either(condition, sides[0], sides[1], chosen)
    later = _dependents(reads, defined, group)
    before = [s for k, s in enumerate(statements) if k not in later | group | yes | no]
    after = [s for k, s in enumerate(statements) if k in later]
    return [*before, either, *after], condition


def _dependents(reads: list[set[int]], defined: list[set[int]], group: set[int]) -> set[int]:
    """The statements that read what the group defines, directly or not."""
    made = set().union(*(defined[k] for k in group))
    found = set()
    for k in range(min(group) + 1, len(reads)):
        if k not in group and reads[k] & made:
            found.add(k)
            made |= defined[k]
    return found


def _independent(
    graph: Graph, statements: list[Any], reads: list[set[int]], defined: list[set[int]], selections: list[int]
) -> set[int]:
    """The selections that do not depend on the results of others among them."""
    made: set[int] = set(defined[selections[0]])
    group = {selections[0]}
    chosen = set(selections)
    for k in range(selections[0] + 1, len(statements)):
        if reads[k] & made:
            made |= defined[k]
        elif k in chosen:
            group.add(k)
            made |= defined[k]
    return group


def _only_for(
    graph: Graph,
    statements: list[Any],
    reads: list[set[int]],
    defined: list[set[int]],
    needed: set[int],
    group: set[int],
    *,
    side: int,
) -> set[int]:
    """The statements that nothing but one side of these selections reads."""
    wanted, other = set(), set(needed)
    found: set[int] = set()
    for k in range(len(statements) - 1, -1, -1):
        if k in group:
            args = graph.nodes[statements[k].node].args
            wanted |= names(graph, [args[side]])
            other |= names(graph, [args[0], args[3 - side]])
        elif defined[k] & wanted and not defined[k] & other and not isinstance(statements[k], Put):
            found.add(k)
            wanted |= reads[k]
        else:
            other |= reads[k]
    return found


def fused(graph: Graph, statements: list[Any], needed: set[int]) -> list[Any]:
    """Loops over the same elements made one, where nothing else reads what is between them."""
    readers: dict[int, int] = {}
    for statement in statements:
        for name in all_needs(graph, statement):
            readers[name] = readers.get(name, 0) + 1
    made: dict[int, Loop] = {}
    out: list[Any] = []
    for statement in statements:
        if isinstance(statement, Repeat | Branch):
            statement = _with_blocks(graph, statement)
        elif isinstance(statement, Loop):
            for inner in [made[o.buffer] for o in statement.operands if o.buffer in made]:
                read = key(inner.buffer)
                if readers[read] == 1 and read not in needed and _same_elements(inner, statement):
                    statement = _joined(inner, statement)
                    out = [other for other in out if other is not inner]
            made[statement.buffer] = statement
        out.append(statement)
    return out


def _with_blocks(graph: Graph, statement: Any) -> Any:
    if isinstance(statement, Branch):
        after = [names(graph, [nodes[k] for _, nodes in statement.results]) for k in range(len(statement.blocks))]
        pairs = zip(statement.blocks, after, strict=True)
        blocks = [Block(statements=fused(graph, block.statements, needed)) for block, needed in pairs]
        return dataclasses.replace(statement, blocks=blocks)
    # What the test computes may be read in the body: it is left as it is.
    after = names(graph, [slot.next for slot in statement.slots])
    return dataclasses.replace(statement, body=Block(statements=fused(graph, statement.body.statements, after)))


def _same_elements(inner: Loop, outer: Loop) -> bool:
    """Whether the outer loop reads each element of the inner one where that writes it."""
    strides = row_major(inner.shape)
    return inner.shape == outer.shape and all(
        operand.offset == 0
        and all(a == b or size == 1 for a, b, size in zip(operand.strides, strides, inner.shape, strict=True))
        for operand in outer.operands
        if operand.buffer == inner.buffer
    )


def _joined(inner: Loop, outer: Loop) -> Loop:
    """One loop that does the work of both."""
    kept = [operand for operand in outer.operands if operand.buffer != inner.buffer]
    operands = [*inner.operands, *kept]
    result = len(operands) + len(inner.program) - 1
    place, count = {}, len(inner.operands)
    for k, operand in enumerate(outer.operands):
        if operand.buffer == inner.buffer:
            place[k] = result
        else:
            place[k] = count
            count += 1
    shift = len(operands) - len(inner.operands)
    first = [
        (op, tuple(a if a < len(inner.operands) else a + shift for a in args), dtype)
        for op, args, dtype in inner.program
    ]
    base = len(operands) + len(first) - len(outer.operands)
    second = [
        (op, tuple(place[a] if a < len(outer.operands) else a + base for a in args), dtype)
        for op, args, dtype in outer.program
    ]
    return Loop(outer.buffer, outer.shape, operands, first + second)
