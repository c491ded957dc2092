"""The pass that turns selections into branches.

`jnp.where` computes both sides, which is free on an accelerator. Here a side that takes some work is computed inside an
`if`: the iterations that a projection does not need after convergence cost one comparison each.
"""

from typing import NamedTuple

from twinfold.export._c.control_flow import If, Store, map_blocks
from twinfold.export._c.graph import Define, Graph, Statement

MIN_SAVING = 12  # additions that an `if` has to save


def branch(graph: Graph, statements: list[Statement], needed: set[int]) -> list[Statement]:
    """Turn selections into branches, the most expensive first; `needed` is read afterwards."""
    statements = [map_blocks(graph, statement, branch) for statement in statements]
    tried: set[int] = set()
    while (found := _Dataflow(graph, statements, needed).best_branch(tried)) is not None:
        statements, condition = found
        tried.add(condition)
    return statements


class _Select(NamedTuple):
    node: int
    condition: int
    true: int
    false: int


class _Dataflow:
    """What each of several statements reads and defines, and the branches that this allows."""

    def __init__(self, graph: Graph, statements: list[Statement], needed: set[int]):
        self.graph, self.statements, self.needed = graph, statements, needed
        self.reads = [statement.reads(graph) for statement in statements]
        self.defines = [statement.defines() for statement in statements]
        self.selects = {
            k: _Select(statement.node, *graph.nodes[statement.node].args)
            for k, statement in enumerate(statements)
            if isinstance(statement, Define) and graph.nodes[statement.node].op == "select"
        }

    def best_branch(self, tried: set[int]) -> tuple[list[Statement], int] | None:
        """The statements with the most expensive selections by one condition as a branch, and that condition.

        Conditions that save too little are added to `tried`.
        """
        by_condition: dict[int, list[int]] = {}
        for k, select in self.selects.items():
            if select.condition not in tried:
                by_condition.setdefault(select.condition, []).append(k)
        best = None
        for condition, selections in by_condition.items():
            group = self._independent(selections)
            true = self._exclusive(group, "true", "false")
            false = self._exclusive(group, "false", "true") - true
            saving = sum(self.statements[k].cost(self.graph) for k in true | false)
            if saving < MIN_SAVING:
                tried.add(condition)
            elif best is None or saving > best[0]:
                best = (saving, condition, group, true, false)
        return None if best is None else (self._branched(*best[1:]), best[1])

    def _branched(self, condition: int, group: set[int], true: set[int], false: set[int]) -> list[Statement]:
        selects = [self.selects[k] for k in sorted(group)]
        sides = []
        for side, members in (("true", true), ("false", false)):
            after = self.graph.dependencies(getattr(select, side) for select in selects)
            sides.append(branch(self.graph, [self.statements[k] for k in sorted(members)], after))
        later = self._dependents(group)
        moved = later | group | true | false
        before = [statement for k, statement in enumerate(self.statements) if k not in moved]
        after = [self.statements[k] for k in sorted(later)]
        selections = [(select.node, select.true, select.false) for select in selects]
        return [*before, If(condition, sides[0], sides[1], selections), *after]

    def _dependents(self, group: set[int]) -> set[int]:
        """The statements that read, directly or not, what the group defines."""
        defined = set().union(*(self.defines[k] for k in group))
        found = set()
        for k in range(min(group) + 1, len(self.statements)):
            if k not in group and self.reads[k] & defined:
                found.add(k)
                defined |= self.defines[k]
        return found

    def _independent(self, selections: list[int]) -> set[int]:
        """The selections that do not depend on the results of others among them."""
        group, defined, candidates = {selections[0]}, set(self.defines[selections[0]]), set(selections)
        for k in range(selections[0] + 1, len(self.statements)):
            if self.reads[k] & defined:
                defined |= self.defines[k]
            elif k in candidates:
                group.add(k)
                defined |= self.defines[k]
        return group

    def _exclusive(self, group: set[int], side: str, other: str) -> set[int]:
        """The statements that nothing but one side of the group's selections reads."""
        inside, outside, found = set(), set(self.needed), set()
        for k in reversed(range(len(self.statements))):
            if k in group:
                select = self.selects[k]
                inside |= self.graph.dependencies([getattr(select, side)])
                outside |= self.graph.dependencies([select.condition, getattr(select, other)])
            elif (
                self.defines[k] & inside and not self.defines[k] & outside and not isinstance(self.statements[k], Store)
            ):
                found.add(k)
                inside |= self.reads[k]
            else:
                outside |= self.reads[k]
        return found
