"""Finished cells in one file, to carry them from one machine to another until a table is whole.

The file is a ZIP archive of the parts of each cell, byte for byte as the store wrote them: compressed, and metrics in
single precision, so that no published digit changes. It may come from anywhere: names, sizes, array headers and jobs
are checked before anything is written, and a cell of other code is refused.
"""

import dataclasses
import io
import json
import math
import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twinfold.io import atomic_write, check_regular_file
from twinfold_studies.bench.fingerprint import code_fingerprint
from twinfold_studies.bench.job import Job
from twinfold_studies.bench.queue import Request
from twinfold_studies.bench.store import Store

PARTS = ("fit", "errors", "dtw")  # the last two are what tables are made of; with the first, `--resume` can add to them
MAX_CELLS, MAX_BYTES = 10_000, 2**30
MAX_PART_BYTES = 64 * 2**20  # of the arrays of one part; those of `cs2` have less than 2 MiB
NAME = re.compile(rf"([a-z0-9_]+-[a-z0-9_]+-[a-z0-9_]+-[0-9a-f]{{8}})\.({'|'.join(PARTS)})\.npz")


class UnusableArchive(ValueError):
    """A file that is no archive of cells, or one of other code; the message says why."""


@dataclasses.dataclass
class Unpacked:
    """Names of the cells that were added or replaced, that were here already, and that differ from those here."""

    added: list[str] = dataclasses.field(default_factory=list)
    known: list[str] = dataclasses.field(default_factory=list)
    different: list[str] = dataclasses.field(default_factory=list)


def pack(requests: Sequence[Request], folder: Path, out: Path) -> tuple[int, int]:
    """Write all finished cells of the requests to one file.

    **Returns:** the number of cells that were packed, and of those that were requested.
    """
    store = Store(folder)
    jobs = {each.job.key: each.job for each in requests}
    packed = 0
    with atomic_write(out) as file, zipfile.ZipFile(file, "w") as archive:
        for key in sorted(jobs):
            if not store.has(jobs[key], "errors", 1):
                continue
            packed += 1
            for path in (store.path(jobs[key], part) for part in PARTS):
                if path.exists():
                    # The date is left out: the same cells make the same file.
                    archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes())
    return packed, len(jobs)


def unpack(file: Path, folder: Path) -> Unpacked:
    """Add the cells of a file to those of a folder.

    A cell that is here and differs is left alone, unless the other one has more seeds.

    **Raises:** `UnusableArchive`, before anything is written; `OSError`.
    """
    cells = _read(file)
    store, report = Store(folder), Unpacked()
    for key, parts in cells.items():
        paths = {part: store.folder / "cells" / f"{key}.{part}.npz" for part in parts}
        here = {part: path.read_bytes() for part, path in paths.items() if path.exists()}
        job, seeds = _job(parts["errors"]), _seeds(parts["errors"])
        if here == parts:
            report.known.append(key)
        elif all(content == parts[part] for part, content in here.items()) or not any(
            store.has(job, part, seeds) for part in here
        ):
            # Metrics last: with them a cell counts as finished.
            for part in sorted(parts, key=lambda part: part == "errors"):
                with atomic_write(paths[part]) as target:
                    target.write(parts[part])
            report.added.append(key)
        else:
            report.different.append(key)
    return report


def _read(file: Path) -> dict[str, dict[str, bytes]]:
    """The parts of each cell in a file, checked."""
    cells: dict[str, dict[str, bytes]] = {}
    try:
        check_regular_file(file)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            total = sum(member.file_size for member in members)
            if len(members) > MAX_CELLS * len(PARTS) or total > MAX_BYTES:
                raise UnusableArchive(f"{len(members)} entries with {total} bytes are too many")
            for member in members:
                found = NAME.fullmatch(member.filename)
                if found is None:
                    raise UnusableArchive(f"{member.filename[:80]!r} is not the name of a cell")
                content = _content(archive, member)
                _check_part(found[1], content)
                cells.setdefault(found[1], {})[found[2]] = content
    except UnusableArchive as error:
        raise UnusableArchive(f"{file}: {error}") from None
    except (ValueError, KeyError, TypeError, EOFError, NotImplementedError, RuntimeError) as error:
        raise UnusableArchive(f"{file}: not an archive of cells, or damaged: {error}") from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise UnusableArchive(f"{file}: not an archive of cells, or damaged: {error}") from None
    for key, parts in cells.items():
        if "errors" not in parts:
            raise UnusableArchive(f"{file}: the metrics of {key} are missing")
    return cells


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The bytes of an entry; `zipfile` reads no more than the size that was checked."""
    if member.file_size > MAX_PART_BYTES:
        raise UnusableArchive(f"{member.filename}: {member.file_size} bytes are too many")
    return archive.read(member)


def _arrays(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of one part. Each header has to match the size of its data before memory is allocated for it."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > MAX_PART_BYTES:
            raise UnusableArchive("arrays larger than those of any cell")
        return {m.filename.removesuffix(".npy"): _array(archive.read(m)) for m in archive.infolist()}


def _array(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("unknown version of the array format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in "biufU" or math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError(f"an array of shape {shape} and type {dtype} does not match its data")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def _header(content: bytes) -> dict[str, Any]:
    return json.loads(str(_arrays(content)["header"]))


def _check_part(key: str, content: bytes) -> None:
    """Raise unless a part belongs to the job and the code that its name stands for."""
    header = _header(content)
    if header["code"] != code_fingerprint():
        raise UnusableArchive(
            f"{key} was computed by other code (fingerprint {str(header['code'])[:16]}, here {code_fingerprint()}); "
            "numbers of both do not belong in one table. Compute it with the code that is installed here"
        )
    if _job_of(header).key != key:
        raise UnusableArchive(f"{key} contains the results of another job")


def _job(content: bytes) -> Job:
    return _job_of(_header(content))


def _job_of(header: dict[str, Any]) -> Job:
    settings = dict(header["job"])
    return Job(system_name=settings.pop("system"), **settings)


def _seeds(content: bytes) -> int:
    return len(_header(content)["seeds"])
