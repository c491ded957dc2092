"""Safe extraction of data files from folders and (nested) archives to a folder."""

import dataclasses
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from twinfold.io import atomic_write
from twinfold_studies.nasa.manifest import CHUNK, Readable, checksum

WANTED = (".mat", ".parquet", ".csv")
MAX_DEPTH = 4  # of nested archives; NASA's have two levels
MAX_BYTES = 16 << 30  # in total; ten times the size of both of NASA's sets


class Refused(ValueError):
    """A member that must not or cannot be unpacked; the message is the reason."""


BROKEN = (Refused, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)  # of one member; others may be intact


@dataclasses.dataclass(frozen=True)
class Member:
    """A file to extract: path below the target, size, and a function that opens it before the next one is requested."""

    path: PurePosixPath
    size: int
    open: Callable[[], AbstractContextManager[Readable]]


def members(
    source: Path, refuse: Callable[[str, str], None], scratch: Path, *, max_bytes: int = MAX_BYTES
) -> Iterator[Member]:
    """The data files of a folder or an archive, including nested archives, or a single file.

    **Arguments:** `source`; `refuse`, called with the name of a member that cannot be extracted and the reason;
    `scratch`, a folder for nested archives; `max_bytes`, limit of the total size.
    """
    remaining = max_bytes
    for path in sorted(each for each in source.rglob("*") if each.is_file()) if source.is_dir() else [source]:
        below = PurePosixPath(*path.relative_to(source if source.is_dir() else source.parent).parts)
        if zipfile.is_zipfile(path):
            prefix = below.with_suffix("") if source.is_dir() else PurePosixPath()
            for member in _archive(path, prefix, refuse, scratch, 1):
                remaining = _deducted(member, remaining, max_bytes)
                yield member
        elif path.suffix.lower() == ".zip":
            refuse(str(below), "not an archive, or truncated")
        elif path.suffix.lower() in WANTED:
            member = Member(below, path.stat().st_size, lambda path=path: path.open("rb"))
            remaining = _deducted(member, remaining, max_bytes)
            yield member
        elif path == source:
            refuse(str(below), f"neither a folder nor a .zip, {', '.join(WANTED)} file")


def store(member: Member, folder: Path) -> tuple[str, bool]:
    """Write a member to a folder unless it is unchanged. **Returns:** its SHA-256, and whether it was written."""
    target = folder.joinpath(*member.path.parts)
    if target.is_file() and target.stat().st_size == member.size:
        with member.open() as new, target.open("rb") as old:
            digest = checksum(new)
            if checksum(old) == digest:
                return digest, False
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise Refused("a link in the target leads outside of it")
    _check_space(folder, member.size)
    with atomic_write(target) as file, member.open() as source:
        _copy(source, file, member.size)
    with target.open("rb") as file:
        return checksum(file), True


def _archive(
    file: Path | IO[bytes], prefix: PurePosixPath, refuse: Callable[[str, str], None], scratch: Path, depth: int
) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            suffix = os.path.splitext(info.filename)[1].lower()
            # macOS adds metadata files under this name.
            if info.is_dir() or suffix not in (*WANTED, ".zip") or "__MACOSX" in info.filename:
                continue
            try:
                path = prefix / _inside(info)
                if suffix != ".zip":
                    yield Member(path, info.file_size, lambda info=info: archive.open(info))
                    continue
                if depth == MAX_DEPTH:
                    raise Refused(f"more than {MAX_DEPTH} levels of nested archives")
                _check_space(scratch, info.file_size)
                # An archive is read from its end, so a nested one must be on disk.
                with tempfile.TemporaryFile(dir=scratch) as inner:
                    with archive.open(info) as packed:
                        _copy(packed, inner, info.file_size)
                    yield from _archive(inner, path.with_suffix(""), refuse, scratch, depth + 1)
            except BROKEN as error:
                refuse(f"{prefix / info.filename}", str(error))


def _inside(info: zipfile.ZipInfo) -> PurePosixPath:
    """The path of a member, if it is inside the target folder."""
    name = info.filename.replace("\\", "/")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive or "\0" in name:
        raise Refused("its path leads outside of the target")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise Refused("a symbolic link")
    if info.flag_bits & 1:
        raise Refused("encrypted")
    return path


def _copy(source: Readable, target: IO[bytes], size: int) -> None:
    """Copy a file of known size, and no more: the size in the header may be wrong."""
    remaining = size
    while chunk := source.read(CHUNK):
        remaining -= len(chunk)
        if remaining < 0:
            break
        target.write(chunk)
    if remaining:
        raise Refused(f"its size is not the {size} bytes of its header")


def _check_space(folder: Path, size: int) -> None:
    if shutil.disk_usage(folder).free < size:
        raise Refused(f"it needs {size} bytes, more than the free space of the disk")


def _deducted(member: Member, remaining: int, max_bytes: int) -> int:
    if member.size > remaining:
        raise ValueError(f"{member.path}: the total size exceeds {max_bytes} bytes; is this the right file?")
    return remaining - member.size
