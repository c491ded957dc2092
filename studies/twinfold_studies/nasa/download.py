"""Downloads that resume after an interruption, in the same process or a later one."""

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

from twinfold.io import write_json

CHUNK = 1 << 16
TEMPORARY = {408, 425, 429, 500, 502, 503, 504}  # status codes after which it is worth trying again

Progress = Callable[[int, int | None], object]  # bytes received, and the total if known


@dataclasses.dataclass(frozen=True)
class Downloaded:
    """A finished download: `path`, `size` in bytes, and the version `tag` of the server (ETag or date)."""

    path: Path
    size: int
    tag: str


class Interrupted(OSError):
    """The connection broke; the received part is kept, and a further attempt may complete it."""


def download(
    url: str,
    path: Path,
    *,
    progress: Progress | None = None,
    retries: int = 5,
    wait: float = 1.0,
    timeout: float = 30.0,
) -> Downloaded:
    """Download `url` to `path`; an incomplete download is stored as `path` + ".part".

    It is continued with a Range request if the server supports that and still has the same version (by ETag or date,
    and size); otherwise it starts over.

    **Arguments:** `url`; `path`; `progress`, called during the download; `retries`, number of successive attempts
    without progress; `wait`, seconds before the second attempt, doubled for each further one; `timeout` of a response,
    in seconds.

    **Raises:** `OSError` that names the URL and the cause.
    """
    part, record = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    while True:
        before = _size(part)
        try:
            tag = _attempt(url, part, record, progress, timeout)
            break
        except Interrupted as error:
            failures = failures + 1 if _size(part) <= before else 0
            if failures > retries:
                raise OSError(
                    f"{url}: {error}. {_size(part)} bytes are in '{part}'; the same command resumes the download."
                ) from None
            time.sleep(wait * 2**failures)
    size = _size(part)
    os.replace(part, path)
    record.unlink(missing_ok=True)
    return Downloaded(path, size, tag)


def _attempt(url: str, part: Path, record: Path, progress: Progress | None, timeout: float) -> str:
    """Send one request and write its response. **Returns:** the tag of the complete download."""
    known = _read(record)
    received = _size(part) if known.get("url") == url else 0
    if received and received == known.get("size"):
        return known["tag"]
    headers = {"Accept-Encoding": "identity", "User-Agent": "twinfold"}
    if received and (known["tag"] or known["size"]):  # otherwise a changed file would go unnoticed
        headers["Range"] = f"bytes={received}-"
    with _open(urllib.request.Request(url, headers=headers), part, timeout) as response:
        tag = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
        begin, size = _span(response)
        if begin and (begin != received or tag != known.get("tag") or size != known.get("size")):
            part.unlink(missing_ok=True)
            raise Interrupted("the file on the server has changed since the download began")
        if not begin:
            write_json(record, {"url": url, "tag": tag, "size": size})
        with part.open("ab" if begin else "wb") as file:
            received = begin
            while chunk := _read_chunk(response):
                file.write(chunk)
                received += len(chunk)
                if progress is not None:
                    progress(received, size)
    if size is not None and received != size:
        raise Interrupted(f"the connection ended after {received} of {size} bytes")
    return tag


def _open(request: urllib.request.Request, part: Path, timeout: float) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"the server returned {error.code} {error.reason}"
        if error.code == 416 and part.exists():  # the file on the server is smaller: it has changed
            part.unlink()
        elif error.code not in TEMPORARY:
            raise OSError(f"{request.full_url}: {reason}.") from None
        raise Interrupted(reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(f"no connection ({getattr(error, 'reason', error)})") from None


def _read_chunk(response: Any) -> bytes:
    try:
        # Not read(): it would wait for a whole chunk, and lose part of it when the connection breaks.
        return response.read1(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(f"the connection broke ({error})") from None


def _span(response: Any) -> tuple[int, int | None]:
    """The offset at which the response begins (-1 if unknown), and the size of the file."""
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


def _read(record: Path) -> dict[str, Any]:
    try:
        return json.loads(record.read_text())
    except (OSError, ValueError):
        return {}
