"""Parts of a jaxpr that the exporters read."""

from typing import Any

from twinfold.export._report import NotExportable

# Primitives that run another jaxpr once.
CALLS = (
    "jit",
    "pjit",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "remat2",
    "checkpoint",
    "remat",
)


def called_jaxpr(params: Any) -> Any:
    """The jaxpr that a call runs."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in params:
            return params[name]
    raise NotExportable(f"export: a call without a jaxpr ({', '.join(params)}).")


def cpu_index(platforms: Any) -> int:
    """The variant of a platform-dependent computation for a CPU: its own, or the default."""
    named = [k for k, names in enumerate(platforms) if names is not None and "cpu" in names]
    return named[0] if named else next(k for k, names in enumerate(platforms) if names is None)
