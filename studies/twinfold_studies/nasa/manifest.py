"""What a folder of downloaded or unpacked files should hold: sizes and SHA-256 checksums, in manifest.json."""

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from twinfold.io import atomic_write

NAME = "manifest.json"
PIECE = 1 << 20


@runtime_checkable
class Readable(Protocol):
    """Anything that bytes can be read from; a member of an archive is not quite a file."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a folder: `files` by their path in it, and `sources` by address; both empty where it has none."""
    try:
        return json.loads((folder / NAME).read_text())
    except FileNotFoundError:
        return {"files": {}, "sources": {}}
    except ValueError:
        raise ValueError(f"'{folder / NAME}' is damaged; delete it and get the data again.") from None


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Replace the manifest of a folder."""
    with atomic_write(folder / NAME) as file:
        file.write(json.dumps(manifest, indent=1, sort_keys=True).encode())


def checksum(file: Readable) -> str:
    """The SHA-256 of what is left to read of a file."""
    digest = hashlib.sha256()
    while piece := file.read(PIECE):
        digest.update(piece)
    return digest.hexdigest()


def differences(folder: Path, *, contents: bool) -> dict[str, str]:
    """The files that are not as the manifest says, and in what.

    **Arguments:** `folder`; `contents`, whether to compute every checksum, or only to compare sizes.
    """
    found = {}
    for name, wanted in read_manifest(folder)["files"].items():
        path = folder / name
        if not path.is_file():
            found[name] = "the file is gone"
        elif path.stat().st_size != wanted["bytes"]:
            found[name] = f"the file has {path.stat().st_size} bytes and had {wanted['bytes']}"
        elif contents:
            with path.open("rb") as file:
                if checksum(file) != wanted["sha256"]:
                    found[name] = "the file has changed: its SHA-256 is another"
    return found
