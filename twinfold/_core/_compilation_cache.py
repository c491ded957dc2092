"""The compilation cache: what one process has compiled, the next one reads."""

import contextlib
import hashlib
import os
import platform
import warnings
from pathlib import Path

import jax
import jaxlib.version
from platformdirs import user_cache_path

VARIABLE = "TWINFOLD_CACHE"  # a folder, or "off"
MAX_BYTES = 512 * 2**20


def enable_compilation_cache(folder: str | Path | None = None) -> Path | None:
    """Keep compiled programs on disk, so that the next process starts at once; the command line does so by itself.

    **Arguments:** `folder`; when left out, that of the environment variable `TWINFOLD_CACHE`, or else one in the
    cache folder of the user. `TWINFOLD_CACHE=off` turns it off, and a cache that JAX was told to use is left as it is.

    **Returns:** the folder in use, None where there is none. It is limited to 512 MB, oldest out first.

    **Example:**

    ```python
    tw.enable_compilation_cache("compiled")
    ```
    """
    chosen = folder or os.environ.get(VARIABLE)
    if jax.config.values["jax_compilation_cache_dir"] or chosen == "off":
        return None
    # Programs are compiled for one processor: with those of another, which shares the folder, they would crash.
    path = (Path(chosen) if chosen else user_cache_path("twinfold") / "compiled").absolute() / _processor()
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.name == "posix" and (path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o022):
            raise PermissionError(f"others can write to {path}")
        _prune(path)
    except OSError as error:
        warnings.warn(f"compiled programs are not kept: {error}. {VARIABLE} names another folder.", stacklevel=2)
        return None
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # An entry that cannot be read or written costs a compilation, no more.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    return path


def _processor() -> str:
    """The name of the folder for this version of the compiler and this processor."""
    about = [jaxlib.version.__version__, platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        about += sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    return hashlib.sha256("\n".join(about).encode()).hexdigest()[:12]


def _prune(path: Path) -> None:
    """Remove the entries that were not read for longest until the others take less than the limit."""
    entries = [(entry.stat(), entry) for entry in os.scandir(path) if entry.is_file(follow_symlinks=False)]
    entries.sort(key=lambda each: max(each[0].st_atime, each[0].st_mtime))
    total = sum(each.st_size for each, _ in entries)
    for each, entry in entries:
        if total <= MAX_BYTES:
            break
        with contextlib.suppress(OSError):  # another process has removed it
            os.remove(entry.path)
        total -= each.st_size
