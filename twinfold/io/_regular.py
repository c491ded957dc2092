"""Regular files. A device, a FIFO or a socket has no end, or waits for ever: it is named, and never opened."""

import errno
import os
import stat

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFSOCK: "a socket",
}


def check_regular_file(path: str | os.PathLike[str], where: str = "") -> None:
    """Raise a `ValueError` that says what `path` is unless it is a regular file.

    **Arguments:** `path`, links included; `where` begins the message (default: the path).

    **Raises:** `ValueError`; `FileNotFoundError` if there is nothing.

    **Example:**

    ```python
    try:
        tw.io.check_regular_file(".")
    except ValueError as error:
        print(error)  # . is a folder, not a file.
    ```
    """
    try:
        mode = os.stat(path).st_mode
    except (NotADirectoryError, ValueError):  # below a file; a name with a NUL
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path)) from None
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "a special file")
        raise ValueError(f"{where or os.fspath(path)} is {kind}, not a file.")
