"""The manifest of a folder: sizes and SHA-256 checksums of its files, in manifest.json."""

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from twinfold.io import atomic_write

NAME = "manifest.json"
CHUNK = 1 << 20


@runtime_checkable
class Readable(Protocol):
    """A source of bytes: a file, or a member of an archive."""

    def read(self, size: int = -1, /) -> bytes:
        """Read at most `size` bytes; empty at the end."""
        ...


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder: `files` by path, and `sources` by URL; both are empty if there is none."""
    try:
        return json.loads((folder / NAME).read_text())
    except FileNotFoundError:
        return {"files": {}, "sources": {}}
    except ValueError:
        raise ValueError(f"'{folder / NAME}' is damaged; delete it and get the data again.") from None


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of a folder."""
    with atomic_write(folder / NAME) as file:
        file.write(json.dumps(manifest, indent=1, sort_keys=True).encode())


def checksum(file: Readable) -> str:
    """The SHA-256 checksum of the rest of a file."""
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def differences(folder: Path, *, contents: bool) -> dict[str, str]:
    """The files that differ from the manifest, and how.

    **Arguments:** `folder`; `contents`: whether to compare checksums, or only sizes.
    """
    reasons = {}
    for name, expected in read_manifest(folder)["files"].items():
        path = folder / name
        if not path.is_file():
            reasons[name] = "the file is missing"
        elif path.stat().st_size != expected["bytes"]:
            reasons[name] = f"the file has {path.stat().st_size} bytes instead of {expected['bytes']}"
        elif contents:
            with path.open("rb") as file:
                if checksum(file) != expected["sha256"]:
                    reasons[name] = "checksum mismatch: the file has changed"
    return reasons
