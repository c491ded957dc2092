"""The C file and the header of a step: trace, lower, optimise, write."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from twinfold._version import __version__
from twinfold.export._c.graph import Block, Graph
from twinfold.export._c.passes import optimise
from twinfold.export._c.primitives import lower
from twinfold.export._c.writer import Writer, c_type, literal, string_literal
from twinfold.export._files import c_helpers, render, write_files
from twinfold.export._step import MESSAGES, AbstractStep, Function


@dataclass(frozen=True)
class Source:
    """The text of the C file and of its header."""

    code: str
    header: str


def generate_source(step: AbstractStep) -> Source:
    """The C99 source of a step. **Raises:** `NotExportable` if a primitive has no rule."""
    spec, graph, prefix = step.spec, Graph(), f"{step.spec.name}_"
    writers = {name: _write_body(graph, prefix, function, step.dtype) for name, function in step.functions.items()}
    tables = [(graph.buffers[k], graph.tables[k]) for k in sorted(set().union(*(w.tables for w in writers.values())))]
    values = {
        "name": spec.name,
        "version": __version__,
        "real": c_type(step.dtype),
        "dt": repr(float(spec.dt)),
        "states": spec.states,
        "inputs": spec.inputs,
        "outputs": spec.outputs,
        "parameters": step.parameters,
        "constraints": step.constraints,
        "state_size": step.state_size,
        "about": step.about,
        "events": step.events,
        "places": step.event_places,
    }
    code = render(
        "step.c.j2",
        **values,
        array=_array,
        defaults=step.defaults,
        x0=np.asarray(spec.x0, step.dtype),
        messages=["success", *MESSAGES[1:]],
        helpers=c_helpers(set().union(*(writer.helpers for writer in writers.values())), prefix),
        tables=[(f"static const {c_type(table.dtype)} {prefix}{table.name}", numbers) for table, numbers in tables],
        bodies={name: "\n".join(writer.lines) for name, writer in writers.items()},
    )
    return Source(code, render("step.h.j2", **values))


def write_source(step: AbstractStep, folder: Path) -> list[Path]:
    """Write NAME.c and NAME.h."""
    source, name = generate_source(step), step.spec.name
    return write_files(folder, {f"{name}.c": source.code, f"{name}.h": source.header})


def _write_body(graph: Graph, prefix: str, function: Function, dtype: np.dtype) -> Writer:
    """The statements of a C function. The graph is shared by all functions of the file, and so are its tables."""
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in function.arguments.values()]
    jaxpr = jax.make_jaxpr(function.call)(*shapes)
    graph.block = Block()
    arguments = []
    for name, shape in function.arguments.items():
        # The step overwrites `state` while it may still need it, and scalars are arrays of one element here.
        copied = shape == () or (name == "state" and "state_next" in function.results)
        buffer = graph.buffer(int(np.prod(shape, dtype=int)), dtype, f"{name}_in" if copied else name)
        arguments.append(graph.elements(buffer, shape))
    results = lower(graph, jaxpr, arguments)
    out = Writer(graph, prefix)
    needed = [node for nodes in results for node in nodes.reshape(-1).tolist()]
    out.block(optimise(graph, graph.block.statements, needed))
    for name, nodes in zip(function.results, results, strict=True):
        if name == "status":
            out.line(f"return {out.name(int(nodes))};")
            continue
        for place, node in enumerate(nodes.tolist()):
            out.line(f"{name.removesuffix('_next')}[{place}] = {out.name(node)};")
    return out


def _array(declaration: str, values: Sequence[str] | np.ndarray, per_line: int = 6) -> str:
    """The definition of an array of texts or numbers; one element, 0, if there are none."""
    if isinstance(values, np.ndarray):
        items = [literal(value, values.dtype).strip("()") for value in values]
    else:
        items = [string_literal(text) for text in values]
    lines = [", ".join(items[k : k + per_line]) for k in range(0, len(items), per_line)] or ["0"]
    return f"{declaration}[{max(len(items), 1)}] = {{\n    " + ",\n    ".join(lines) + "};"
