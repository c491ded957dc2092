"""The exported C, compiled and called: for its check, and for those who want it in Python."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from twinfold.export._step import Step

# Contraction to fused multiply-adds would make the result depend on the processor.
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-fvisibility=hidden", "-s")


class CompileError(RuntimeError):
    """The C compiler did not accept a file; the message is what it said."""


def find_compiler() -> str | None:
    """The C compiler of this machine, or None."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def build(compiler: str, sources: Sequence[Path], library: Path, *, flags: Sequence[str] = FLAGS) -> Path:
    """A shared library from C files, linked with libm."""
    command = [compiler, *flags, *map(str, sources), "-o", str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return library


def code_size(library: Path) -> int:
    """Bytes of code and constants in a library (of the whole file where `size` is not installed)."""
    tool = shutil.which("size")
    if tool is not None:
        done = subprocess.run([tool, str(library)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return int(done.stdout.splitlines()[1].split()[0])
    return library.stat().st_size


class Compiled:
    """`init`, `step` and `output` of a compiled export as functions of NumPy arrays."""

    def __init__(self, library: Path, step: Step):
        self.step_of = step
        self.dtype = step.dtype
        real = ctypes.c_double if step.dtype == np.float64 else ctypes.c_float
        pointer = ctypes.POINTER(real)
        loaded, name = ctypes.CDLL(str(library)), step.spec.name
        self._pointer = pointer
        self._init, self._step, self._output = (getattr(loaded, f"{name}_{fn}") for fn in ("init", "step", "output"))
        for fn in (self._init, self._step, self._output):
            fn.argtypes = [real] + [pointer] * (4 if fn is self._output else 5)
        self._output.restype = None

    def _given(self, values: np.ndarray) -> tuple[np.ndarray, "ctypes._Pointer"]:
        array = np.array(values, self.dtype)
        return array, array.ctypes.data_as(self._pointer)

    def init(self, t: float, x0: np.ndarray, w: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """State, outputs and status at the start."""
        state, state_at = self._given(np.zeros(self.step_of.state_size))
        y, y_at = self._given(np.zeros(max(len(self.step_of.spec.outputs), 1)))
        kept = [self._given(value) for value in (x0, w, p)]
        status = self._init(float(t), *(at for _, at in kept), state_at, y_at)
        return state, y[: len(self.step_of.spec.outputs)], status

    def step(
        self, t: float, w0: np.ndarray, w1: np.ndarray, p: np.ndarray, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """State, outputs and status one step later."""
        after, after_at = self._given(state)
        y, y_at = self._given(np.zeros(max(len(self.step_of.spec.outputs), 1)))
        kept = [self._given(value) for value in (w0, w1, p)]
        status = self._step(float(t), *(at for _, at in kept), after_at, y_at)
        return after, y[: len(self.step_of.spec.outputs)], status
