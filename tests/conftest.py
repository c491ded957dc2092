"""Every test runs in float64 on the CPU unless it asks for something else."""

import contextlib
import ctypes
import gc
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time is compilation: a worker, a command or a later run reads what another has compiled.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "xla"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Each program runs once or twice: machine code of less quality is ready sooner. The slow tests have the usual one.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

import equinox as eqx
import jax
import pytest

jax.config.update("jax_enable_x64", True)

# A process that keeps thousands of compiled programs runs out of memory or of memory maps, and XLA crashes: beyond
# these limits a worker drops what it has compiled. Each drop costs seconds, since common operations are compiled again.
MAX_RESIDENT_MB = 2000
MAX_MAPS = 30_000  # Linux allows 65,530


def near_a_limit() -> bool:
    """Whether this process should drop its compiled programs; False where the system does not tell."""
    try:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        return resident > MAX_RESIDENT_MB or Path("/proc/self/maps").read_bytes().count(b"\n") > MAX_MAPS
    except OSError:
        return False


@pytest.fixture(autouse=True)
def _drop_compiled_programs():
    yield
    if near_a_limit():
        eqx.clear_caches()
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc keeps freed memory unless it is asked to return it
            ctypes.CDLL("libc.so.6").malloc_trim(0)
