"""Messages about unknown names."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the name, the known names, and the nearest of them.

    **Example:**

    ```python
    f"there is no template {tw.io.unknown_name('moter', ['motor', 'tank'])}"
    # there is no template 'moter'; there are: motor, tank. Did you mean 'motor'?
    ```
    """
    known = list(known)
    near = get_close_matches(name.replace("-", "_").replace(" ", "_"), known, n=1)
    near = near or get_close_matches(name.lower().replace("-", "_").replace(" ", "_"), known, n=1, cutoff=0.4)
    guess = f" Did you mean '{near[0]}'?" if near else ""
    return f"'{name}'; there are: {', '.join(known) or 'none'}.{guess}"
