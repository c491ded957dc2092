"""Downloads that go on where they were interrupted, in this run or a later one."""

import dataclasses
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twinfold.io import atomic_write

PIECE = 1 << 16
AGAIN = {408, 425, 429, 500, 502, 503, 504}  # answers of a server that may be another in a moment

Tell = Callable[[int, int | None], object]  # bytes received so far, and of how many where that is known


@dataclasses.dataclass(frozen=True)
class Downloaded:
    """A finished download: `path`, its `size` in bytes, and the server's `tag` of this version (ETag or date)."""

    path: Path
    size: int
    tag: str


class Interrupted(OSError):
    """The connection broke; what has arrived is kept, and asking again may bring the rest."""


def download(
    url: str,
    path: Path,
    *,
    tell: Tell | None = None,
    retries: int = 5,
    wait: float = 1.0,
    timeout: float = 30.0,
) -> Downloaded:
    """Download `url` to `path`; until it is complete it is called `path` + ".part".

    What a broken download left there is continued with a Range request where the server has the same version still (by
    ETag or date, and size) and can; otherwise it begins anew.

    **Arguments:** `url`; `path`; `tell`, called as it proceeds; `retries`, attempts in a row that may bring nothing;
    `wait`, seconds before the second attempt, doubled for each further one; `timeout` of one answer, in seconds.

    **Raises:** `OSError` that names the address and the cause.
    """
    part, mark = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    in_vain = 0
    while True:
        before = _size(part)
        try:
            tag = _attempt(url, part, mark, tell, timeout)
            break
        except Interrupted as error:
            in_vain = in_vain + 1 if _size(part) <= before else 0
            if in_vain > retries:
                raise OSError(
                    f"{url}: {error}. {_size(part)} bytes are kept in '{part}'; the same command goes on from there."
                ) from None
            time.sleep(wait * 2**in_vain)
    size = _size(part)
    os.replace(part, path)
    mark.unlink(missing_ok=True)
    return Downloaded(path, size, tag)


def _attempt(url: str, part: Path, mark: Path, tell: Tell | None, timeout: float) -> str:
    """Ask once and write what comes; the tag of a download that is complete."""
    known = _read(mark)
    have = _size(part) if known.get("url") == url else 0
    if have and have == known.get("size"):
        return known["tag"]
    headers = {"Accept-Encoding": "identity", "User-Agent": "twinfold"}
    if have and (known["tag"] or known["size"]):  # else nothing would show that the file has changed
        headers["Range"] = f"bytes={have}-"
    with _open(urllib.request.Request(url, headers=headers), part, timeout) as response:
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        begin, size = _span(response)
        if begin and (begin != have or tag != known.get("tag") or size != known.get("size")):
            part.unlink(missing_ok=True)
            raise Interrupted("the file on the server has changed since the download began")
        if not begin:
            with atomic_write(mark) as file:
                file.write(json.dumps({"url": url, "tag": tag, "size": size}).encode())
        with part.open("ab" if begin else "wb") as file:
            have = begin
            while piece := _piece(response):
                file.write(piece)
                have += len(piece)
                if tell is not None:
                    tell(have, size)
    if size is not None and have != size:
        raise Interrupted(f"the connection ended after {have} of {size} bytes")
    return tag


def _open(request: urllib.request.Request, part: Path, timeout: float) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"the server answers {error.code} {error.reason}"
        if error.code == 416 and part.exists():  # it has less than we have: another file by now
            part.unlink()
        elif error.code not in AGAIN:
            raise OSError(f"{request.full_url}: {reason}.") from None
        raise Interrupted(reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(f"no connection ({getattr(error, 'reason', error)})") from None


def _piece(response: Any) -> bytes:
    try:
        # Not read(): it would wait for a whole piece, and lose what it has of it when the connection breaks.
        return response.read1(PIECE)
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(f"the connection broke ({error})") from None


def _span(response: Any) -> tuple[int, int | None]:
    """Where in the file the answer begins (-1 where it does not say), and the size of the file."""
    if response.status == 206:
        unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
        span, _, total = rest.partition("/")
        begin = span.partition("-")[0]
        if unit == "bytes" and begin.isdigit():
            return int(begin), int(total) if total.isdigit() else None
        return -1, None
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdigit() else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read(mark: Path) -> dict[str, Any]:
    try:
        return json.loads(mark.read_text())
    except (OSError, ValueError):
        return {}
