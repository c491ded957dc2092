"""Every test runs in float64 on the CPU unless it asks for something else."""

import contextlib
import ctypes
import gc
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import pytest

jax.config.update("jax_enable_x64", True)

MAX_RESIDENT_MB = 2000  # of a worker, beyond which compiled programs are dropped within a module too


def resident_mb() -> float:
    """The memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


def drop_compiled_programs() -> None:
    eqx.clear_caches()
    jax.clear_caches()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc keeps freed memory unless it is asked to return it
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture(autouse=True, scope="module")
def _programs_of_a_module():
    """A process that keeps thousands of compiled programs runs out of memory maps, and XLA then crashes."""
    yield
    drop_compiled_programs()


@pytest.fixture(autouse=True)
def _programs_of_a_test():
    yield
    if resident_mb() > MAX_RESIDENT_MB:
        drop_compiled_programs()
