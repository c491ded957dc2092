"""The C file and its header from the functions of a step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import numpy as np

import twinfold.export._c.control
import twinfold.export._c.dense
import twinfold.export._c.indexing
import twinfold.export._c.solving
import twinfold.export._c.structure  # noqa: F401  (each registers the rules of its primitives)
from twinfold._version import __version__
from twinfold.export._c.emit import Writer, c_type, literal
from twinfold.export._c.graph import Block, Graph, Nodes
from twinfold.export._c.interpret import evaluate
from twinfold.export._c.library import HELPERS
from twinfold.export._c.passes import fused, sweep, with_branches
from twinfold.export._c.statements import names
from twinfold.export._step import MESSAGES, Step


@dataclass(frozen=True)
class Source:
    """The text of the C file and of its header."""

    code: str
    header: str


class _File:
    """One C file: functions over one graph, so that they share their tables."""

    def __init__(self, step: Step):
        self.step, self.prefix = step, step.spec.name + "_"
        self.graph = Graph()
        self.writers: list[Writer] = []

    def function(
        self,
        head: str,
        fn: Callable,
        arguments: Sequence[tuple[str, int]],
        before: Sequence[str],
        after: Callable[[list[Nodes], Writer], None],
    ) -> list[str]:
        """A C function around a JAX one; `arguments` are names and sizes (-1: a scalar), `after` writes the results."""
        dtype = self.step.dtype
        shapes = [jax.ShapeDtypeStruct(() if size < 0 else (size,), dtype) for _, size in arguments]
        jaxpr = jax.make_jaxpr(fn)(*shapes)
        graph, block = self.graph, Block()
        graph.block = block
        nodes = []
        for (name, size), shape in zip(arguments, shapes, strict=True):
            buffer = graph.buffer(abs(size), dtype, f"{name}_in" if size < 0 else name)
            nodes.append(graph.elements(buffer, shape.shape))
        results = evaluate(graph, jaxpr, nodes)
        wanted = names(graph, [node for value in results for node in value.reshape(-1).tolist()])
        live = sweep(graph, block.statements, set(wanted))
        live = fused(graph, live, wanted)
        live = with_branches(graph, live, wanted)
        out = Writer(graph, self.prefix)
        out.block(live)
        after(results, out)
        self.writers.append(out)
        used = "t_in[" in "\n".join(out.lines)
        opening = [f"const {c_type(dtype)} t_in[1] = {{t}};" if used else "(void)t;", *before]
        return [head, "{", *("    " + line for line in opening), *out.lines, "}"]


def source_of(step: Step) -> Source:
    """C99 for `step`; a `NotExportable` that names the primitive where something has no rule."""
    file, spec, name = _File(step), step.spec, step.spec.name
    real = c_type(step.dtype)
    n, d, p, s = len(spec.states), len(spec.inputs), len(step.parameters), step.state_size
    default = f"if (!p) p = {name}_default_parameters;"

    def stored(results: list[Nodes], out: Writer) -> None:
        state, y, status = results
        for target, nodes in (("state", state), ("y", y)):
            for place, node in enumerate(nodes.tolist()):
                out.line(f"{target}[{place}] = {out.name(node)};")
        out.line(f"return {out.name(int(status))};")

    def only_outputs(results: list[Nodes], out: Writer) -> None:
        for place, node in enumerate(results[0].tolist()):
            out.line(f"y[{place}] = {out.name(node)};")

    copy = f"{real} in[{s}];\n    memcpy(in, state, sizeof in);"
    w, ins = f"const {real} *w", f"const {real} *p"
    heads = {
        "init": f"int {name}_init({real} t, const {real} *x0, {w}, {ins}, {real} *state, {real} *y)",
        "step": f"int {name}_step({real} t, {w}0, {w}1, {ins}, {real} *state, {real} *y)",
        "output": f"void {name}_output({real} t, {w}, {ins}, const {real} *state, {real} *y)",
    }
    bodies = [
        file.function(heads["init"], step.init, [("t", -1), ("x0", n), ("w", d), ("p", p)], [default], stored),
        file.function(
            heads["step"],
            step.step,
            [("t", -1), ("w0", d), ("w1", d), ("p", p), ("in", s)],
            [copy, default],
            stored,
        ),
        file.function(
            heads["output"], step.output, [("t", -1), ("w", d), ("p", p), ("state", s)], [default], only_outputs
        ),
    ]
    return Source(_code(file, bodies), _header(step, heads))


def _code(file: _File, bodies: list[list[str]]) -> str:
    step, spec, name = file.step, file.step.spec, file.step.spec.name
    helpers = set().union(*(out.helpers for out in file.writers))
    tables = sorted(set().union(*(out.tables for out in file.writers)))
    parts = [
        f"/* {name}: one step of a twin, written by twinfold {__version__}. C99, no allocation; link with -lm. */",
        # Nobody looks at floating-point traps; a compiler that may forget them can compute several selections at once.
        '#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize("no-trapping-math")\n#endif',
        f'#include "{name}.h"\n\n#include <math.h>\n#include <stdint.h>\n#include <string.h>\n',
        _texts(f"{name}_state_names", spec.states),
        _texts(f"{name}_input_names", spec.inputs),
        _texts(f"{name}_output_names", spec.outputs),
        _texts(f"{name}_parameter_names", step.parameters),
        _numbers(f"const {c_type(step.dtype)} {name}_default_parameters", step.defaults),
        _numbers(f"const {c_type(step.dtype)} {name}_start", np.asarray(spec.x0, step.dtype)),
        _texts(f"static {name}_messages", ["success", *MESSAGES[1:]]),
        f"const char *{name}_message(int status)\n{{\n    return status >= 0 && status < {len(MESSAGES)} ? "
        f'{name}_messages[status] : "unknown status";\n}}\n',
        *(HELPERS[helper].strip().replace("@", file.prefix) + "\n" for helper in sorted(helpers)),
        *(
            _numbers(
                f"static const {c_type(file.graph.buffers[t].dtype)} {file.prefix}{file.graph.buffers[t].name}",
                file.graph.tables[t],
            )
            for t in tables
        ),
        *("\n".join(lines) + "\n" for lines in bodies),
    ]
    return "\n".join(parts)


def _texts(name: str, texts: Sequence[str]) -> str:
    kind, name = ("static ", name.removeprefix("static ")) if name.startswith("static ") else ("", name)
    quoted = ", ".join('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in texts)
    return f"{kind}const char *const {name}[] = {{{quoted or '0'}}};"


def _numbers(name: str, values: np.ndarray) -> str:
    items = [literal(value, values.dtype).strip("()") for value in values] or ["0"]
    rows = [", ".join(items[k : k + 6]) for k in range(0, len(items), 6)]
    return f"{name}[{len(items)}] = {{\n    " + ",\n    ".join(rows) + "};"


def _header(step: Step, heads: dict[str, str]) -> str:
    spec, name, real = step.spec, step.spec.name, c_type(step.dtype)
    n, m = len(spec.states), step.constraints
    guard = f"{name}_H".upper()
    size = name.upper()
    return f"""/* {name}: one step of a twin of length {spec.dt!r}.
 *
 *     {real} state[{size}_STATE_SIZE], y[{size}_OUTPUTS > 0 ? {size}_OUTPUTS : 1];
 *     int status = {name}_init(t, {name}_start, w, 0, state, y);
 *     status = {name}_step(t, w, w_next, 0, state, y);        now at t + {size}_DT
 *
 * w: inputs at t ({size}_INPUTS), w1: at the end of the step; p: parameters, or 0 for those of the twin.
 * state: x first, then the level of the constraints, algebraic variables, and the violation of the last step.
 * status: 0, or a reason that {name}_message says in words (state is then the best there is).
 */
#ifndef {guard}
#define {guard}

#define {size}_STATES {n}
#define {size}_INPUTS {len(spec.inputs)}
#define {size}_OUTPUTS {len(spec.outputs)}
#define {size}_PARAMETERS {len(step.parameters)}
#define {size}_CONSTRAINTS {m}
#define {size}_STATE_SIZE {step.state_size}
#define {size}_VIOLATION_AT {step.state_size - m}
#define {size}_DT {spec.dt!r}

#ifndef {size}_API
#if defined(__GNUC__)
#define {size}_API __attribute__((visibility("default")))
#else
#define {size}_API
#endif
#endif

#ifdef __cplusplus
extern "C" {{
#endif

{size}_API {heads["init"]};
{size}_API {heads["step"]};
{size}_API {heads["output"]};
{size}_API const char *{name}_message(int status);

{size}_API extern const {real} {name}_start[];
{size}_API extern const {real} {name}_default_parameters[];
{size}_API extern const char *const {name}_state_names[];
{size}_API extern const char *const {name}_input_names[];
{size}_API extern const char *const {name}_output_names[];
{size}_API extern const char *const {name}_parameter_names[];

#ifdef __cplusplus
}}
#endif

#endif
"""
