"""The rules of all JAX primitives that have a C form; importing this package registers them.

| module | primitives |
| --- | --- |
| `elementwise` | one scalar operation for each element (a new one: a line in `scalars.OPERATIONS`) |
| `layout` | reshape, slice, concatenate, ...: no C code at all |
| `products` | matrix products: `dot_general` |
| `reductions` | sums, cumulative sums, argmax, sort |
| `indexing` | gather, scatter, dynamic slices |
| `factorisations` | Cholesky, LU, QR, eigenvalues, triangular solves (their C text: `helpers.c.in`) |
| `control` | calls, `while`, `scan`, `cond` |

To add a primitive, write a function under `@rule("name")` in the module of its family. Compose it from
`arrays.elementwise` and `Graph.apply` if possible; otherwise define a `Statement` and register its C text with
`@emit.register`, as `products` does. Then add a case to the tests of the primitives.
"""

from twinfold.export._c.lowering import lower
from twinfold.export._c.primitives import (  # noqa: F401
    control,
    elementwise,
    factorisations,
    indexing,
    layout,
    products,
    reductions,
)

__all__ = ["lower"]
