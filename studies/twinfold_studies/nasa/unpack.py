"""Files out of folders and archives into a folder, and nowhere else: NASA's archives hold archives."""

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
from twinfold_studies.nasa.manifest import PIECE, Readable, checksum

WANTED = (".mat", ".parquet", ".csv")
NESTING = 4  # archives within archives; NASA's go two deep
LARGEST = 16 << 30  # bytes in all; both of NASA's sets together are a tenth of it


class Refused(ValueError):
    """A member that must not or cannot be unpacked; the message says why."""


BROKEN = (Refused, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)  # of one member; others may be whole


@dataclasses.dataclass(frozen=True)
class Member:
    """A file to be had: its path below the target, its size, and how to open it, before the next one is asked for."""

    path: PurePosixPath
    size: int
    open: Callable[[], AbstractContextManager[Readable]]


def members(
    source: Path, refuse: Callable[[str, str], None], scratch: Path, *, most: int = LARGEST
) -> Iterator[Member]:
    """The data files of a folder, of an archive, or the one file itself; archives inside are opened too.

    **Arguments:** `source`; `refuse`, called with the name of what cannot be had and the reason; `scratch`, a
    folder for archives found inside of others; `most`, bytes that all of it together may have once unpacked.
    """
    left = most
    for path in sorted(each for each in source.rglob("*") if each.is_file()) if source.is_dir() else [source]:
        below = PurePosixPath(*path.relative_to(source if source.is_dir() else source.parent).parts)
        if zipfile.is_zipfile(path):
            prefix = below.with_suffix("") if source.is_dir() else PurePosixPath()
            for member in _archive(path, prefix, refuse, scratch, 1):
                left = _take(member, left, most)
                yield member
        elif path.suffix.lower() == ".zip":
            refuse(str(below), "not an archive, or a truncated one")
        elif path.suffix.lower() in WANTED:
            member = Member(below, path.stat().st_size, lambda path=path: path.open("rb"))
            left = _take(member, left, most)
            yield member
        elif path == source:
            refuse(str(below), f"neither a folder, nor a .zip, {', '.join(WANTED)} file")


def store(member: Member, folder: Path) -> tuple[str, bool]:
    """Write a member into a folder, unless it is there already; its SHA-256, and whether it was written."""
    target = folder.joinpath(*member.path.parts)
    if target.is_file() and target.stat().st_size == member.size:
        with member.open() as new, target.open("rb") as old:
            digest = checksum(new)
            if checksum(old) == digest:
                return digest, False
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise Refused("a link in the target leads out of it")
    _check_room(folder, member.size)
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
            # A Mac puts a twin with a name of this kind beside every file, with what it knows about it.
            if info.is_dir() or suffix not in (*WANTED, ".zip") or "__MACOSX" in info.filename:
                continue
            try:
                path = prefix / _inside(info)
                if suffix != ".zip":
                    yield Member(path, info.file_size, lambda info=info: archive.open(info))
                    continue
                if depth == NESTING:
                    raise Refused(f"more than {NESTING} archives within one another")
                _check_room(scratch, info.file_size)
                # An archive is read from its end: a member of another one has to lie on the disk for that.
                with tempfile.TemporaryFile(dir=scratch) as inner:
                    with archive.open(info) as packed:
                        _copy(packed, inner, info.file_size)
                    yield from _archive(inner, path.with_suffix(""), refuse, scratch, depth + 1)
            except BROKEN as error:
                refuse(f"{prefix / info.filename}", str(error))


def _inside(info: zipfile.ZipInfo) -> PurePosixPath:
    """The path of a member, if it stays below the folder that it is unpacked to."""
    name = info.filename.replace("\\", "/")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive or "\0" in name:
        raise Refused("its path leads out of the archive")
    if stat.S_ISLNK(info.external_attr >> 16):
        raise Refused("a symbolic link")
    if info.flag_bits & 1:
        raise Refused("encrypted")
    return path


def _copy(source: Readable, target: IO[bytes], size: int) -> None:
    """Copy a file of known size, and not one byte more: a header may lie about it."""
    left = size
    while piece := source.read(PIECE):
        left -= len(piece)
        if left < 0:
            break
        target.write(piece)
    if left:
        raise Refused(f"it has not the {size} bytes that are announced")


def _check_room(folder: Path, size: int) -> None:
    if shutil.disk_usage(folder).free < size:
        raise Refused(f"it needs {size} bytes, more than the disk has left")


def _take(member: Member, left: int, most: int) -> int:
    if member.size > left:
        raise ValueError(f"{member.path}: more than {most} bytes to unpack in all; is this the right file?")
    return left - member.size
