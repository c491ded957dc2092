"""Statements with nested blocks: loops and branches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from twinfold.export._c.graph import Block, BufferStatement, Graph, Statement, buffer_key
from twinfold.export._c.writer import Writer, c_type, emit


@dataclass
class Carry:
    """A scalar that a loop carries: its variable, its initial node and that of the next iteration."""

    variable: int
    initial: int
    next: int


@dataclass
class While(Statement):
    """While `condition`, which `test` computes: run `body`, then update all carries at once.

    `test` and `body` share a scope. `collected` are the buffers that `Store` statements in the body fill.
    """

    carries: list[Carry]
    test: Block
    condition: int
    body: Block
    collected: list[int] = field(default_factory=list)

    def reads(self, graph: Graph) -> set[int]:
        carried = [node for carry in self.carries for node in (carry.initial, carry.next)]
        inner = self.test.statements + self.body.statements
        return graph.dependencies([self.condition, *carried]).union(*(each.reads(graph) for each in inner))

    def defines(self) -> set[int]:
        return {carry.variable for carry in self.carries} | {buffer_key(buffer) for buffer in self.collected}

    def cost(self, graph: Graph) -> int:
        # The number of iterations is unknown: count four.
        return 4 * sum(each.cost(graph) for each in self.test.statements + self.body.statements)


@emit.register(While)
def _while(statement: While, out: Writer) -> None:
    for buffer in statement.collected:
        out.declare(buffer)
    for carry in statement.carries:
        kind = c_type(out.graph.nodes[carry.variable].dtype)
        out.line(f"{kind} v{carry.variable} = {out.name(carry.initial)};")
    with out.braces("for (;;)"):
        out.block(statement.test.statements)
        out.line(f"if (!{out.name(statement.condition)}) break;")
        out.block(statement.body.statements)
        # All carries change at once: save those that others take over.
        variables = {carry.variable for carry in statement.carries}
        saved = {carry.next: f"v{carry.next}_" for carry in statement.carries if carry.next in variables}
        for node, copy in saved.items():
            out.line(f"const {c_type(out.graph.nodes[node].dtype)} {copy} = v{node};")
        for carry in statement.carries:
            out.line(f"v{carry.variable} = {saved.get(carry.next) or out.name(carry.next)};")


@dataclass
class Store(BufferStatement):
    """Scalars into row `index` of a buffer that the loop around it declares."""

    index: int
    nodes: list[int]

    def reads(self, graph: Graph) -> set[int]:
        return graph.dependencies([self.index, *self.nodes])

    def cost(self, graph: Graph) -> int:
        return 10


@emit.register(Store)
def _store(statement: Store, out: Writer) -> None:
    name, index, count = out.buffer(statement.buffer), out.name(statement.index), len(statement.nodes)
    for k, node in enumerate(statement.nodes):
        out.line(f"{name}[{count} * {index} + {k}] = {out.name(node)};")


@dataclass
class Switch(Statement):
    """One of several blocks, by index; each variable of `results` takes its node from the block that ran."""

    index: int
    blocks: list[Block]
    results: list[tuple[int, list[int]]]

    def reads(self, graph: Graph) -> set[int]:
        own = graph.dependencies([self.index, *(node for _, nodes in self.results for node in nodes)])
        return own.union(*(each.reads(graph) for block in self.blocks for each in block.statements))

    def defines(self) -> set[int]:
        return {variable for variable, _ in self.results}

    def cost(self, graph: Graph) -> int:
        return max(sum(each.cost(graph) for each in block.statements) for block in self.blocks)


@emit.register(Switch)
def _switch(statement: Switch, out: Writer) -> None:
    index, last = out.name(statement.index), len(statement.blocks) - 1
    heads = [f"if ({index} <= 0) {{"] + [f"}} else if ({index} == {k}) {{" for k in range(1, last)] + ["} else {"]
    _branches(
        out,
        [variable for variable, _ in statement.results],
        [
            (head, block.statements, [nodes[k] for _, nodes in statement.results])
            for k, (head, block) in enumerate(zip(heads, statement.blocks, strict=True))
        ],
    )


@dataclass
class If(Statement):
    """Selections by one condition; statements that only one side needs run on that side alone.

    `selections` lists (select node, its node if true, its node if false).
    """

    condition: int
    true: list[Statement]
    false: list[Statement]
    selections: list[tuple[int, int, int]]

    def reads(self, graph: Graph) -> set[int]:
        own = graph.dependencies([self.condition, *(node for _, *sides in self.selections for node in sides)])
        return own.union(*(each.reads(graph) for each in self.true + self.false))

    def defines(self) -> set[int]:
        return {node for node, _, _ in self.selections}

    def cost(self, graph: Graph) -> int:
        return 10


@emit.register(If)
def _if(statement: If, out: Writer) -> None:
    nodes, true, false = zip(*statement.selections, strict=True)
    sides = [(f"if ({out.name(statement.condition)}) {{", statement.true, true), ("} else {", statement.false, false)]
    _branches(out, nodes, sides)


def _branches(
    out: Writer, variables: Sequence[int], branches: Sequence[tuple[str, list[Statement], Sequence[int]]]
) -> None:
    """Declare variables, a line for each type; then each branch: its head, its statements, and their values there."""
    by_type: dict[str, list[str]] = {}
    for variable in variables:
        by_type.setdefault(c_type(out.graph.nodes[variable].dtype), []).append(f"v{variable}")
    for kind, names in by_type.items():
        out.line(f"{kind} {', '.join(names)};")
    for head, statements, values in branches:
        out.line(head)
        out.depth += 1
        out.block(statements)
        for variable, value in zip(variables, values, strict=True):
            out.line(f"v{variable} = {out.name(value)};")
        out.depth -= 1
    out.line("}")


def map_blocks(
    graph: Graph, statement: Statement, run: Callable[[Graph, list[Statement], set[int]], list[Statement]]
) -> Statement:
    """A pass, `run(graph, statements, needed afterwards)`, applied to the blocks inside a statement."""
    match statement:
        case While(carries, test, condition, body):
            after = graph.dependencies([condition, *(carry.next for carry in carries)])
            in_body = after.union(*(each.reads(graph) for each in body.statements))
            return replace(
                statement,
                test=Block(statements=run(graph, test.statements, in_body)),
                body=Block(statements=run(graph, body.statements, after)),
            )
        case Switch(_, blocks, results):
            after_each = [graph.dependencies(nodes[k] for _, nodes in results) for k in range(len(blocks))]
            pairs = zip(blocks, after_each, strict=True)
            new = [Block(statements=run(graph, block.statements, after)) for block, after in pairs]
            return replace(statement, blocks=new)
    return statement
