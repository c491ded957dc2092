"""All cores of the CPU, asked for by the program, never by importing the library."""

import os

import jax


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_cores(count: int | None = None) -> None:
    """Let JAX see `count` cores (all that this process may use, when left out) as devices; seeds spread over them.

    Call it before the first array is made. Accelerators are used as they are, with or without it.
    """
    try:
        jax.config.update("jax_num_cpu_devices", available_cores() if count is None else count)
    except RuntimeError as error:
        raise RuntimeError("use_cores: JAX has made an array already; call it before the first one.") from error
