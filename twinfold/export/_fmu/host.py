"""A minimal FMI 2.0 host in ctypes: loads the binary of an FMU, which runs code of it, and steps it."""

import ctypes
from pathlib import Path

import numpy as np

_LOGGER = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p
)
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Callbacks(ctypes.Structure):
    _fields_ = [
        ("logger", _LOGGER),
        ("allocate", _ALLOCATE),
        ("free", _FREE),
        ("finished", ctypes.c_void_p),
        ("environment", ctypes.c_void_p),
    ]


class HostError(RuntimeError):
    """A call of the FMU failed; the message is what it logged."""


class Host:
    """One instance of an FMU."""

    def __init__(self, library: str | Path, guid: str):
        self.log: list[str] = []
        self._library = ctypes.CDLL(str(library))
        for name in ("fmi2Instantiate", "fmi2FreeInstance"):
            getattr(self._library, name).restype = ctypes.c_void_p
        # The slave logs with the format "%s" and one text.
        logger = _LOGGER(lambda _, name, status, category, form, text: self.log.append(text.decode()))
        # Without memory functions the slave uses those of C. The callbacks must live as long as the slave.
        self._callbacks = _Callbacks(logger, _ALLOCATE(), _FREE(), None, None)
        self._slave = ctypes.c_void_p(
            self._library.fmi2Instantiate(b"host", 1, guid.encode(), None, ctypes.byref(self._callbacks), 0, 1)
        )
        if not self._slave:
            raise HostError(" ".join(self.log) or "fmi2Instantiate failed.")

    def call(self, name: str, *args: object) -> None:
        """Call a function that returns a status. **Raises:** `HostError` if that is not OK."""
        status = getattr(self._library, name)(self._slave, *args)
        if status:
            raise HostError(f"{name} returned {status}. " + " ".join(self.log))

    def start(self, t0: float, inputs: np.ndarray) -> None:
        """Initialise at `t0`."""
        self.call("fmi2SetupExperiment", 0, ctypes.c_double(0), ctypes.c_double(t0), 0, ctypes.c_double(0))
        self.call("fmi2EnterInitializationMode")
        self.set(0, inputs)
        self.call("fmi2ExitInitializationMode")

    def set(self, first: int, values: np.ndarray) -> None:
        """Set real variables with consecutive value references."""
        references, numbers = self._arrays(first, len(values))
        numbers[:] = list(map(float, values))
        self.call("fmi2SetReal", references, ctypes.c_size_t(len(values)), numbers)

    def set_slopes(self, values: np.ndarray) -> None:
        """Set the first derivatives of all inputs."""
        references, numbers = self._arrays(0, len(values))
        numbers[:] = list(map(float, values))
        orders = (ctypes.c_int * len(values))(*[1] * len(values))
        self.call("fmi2SetRealInputDerivatives", references, ctypes.c_size_t(len(values)), orders, numbers)

    def get(self, first: int, count: int) -> np.ndarray:
        """Real variables with consecutive value references."""
        references, numbers = self._arrays(first, count)
        self.call("fmi2GetReal", references, ctypes.c_size_t(count), numbers)
        return np.array(numbers[:])

    def step(self, t: float, length: float) -> None:
        """One communication step."""
        self.call("fmi2DoStep", ctypes.c_double(t), ctypes.c_double(length), 1)

    def close(self) -> None:
        """Free the instance."""
        self._library.fmi2FreeInstance(self._slave)

    @staticmethod
    def _arrays(first: int, count: int) -> tuple[ctypes.Array, ctypes.Array]:
        return (ctypes.c_uint * count)(*range(first, first + count)), (ctypes.c_double * count)()
