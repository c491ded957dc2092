"""What a command leaves if nothing disturbs it, and the comparison with what it leaves otherwise.

Two runs of a command leave the same files, bit for bit, but for one number: the seconds of a fit in its checkpoints.
"""

import atexit
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from campaign.plant import CHECKPOINTS, FINDINGS, Scenario
from campaign.process import Done, Process, run

LOCK = ".lock"  # is empty, and stays
REWRITTEN = (*CHECKPOINTS, FINDINGS, ".owner.json")  # several times in one fit
NAME = "plant"  # of the folder: it is in reports and exports


@dataclass(frozen=True)
class Undisturbed:
    """A scenario without a disturbance: the folders before and after it, their contents, and its end."""

    start: Path
    end: Path
    before: dict[str, Any]
    after: dict[str, Any]
    done: Done

    def copy(self, folder: Path) -> Path:
        """The state before the command, in a folder of its own."""
        return Path(shutil.copytree(self.start, folder / NAME))

    def copy_end(self, folder: Path) -> Path:
        """The state after the command, in a folder of its own."""
        return Path(shutil.copytree(self.end, folder / NAME))


@cache
def undisturbed(scenario: Scenario) -> Undisturbed:
    """Run a scenario, once for all cases of a worker."""
    start, end = (scratch() / scenario.name / name / NAME for name in ("start", "end"))
    start.mkdir(parents=True)
    scenario.prepare(start)
    shutil.copytree(start, end)
    done = run(end, *scenario.arguments)
    assert done.code == scenario.code, done.said
    before, after = contents(start), contents(end)
    written = {Path(name).name for name in after if after[name] != before.get(name)}
    assert written <= set(scenario.files), f"{scenario.name} writes {written - set(scenario.files)} as well"
    return Undisturbed(start, end, before, after, done)


@cache
def scratch() -> Path:
    """A folder that this process deletes at its end."""
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def contents(folder: Path) -> dict[str, Any]:
    """The files of a folder by name, to be compared: bytes, or the parts of a checkpoint."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return {path.relative_to(folder).as_posix(): _content(path) for path in files}


def _content(path: Path) -> Any:
    if path.suffix != ".npz":
        return path.read_bytes()
    with np.load(path) as stored:
        arrays = {name: (stored[name].dtype.str, stored[name].shape, stored[name].tobytes()) for name in stored.files}
        header = json.loads(str(stored["header"]))
    del header["progress"]["seconds"]
    return arrays | {"header": header}


def assert_no_half_files(folder: Path, scenario: Scenario) -> None:
    """After a disturbance every file is the complete old or the complete new one; unfinished ones end in .part."""
    expected = undisturbed(scenario)
    for name, content in contents(folder).items():
        if not name.endswith(".part") and Path(name).name not in REWRITTEN:
            assert content in (expected.before.get(name), expected.after.get(name)), f"{name} is not complete"


def assert_completes(folder: Path, scenario: Scenario) -> None:
    """The same command ends as if nothing had happened: exit code, results on stdout, and every file."""
    expected = undisturbed(scenario)
    if scenario.once and contents(folder) == expected.after:
        return
    done = Process(folder, scenario.arguments).wait()
    assert done.code == expected.done.code, f"exit code {expected.done.code} expected, {done.said}"
    assert "Traceback" not in done.err, done.said
    lines, usual = _results(done.out), _results(expected.done.out)
    assert lines == usual, f"other lines than {[line for line in usual if line not in lines]}, {done.said}"
    found = contents(folder)
    different = [name for name in {**found, **expected.after} if found.get(name) != expected.after.get(name)]
    assert not different, f"not as without the disturbance: {', '.join(sorted(different))}"


def _results(out: str) -> Sequence[str]:
    return [line for line in out.splitlines() if not line.startswith("Resuming") and "already holds" not in line]
