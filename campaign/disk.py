"""Commands on a disk that is full: a limit on the size of files, and a small file system without space.

A command that cannot write says which file, leaves the old files complete and no unfinished ones, and ends as if
nothing had happened once there is space.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from campaign import plant
from campaign.engine import Case, Group
from campaign.plant import Scenario, select
from campaign.process import READ_ONLY_CACHE, Done, Process
from campaign.undisturbed import assert_completes, assert_no_half_files, undisturbed

WHOLE = (plant.FIT, plant.REPORT, plant.MONITOR, plant.RESUME, plant.SIMULATE, *plant.EXPORTS)
TEMPORARY = ("modelDescription.xml", "plant_fmi2.c", "plant.so")  # of which an FMU is made
REASONS = ("File too large", "No space left", "File size limit exceeded")  # the last of a compiler
PAGE = 4096  # bytes, in which a small file system counts
SPACE = 64 << 20


def limited_files(scenario: Scenario, part: float, folder: Path) -> None:
    """No file may be larger than a part (from 0 to 1) between 1 kB and just below the largest file of the command."""
    expected = undisturbed(scenario)
    place, largest = expected.copy(folder), max(_sizes(scenario, expected.end))
    limit = round(min(1024, largest - 1) ** (1 - part) * (largest - 1) ** part)

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    _check(place, scenario, Process(place, scenario.arguments, cache=READ_ONLY_CACHE, limit=limit_files).wait())


def full_disk(scenario: Scenario, part: float, folder: Path) -> None:
    """There is space for a part of what the command writes; 1: for all but the last bytes."""
    expected = undisturbed(scenario)
    with small_disk(folder / "disk") as disk:
        place = expected.copy(disk)
        free = int(part * max(0, _pages(scenario, expected.end) - _pages(scenario, expected.start) - 1)) * PAGE
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(max(0, shutil.disk_usage(disk).free - free)))
        done = Process(place, scenario.arguments, cache=READ_ONLY_CACHE).wait()
        ballast.unlink()
        _check(place, scenario, done)


def _check(place: Path, scenario: Scenario, done: Done) -> None:
    assert done.code in (1, 2), f"a failure expected, {done.said}"
    assert "Traceback" not in done.err or scenario is plant.CLAIM, done.said  # a script has no command line
    assert "Internal error" not in done.err, done.said
    said = done.out + done.err
    assert any(reason in said for reason in REASONS), f"no reason is given, {done.said}"
    assert any(name in said for name in (*scenario.files, *TEMPORARY)), f"no file is named, {done.said}"
    assert not list(place.rglob("*.part")), "an unfinished file is left"
    assert_no_half_files(place, scenario)
    assert_completes(place, scenario)


def _sizes(scenario: Scenario, folder: Path) -> list[int]:
    """The sizes of the files in a folder that a command writes."""
    return [path.stat().st_size for path in folder.rglob("*") if path.name in scenario.files and path.is_file()]


def _pages(scenario: Scenario, folder: Path) -> int:
    return sum(-(-size // PAGE) for size in _sizes(scenario, folder))


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own."""
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "tmpfs", str(folder)], check=True, capture_output=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@cache
def can_mount() -> bool:
    """Whether this process may mount a file system."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return False
    try:
        with tempfile.TemporaryDirectory(prefix="campaign-") as name, small_disk(Path(name, "disk")):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


def disk_cases(seed: int, scale: float) -> Iterable[Case]:
    """Limits for every command; full disks where a file system can be mounted."""
    draw = random.Random(seed)
    faults = [(limited_files, 4)]
    if can_mount():
        faults.append((full_disk, 2))
    else:
        print(
            "disk: only limits on the size of files, since mounting a file system needs root on Linux", file=sys.stderr
        )

    def cases(scenarios: Iterable[Scenario]) -> list[partial]:
        return [
            # The smallest and the largest limit, and some between them.
            partial(fault, each, index / (count - 1) if index in (0, count - 1) else draw.random())
            for each in scenarios
            for fault, count in faults
            for index in range(count)
        ]

    return select(cases(plant.LIGHT), cases(WHOLE), scale, draw)


DISK = Group("Run a command on a full disk, then again with space", disk_cases, kind="run", seconds=600)
