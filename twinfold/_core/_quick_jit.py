"""Compilation that takes less time, for programs that run a few hundred times and not for days.

A fit of a few seconds spends most of them compiling. On a CPU, XLA's older code for fused operations is ready in about
two thirds of the time of the newer one, and is as fast, but for programs with large batches.
"""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import equinox as eqx
import jax

P = ParamSpec("P")
T = TypeVar("T")

OLDER_FUSIONS = ("xla_cpu_use_fusion_emitters", False)
NO_OPTIMISATION = ("xla_backend_optimization_level", 0)


def quick_jit(fn: Callable[P, T], *, once: bool = False) -> Callable[P, T]:
    """`equinox.filter_jit` for a function that is not called inside another one that is compiled.

    `once`: it runs once, so that optimising its machine code would take longer than it saves.
    """
    options = (OLDER_FUSIONS, NO_OPTIMISATION) if once else (OLDER_FUSIONS,)

    @cache  # the compiler is asked when the function is first called, not when its module is imported
    def compiled() -> Callable[P, T]:
        for_compiler: dict[str, Any] = {"compiler_options": _known(options)}
        return eqx.filter_jit(fn, **for_compiler)

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return compiled()(*args, **kwargs)

    return call


@cache
def _known(options: tuple[tuple[str, Any], ...]) -> dict[str, Any] | None:
    """Those of the options that this compiler has: they are its own affair and may go with any version."""
    if jax.default_backend() != "cpu":
        return None

    def knows(option: tuple[str, Any]) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options=dict([option]))()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return dict(filter(knows, options)) or None
