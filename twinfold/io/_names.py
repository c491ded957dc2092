"""Names: which are allowed, and messages about unknown ones."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

MAX_NAME_LENGTH = 200
MAX_LISTED = 50  # names in a message
# Control characters, separators of lines and paragraphs, lone surrogates, and the two others that XML 1.0 excludes.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


def check_name(name: str, where: str) -> str:
    """Return the name of a variable, or a unit, if files of every format can hold it.

    Names end up in CSV, XML, HTML, JSON and C. Their writers escape what has a meaning there, but XML 1.0 has no escape
    for control characters, and UTF-8 has none for a lone surrogate.

    **Arguments:** `where` begins the message: the file, argument or setting that has the name.

    **Raises:** `ValueError` for a name that is empty or too long, or has a character that cannot be written.
    """
    if not name.strip():
        raise ValueError(f"{where}: a name is empty. Give every variable a name.")
    if len(name) > MAX_NAME_LENGTH:
        raise ValueError(
            f"{where}: the name {name[:40]!r}... has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed."
        )
    if found := _FORBIDDEN.search(name):
        raise ValueError(
            f"{where}: the name {name!r} contains {found[0]!r}, a control character or one that UTF-8 or XML cannot "
            "hold. Change it."
        )
    return name


def unknown_name(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the name, the first of the known names, and the nearest of them.

    **Example:**

    ```python
    f"there is no template {tw.io.unknown_name('moter', ['motor', 'tank'])}"
    # there is no template 'moter'; there are: motor, tank. Did you mean 'motor'?
    ```
    """
    known = list(known)
    near = get_close_matches(name.replace("-", "_").replace(" ", "_"), known, n=1)
    near = near or get_close_matches(name.lower().replace("-", "_").replace(" ", "_"), known, n=1, cutoff=0.4)
    guess = f" Did you mean '{_shown(near[0])}'?" if near else ""
    more = f" and {len(known) - MAX_LISTED} more" if len(known) > MAX_LISTED else ""
    return f"'{_shown(name)}'; there are: {', '.join(map(_shown, known[:MAX_LISTED])) or 'none'}{more}.{guess}"


def _shown(name: str) -> str:
    """The name as a terminal can show it: those of the columns of a file may contain control characters."""
    return name if name.isprintable() else ascii(name)[1:-1]
