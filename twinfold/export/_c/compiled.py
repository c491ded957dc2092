"""The exported C, compiled and called from Python."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

# Fused multiply-adds would make the result depend on the processor.
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden", "-s")


class CompileError(RuntimeError):
    """The C compiler failed; the message has the command and its output."""


def find_compiler() -> str | None:
    """The path of a C compiler, or None."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build(compiler: str, sources: Sequence[Path], library: Path, *, flags: Sequence[str] = FLAGS) -> Path:
    """Compile C files into a shared library, linked with libm."""
    command = [compiler, *flags, *map(str, sources), "-o", str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return library


def code_size(library: Path) -> int:
    """Bytes of code and constants in a library; of the file, if `size` is not installed."""
    tool = shutil.which("size")
    if tool is not None:
        done = subprocess.run([tool, str(library)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return int(done.stdout.splitlines()[1].split()[0])
    return library.stat().st_size


class CompiledStep:
    """`init` and `step` of a compiled export as functions of NumPy arrays.

    Loading a library runs code of it: exporters do so by `run_library` in a process of its own.
    """

    def __init__(self, library: str | Path, name: str, state_size: int, outputs: int, dtype: np.dtype):
        self._dtype, self._state_size, self._outputs = dtype, state_size, outputs
        loaded, real = ctypes.CDLL(str(library)), np.ctypeslib.as_ctypes_type(dtype)
        vector = np.ctypeslib.ndpointer(dtype, ndim=1, flags="C_CONTIGUOUS")
        self._init, self._step = (getattr(loaded, f"{name}_{function}") for function in ("init", "step"))
        for function in (self._init, self._step):
            function.argtypes = [real, *[vector] * 5]

    def init(self, t: float, x0: np.ndarray, w: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """The initial state, with outputs and status."""
        return self._call(self._init, t, (x0, w, p), np.zeros(self._state_size))

    def step(
        self, t: float, w0: np.ndarray, w1: np.ndarray, p: np.ndarray, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """The state one step later, with outputs and status."""
        return self._call(self._step, t, (w0, w1, p), state)

    def _call(
        self, function: Callable[..., int], t: float, arguments: Sequence[np.ndarray], state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        state, y = np.array(state, self._dtype), np.zeros(self._outputs, self._dtype)
        given = [np.ascontiguousarray(values, self._dtype) for values in arguments]
        return state, y, function(float(t), *given, state, y)


def run_library(
    *,
    library: str,
    name: str,
    outputs: int,
    t: np.ndarray,
    w0: np.ndarray,
    w1: np.ndarray,
    state: np.ndarray,
    run_t: np.ndarray,
    run_w: np.ndarray,
    x0: np.ndarray,
    p: np.ndarray,
) -> dict[str, np.ndarray]:
    """The states, outputs and status of single steps, then those of a simulation from `x0`. See `_isolated.py`."""
    size = state.shape[1]
    compiled = CompiledStep(library, name, size, outputs, state.dtype)
    rows = [compiled.step(t[k], w0[k], w1[k], p, state[k]) for k in range(len(t))]
    now, run = compiled.init(run_t[0], x0, run_w[0], p)[0], []
    for k in range(len(run_t) - 1):
        run.append(compiled.step(run_t[k], run_w[k], run_w[k + 1], p, now))
        now = run[-1][0]
    return {
        "states": np.reshape([row[0] for row in rows], (len(rows), size)),
        "y": np.reshape([row[1] for row in rows], (len(rows), outputs)),
        "status": np.array([row[2] for row in rows], int),
        "run_states": np.reshape([row[0] for row in run], (len(run), size)),
        "run_y": np.reshape([row[1] for row in run], (len(run), outputs)),
    }
