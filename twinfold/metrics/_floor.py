"""The floor: what is left of the error when nothing is left to learn.

The exact field under the same integrator, step and projection has an error of its own. A model below it has learned the
integrator, not the system.
"""

from collections.abc import Callable

import equinox as eqx

from twinfold.model import Twin


def with_true_field(twin: Twin, truth: Callable) -> Twin:
    """The twin with the exact field in place of its own; evaluate it like any other.

    **Arguments:** `twin`, trained or not; `truth`, the exact dx/dt, a function of what it names of t, x, z, w, p
    (for a benchmark system: `system.truth`).
    """
    return eqx.tree_at(lambda twin: twin.cell.field, twin, truth, is_leaf=lambda node: node is twin.field)
