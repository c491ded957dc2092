"""C99 from the step of a twin: a compiler from jaxprs to C without memory allocation.

It is ours because no library turns a jaxpr into allocation-free C99. CasADi generates C for scalar expressions, but it
unrolls every matrix product, and a network of two layers of 64 becomes a megabyte of code; here wide layers are loops.

A step passes through these modules, in one direction:

    export.py         export_c: write the files, compile them, compare them with the twin
    ../_step.py       twin -> init, step, output as functions of flat arrays
    source.py         traces each function to a jaxpr, and runs the stages below
    lowering.py       jaxpr -> graph, by the rules in primitives/
    passes.py         dead code, loop fusion, branches (branches.py)
    writer.py         statements -> C text
    ../templates/     the frame of the C file and the header, and C helper functions (tanh, Cholesky, ...)
    compiled.py       the C compiler, and the compiled step called from Python
    ../_isolated.py   the process of its own in which that happens

Below them: `graph.py` (nodes, buffers, blocks), `scalars.py` (scalar operations), `arrays.py` (elementwise loops) and
`control_flow.py` (loops and branches).

Where is the C code of a matrix product emitted? In `primitives/products.py`, in the function under
`@emit.register(Product)`. Where to add a primitive: an elementwise one is a line in `scalars.OPERATIONS`; any other is
a function under `@rule("name")` in a module of `primitives/`, whose docstring lists them.
"""
