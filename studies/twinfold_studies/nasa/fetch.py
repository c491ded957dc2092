"""Get NASA's files from wherever they are into a folder with checksums: what `twinfold data nasa-battery` does."""

import dataclasses
import os
import urllib.parse
import urllib.request
from pathlib import Path

from twinfold_studies.nasa.collection import OnError, Skipped, Tray
from twinfold_studies.nasa.download import Tell, download
from twinfold_studies.nasa.find import NAME, cache_folder
from twinfold_studies.nasa.manifest import checksum, differences, read_manifest, write_manifest
from twinfold_studies.nasa.unpack import BROKEN, members, store


@dataclasses.dataclass(frozen=True)
class Fetched:
    """What came of it: the folder, the files written and those that were there already, and what was left out."""

    folder: Path
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def fetch(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    on_error: OnError = "skip",
    force: bool = False,
    tell: Tell | None = None,
) -> Fetched:
    """Bring the data files of `source` into a folder, with a manifest of their sizes and SHA-256 checksums.

    Given twice, it finds that nothing is left to do; a download that broke off goes on.

    **Arguments:**

    - `source`: a folder, a .zip (archives inside it are opened too), a .mat, .csv or .parquet file, or the address of
      a file (http, https, file).
    - `out`: the folder; nasa_battery in the cache folder when left out.
    - `on_error`: `"skip"` what cannot be unpacked and record it, or `"raise"`.
    - `force`: download again what is there already.
    - `tell`: called with the bytes received, and their number in all where it is known.

    **Raises:** `FileNotFoundError`, `OSError` for a download that fails, `ValueError` that names the file.
    """
    folder = cache_folder() / NAME if out is None else Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    address = str(source)
    scheme = urllib.parse.urlsplit(address).scheme
    if scheme == "file":
        source = urllib.request.url2pathname(urllib.parse.urlsplit(address).path)
    elif scheme in ("http", "https"):
        return _fetch_address(address, folder, on_error, force, tell)
    elif "://" in address:
        raise ValueError(f"{address}: give a path, or an address that begins with http, https or file.")
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder '{path}'.")
    if path.is_dir() and (folder.resolve().is_relative_to(path.resolve())):
        raise ValueError(f"'{path}' holds the target '{folder}'; give another one with --out, or use it where it is.")
    return _bring(path, folder, address, on_error)


def _fetch_address(url: str, folder: Path, on_error: OnError, force: bool, tell: Tell | None) -> Fetched:
    known = read_manifest(folder)
    of_url = tuple(name for name, entry in known["files"].items() if entry["source"] == url)
    if url in known["sources"] and not force and not set(of_url) & set(differences(folder, contents=True)):
        return Fetched(folder, (), of_url, ())
    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).name or "download"
    finished = download(url, folder / "download" / name, tell=tell)
    try:
        with finished.path.open("rb") as file:
            entry = {"bytes": finished.size, "tag": finished.tag, "sha256": checksum(file)}
        fetched = _bring(finished.path, folder, url, on_error)
    finally:
        finished.path.unlink()
    if not fetched.skipped:  # else the next call downloads it again: the archive may have been damaged on the way
        manifest = read_manifest(folder)
        manifest["sources"][url] = entry
        write_manifest(folder, manifest)
    return fetched


def _bring(source: Path, folder: Path, address: str, on_error: OnError) -> Fetched:
    tray = Tray(on_error)
    manifest = read_manifest(folder)
    written, unchanged = [], []

    def refuse(name: str, reason: str) -> None:
        tray.refuse(name if name == source.name else f"{source.name}: {name}", "", None, reason)

    for member in members(source, refuse, folder):
        name = str(member.path)
        try:
            digest, new = store(member, folder)
        except BROKEN as error:
            refuse(name, str(error))
            continue
        manifest["files"][name] = {"bytes": member.size, "sha256": digest, "source": address}
        (written if new else unchanged).append(name)
    if not written and not unchanged:
        reasons = "".join(f" {each}." for each in tray.skipped)
        raise ValueError(f"'{address}' holds no .mat, .parquet or .csv file that can be used.{reasons}")
    write_manifest(folder, manifest)
    return Fetched(folder, tuple(written), tuple(unchanged), tuple(tray.skipped))
