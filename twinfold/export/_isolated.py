"""Compiled code in a process of its own, with a time limit.

A library can crash or never return, and it was made from a file that may be forged. So it is loaded by a second Python,
which exchanges arrays with this one through files. That Python has the rights of its user: this keeps the export
alive, it is not a sandbox.

    python -m twinfold.export._isolated MODULE:FUNCTION    in a folder with the files of the arguments
"""

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.io._archive import read_arrays, write_arrays

TIME_LIMIT = 300.0  # seconds
_SETTINGS, _ARGUMENTS, _RESULTS, _LOG = "settings.json", "arguments.npz", "results.npz", "log.txt"


class IsolatedError(RuntimeError):
    """The separate process crashed, did not end, or returned something else; the message is a sentence."""


def run_isolated(
    function: str,
    settings: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int | None, ...]],
) -> dict[str, np.ndarray]:
    """Call `function(**settings, **arrays)`, which returns arrays by name, in a process of its own.

    **Arguments:** `function` as "module:name", in a module that does not import JAX; `settings`, which JSON can hold;
    `arrays`; `shapes` of the results, with None for any length.

    **Raises:** `IsolatedError` if there are no such results.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / _SETTINGS).write_text(json.dumps(dict(settings)))
        write_arrays(folder / _ARGUMENTS, dict(arrays))
        code = _run(folder, function)
        if code:
            said = _last_line(folder / _LOG)
            ending = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"
            raise IsolatedError(
                f"The compiled check ended with {ending}{f': {said}' if said else ''}".rstrip(".") + "."
            )
        try:
            results = read_arrays(folder / _RESULTS)
        except (OSError, ValueError):
            raise IsolatedError("The compiled check ended without results.") from None
    if results.keys() != shapes.keys() or not all(_fits(results[name], shapes[name]) for name in shapes):
        raise IsolatedError("The compiled check returned other results than expected.")
    return results


def _run(folder: Path, function: str) -> int:
    """The exit code of the separate process, which ends here with all that it started."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder)),
    }
    command = [sys.executable, "-P", "-m", "twinfold.export._isolated", function]
    with (folder / _LOG).open("wb") as log:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise IsolatedError(f"The compiled check could not be started: {error}.") from None
        try:
            return process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            raise IsolatedError(f"The compiled check did not end within {TIME_LIMIT:g} s.") from None
        finally:
            if os.name == "posix":
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()


def _last_line(path: Path, most: int = 1000) -> str:
    """The last line of a log, without control characters."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - most, 0))
        lines = file.read(most).decode(errors="replace").split("\n")
    return "".join(filter(str.isprintable, next((line for line in reversed(lines) if line.strip()), ""))).strip()


def _fits(array: np.ndarray, shape: tuple[int | None, ...]) -> bool:
    return (
        array.dtype.kind in "iuf"
        and array.ndim == len(shape)
        and all(expected in (None, length) for length, expected in zip(array.shape, shape, strict=True))
    )


def _main(function: str) -> None:
    if hasattr(signal, "alarm"):
        signal.alarm(int(2 * TIME_LIMIT))  # should the exporting process be killed meanwhile
    module, name = function.split(":")
    settings = json.loads(Path(_SETTINGS).read_text())
    try:
        results = getattr(importlib.import_module(module), name)(**settings, **read_arrays(Path(_ARGUMENTS)))
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
    write_arrays(Path(_RESULTS), results)


if __name__ == "__main__":
    _main(sys.argv[1])
