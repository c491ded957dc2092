"""Copy or download NASA's files to a folder with checksums, for `twinfold data nasa-battery`."""

import dataclasses
import os
import urllib.parse
import urllib.request
from pathlib import Path

from twinfold.io import check_regular_file
from twinfold_studies.nasa.collection import Builder, OnError, Skipped
from twinfold_studies.nasa.download import Progress, download
from twinfold_studies.nasa.location import NAME, cache_folder
from twinfold_studies.nasa.manifest import checksum, differences, read_manifest, write_manifest
from twinfold_studies.nasa.tables import LOOKED_FOR, csv_header, has_discharges
from twinfold_studies.nasa.unpack import BROKEN, Member, members, store


@dataclasses.dataclass(frozen=True)
class Fetched:
    """The folder, the files that were written, those that were unchanged, and those that were skipped."""

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
    progress: Progress | None = None,
) -> Fetched:
    """Copy the data files of `source` to a folder, with a manifest of their sizes and SHA-256 checksums.

    A second call copies nothing, and resumes an interrupted download.

    **Arguments:**

    - `source`: a folder, a .zip (including archives inside it), a .mat, .csv or .parquet file, or the URL of a file
      (http, https, file).
    - `out`: the folder; default: nasa_battery in the cache folder.
    - `on_error`: `"skip"` files that cannot be unpacked and record them, or `"raise"`.
    - `force`: download files again that exist.
    - `progress`: called with the number of bytes received, and the total if known.

    **Raises:** `FileNotFoundError`, `OSError` if a download fails, `ValueError` that names the file, or if nothing in
    the source can be a file of discharges; then nothing is copied.
    """
    folder = cache_folder() / NAME if out is None else Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    address = str(source)
    scheme = urllib.parse.urlsplit(address).scheme
    if scheme == "file":
        source = urllib.request.url2pathname(urllib.parse.urlsplit(address).path)
    elif scheme in ("http", "https"):
        return _fetch_url(address, folder, on_error, force, progress)
    elif "://" in address:
        raise ValueError(f"{address}: give a path, or a URL that begins with http, https or file.")
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"There is no file or folder '{path}'.")
    if not path.is_dir():
        check_regular_file(path)
    if path.is_dir() and (folder.resolve().is_relative_to(path.resolve())):
        raise ValueError(
            f"'{path}' contains the target '{folder}'; choose another target with --out, or use the data in place."
        )
    return _copy_members(path, folder, address, on_error)


def _fetch_url(url: str, folder: Path, on_error: OnError, force: bool, progress: Progress | None) -> Fetched:
    known = read_manifest(folder)
    files = tuple(name for name, entry in known["files"].items() if entry["source"] == url)
    if url in known["sources"] and not force and not set(files) & set(differences(folder, contents=True)):
        return Fetched(folder, (), files, ())
    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).name or "download"
    finished = download(url, folder / "download" / name, progress=progress)
    try:
        with finished.path.open("rb") as file:
            entry = {"bytes": finished.size, "tag": finished.tag, "sha256": checksum(file)}
        fetched = _copy_members(finished.path, folder, url, on_error)
    finally:
        finished.path.unlink()
    if not fetched.skipped:  # otherwise the next call downloads it again: the archive may be damaged
        manifest = read_manifest(folder)
        manifest["sources"][url] = entry
        write_manifest(folder, manifest)
    return fetched


def _copy_members(source: Path, folder: Path, address: str, on_error: OnError) -> Fetched:
    _check_contents(source, folder, address)
    builder = Builder(on_error)
    manifest = read_manifest(folder)
    written, unchanged = [], []

    def refuse(name: str, reason: str) -> None:
        builder.refuse(name if name == source.name else f"{source.name}: {name}", "", None, reason)

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
        reasons = "".join(f" {each}." for each in builder.skipped)
        raise ValueError(f"'{address}' contains no usable .mat, .parquet or .csv file.{reasons}")
    write_manifest(folder, manifest)
    return Fetched(folder, tuple(written), tuple(unchanged), tuple(builder.skipped))


def _check_contents(source: Path, folder: Path, address: str) -> None:
    """Raise a `ValueError` if the source has data files, and none can have discharges."""
    count = 0
    for member in members(source, lambda name, reason: None, folder):
        if _may_have_discharges(member):
            return
        count += 1
    if count:
        raise ValueError(f"'{address}' has no discharges: none of its {count} files is one of {LOOKED_FOR}.")


def _may_have_discharges(member: Member) -> bool:
    if member.path.suffix.lower() != ".csv":
        return True
    try:
        with member.open() as file:
            return has_discharges(csv_header(file))
    except BROKEN:  # reported when it is copied
        return True
