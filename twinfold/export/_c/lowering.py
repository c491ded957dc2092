"""Lowering: a jaxpr becomes nodes and statements of a graph, equation by equation, by the rules in `RULES`.

A rule is a function of the graph, the parameters of the equation, the dtype of its first result, and the nodes of its
operands; it returns the nodes of the results. The rules are in `primitives/`, one module for each family.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.extend import core

from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._report import NotExportable

Rule = Callable[..., list[Nodes]]
RULES: dict[str, Rule] = {}
USED = "used"  # in the parameters that a rule gets: which of its results anything uses

# Primitives that no step in C can have, and what to do about them.
_UNSUPPORTED = {
    "pure_callback": "it calls Python (`eqx.error_if`, `jax.pure_callback`): remove the check from the model",
    "io_callback": "it calls Python (`io_callback`): remove it from the model",
    "random_bits": "it draws random numbers: a step must be deterministic",
    "threefry2x32": "it draws random numbers: a step must be deterministic",
    "maybe_set": "it belongs to a Diffrax solver: use an integrator of twinfold (`RK4()`, `Radau()`, ...)",
    "custom_root": "it solves equations by `jax.lax.custom_root`: use `Implicit` or `Newton()`",
}


def rule(*primitives: str, **operations: str) -> Callable[[Rule], Rule]:
    """Register the rule of some primitives; one given as NAME="op" has its scalar operation passed as `op=`."""

    def register(fn: Rule) -> Rule:
        new = dict.fromkeys(primitives, fn) | {name: functools.partial(fn, op=op) for name, op in operations.items()}
        if repeated := RULES.keys() & new.keys():
            raise AssertionError(f"more than one rule for {', '.join(repeated)}")
        RULES.update(new)
        return fn

    return register


def lower(graph: Graph, closed: Any, args: list[Nodes]) -> list[Nodes]:
    """The nodes of a jaxpr's results, from those of its arguments; statements are added to the open block."""
    jaxpr, consts = (closed.jaxpr, closed.consts) if isinstance(closed, core.ClosedJaxpr) else (closed, [])
    known: dict[Any, Nodes] = dict(zip(jaxpr.invars, args, strict=True))
    known.update(zip(jaxpr.constvars, (graph.constants(value) for value in consts), strict=True))

    def nodes(atom: Any) -> Nodes:
        if isinstance(atom, core.Literal):
            return graph.constants(np.asarray(atom.val, dtype=getattr(atom.aval, "dtype", None)))
        return known[atom]

    needed = {atom for each in jaxpr.eqns for atom in each.invars if not isinstance(atom, core.Literal)}
    needed |= {atom for atom in jaxpr.outvars if not isinstance(atom, core.Literal)}
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "debug_callback":
            continue
        if name not in RULES:
            advice = _UNSUPPORTED.get(name, "rewrite the model without it, or export to StableHLO, which has it")
            raise NotExportable(f"export to C: there is no rule for the JAX primitive '{name}': {advice}.")
        dtype = np.dtype(equation.outvars[0].aval.dtype) if equation.outvars else None
        params = equation.params | {USED: [each in needed for each in equation.outvars]}
        results = RULES[name](graph, params, dtype, *(nodes(atom) for atom in equation.invars))
        for variable, value in zip(equation.outvars, results, strict=True):
            if value.shape != variable.aval.shape:
                raise AssertionError(f"{name}: the rule gives shape {value.shape}, not {variable.aval.shape}")
            known[variable] = value
    return [nodes(atom) for atom in jaxpr.outvars]
