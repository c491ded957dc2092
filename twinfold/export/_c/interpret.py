"""From a jaxpr to nodes and statements: each equation is looked up in `RULES`."""

from typing import Any

import numpy as np
from jax.extend import core

from twinfold.export._c.graph import Graph, Nodes
from twinfold.export._c.rules import RULES

# What has no place in a step without Python, with what to do about it.
_REFUSED = {
    "pure_callback": "it calls Python (`eqx.error_if`, `jax.pure_callback`): take the check out of the model",
    "io_callback": "it calls Python (`io_callback`): take it out of the model",
    "random_bits": "it draws random numbers: a step has to be the same each time",
    "threefry2x32": "it draws random numbers: a step has to be the same each time",
    "maybe_set": "it belongs to a Diffrax solver: use one of twinfold's own integrators (`RK4()`, `Radau()`, ...)",
    "custom_root": "it solves equations by `jax.lax.custom_root`: use `Implicit` or `Newton()`",
}


class NotExportable(ValueError):
    """A twin uses something that the wanted form cannot express; the message names it and what to change."""


def evaluate(graph: Graph, closed: Any, args: list[Nodes]) -> list[Nodes]:
    """The nodes of a jaxpr's results, from those of its arguments; statements are added to the open block."""
    jaxpr = closed.jaxpr if isinstance(closed, core.ClosedJaxpr) else closed
    consts = closed.consts if isinstance(closed, core.ClosedJaxpr) else []
    known: dict[Any, Nodes] = dict(zip(jaxpr.invars, args, strict=True))
    known.update(zip(jaxpr.constvars, (graph.constants(np.asarray(value)) for value in consts), strict=True))

    def nodes(atom: Any) -> Nodes:
        if isinstance(atom, core.Literal):
            return graph.constants(np.asarray(atom.val, dtype=getattr(atom.aval, "dtype", None)))
        return known[atom]

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "debug_callback":
            continue
        if name not in RULES:
            why = _REFUSED.get(name, "write the model without it (or ask for StableHLO, which has all of JAX)")
            raise NotExportable(f"export to C: the step uses the JAX primitive '{name}': {why}.")
        dtype = np.dtype(equation.outvars[0].aval.dtype) if equation.outvars else None
        results = RULES[name](graph, equation.params, dtype, *(nodes(atom) for atom in equation.invars))
        for variable, value in zip(equation.outvars, results, strict=True):
            if value.shape != variable.aval.shape:
                raise AssertionError(f"{name}: {value.shape} for {variable.aval.shape}")
            known[variable] = value
    return [nodes(atom) for atom in jaxpr.outvars]


def inner_jaxpr(params: Any) -> Any:
    """The jaxpr that a call has."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in params:
            return params[name]
    raise NotExportable(f"export to C: a call without a jaxpr ({', '.join(params)}).")


def own_platform(platforms: Any) -> int:
    """Which of several variants of a computation is meant for a plain processor: its own, or that for all others."""
    named = [k for k, names in enumerate(platforms) if names is not None and "cpu" in names]
    return named[0] if named else next(k for k, names in enumerate(platforms) if names is None)
