"""docs/architecture.md agrees with the code: its diagrams with the calls of real runs, its table with the files."""

import functools
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import twinfold as tw

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()


class Entry(NamedTuple):
    """A line of a diagram."""

    function: str
    file: str
    parent: int | None


def diagram(title: str) -> list[Entry]:
    section = PAGE.split(f"### {title}\n")[1].split("\n#")[0]
    entries: list[Entry] = []
    open_lines: list[tuple[int, int]] = []  # indentation and index of the lines above, outermost first
    for line in re.findall(r"^    .+$", section, re.MULTILINE):
        indent = len(line) - len(line.lstrip())
        function, file = line.split()[:2]
        open_lines = [each for each in open_lines if each[0] < indent]
        entries.append(Entry(function, file, open_lines[-1][1] if open_lines else None))
        open_lines.append((indent, len(entries) - 1))
    return entries


@contextmanager
def recorded_calls(entries: list[Entry]) -> Iterator[set[tuple[int | None, int]]]:
    """The pairs (nearest caller among the entries, called entry) of everything that runs inside."""
    index = {(entry.file, entry.function): place for place, entry in enumerate(entries)}
    calls: set[tuple[int | None, int]] = set()

    @functools.cache
    def place_of(code: CodeType) -> int | None:
        return index.get((code.co_filename.rpartition("/twinfold/")[2], code.co_qualname))

    def place(frame: FrameType) -> int | None:
        return place_of(frame.f_code)

    def profile(frame: FrameType, event: str, _: Any) -> None:
        called = place(frame) if event == "call" else None
        if called is None:
            return
        caller = frame.f_back
        while caller is not None and place(caller) in (None, called):
            caller = caller.f_back
        calls.add((place(caller) if caller is not None else None, called))

    sys.setprofile(profile)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def run_fit(_: Path) -> None:
    ts = np.linspace(0, 1, 6)
    data = tw.Dataset.from_arrays(ts, np.exp(-ts)[None, :, None])
    tw.fit(tw.Twin(tw.BlackBox(tw.MLP(width=3, depth=1))), data, method=tw.Adam(1), progress=False)


def run_simulate(_: Path) -> None:
    twin = tw.Twin(lambda x: jnp.stack([x[1], -x[0]]), constraint=tw.Conserved(lambda x: x @ x), projection=tw.Newton())
    twin.simulate(jnp.array([1.0, 0.0]), jnp.linspace(0.0, 1.0, 5))


def run_export(folder: Path) -> None:
    spec = tw.export.ExportSpec("lag", ["x"], ["u"], ["x"], dt=0.1, x0=[1.0], w_low=[-1], w_high=[1])
    tw.export.export_twin(tw.Twin(lambda x, w: w - x), spec, folder, to=["c"], samples=10, horizon=10)


@pytest.mark.parametrize(
    ("title", "run"),
    [pytest.param("Fit", run_fit, marks=pytest.mark.slow), ("Simulate", run_simulate), ("Export", run_export)],
)
def test_a_diagram_shows_the_calls_of_a_real_run(title: str, run: Callable[[Path], None], tmp_path: Path):
    entries = diagram(title)
    assert len(entries) >= 10
    with recorded_calls(entries) as calls:
        run(tmp_path)
    for place, entry in enumerate(entries):
        assert (entry.parent, place) in calls, f"{entry.function} ({entry.file}) is not called as drawn"


def test_the_files_of_the_table_exist():
    table = PAGE.split("## Where to change what")[1]
    library, studies = table.split("| **Studies**")
    for part, folder in ((library, ROOT / "twinfold"), (studies, ROOT / "studies/twinfold_studies")):
        files = [name for name in re.findall(r"`([\w./]+)`", part) if "/" in name and not name.endswith("twinfold/")]
        assert files
        for name in files:
            if not name.startswith("studies/"):
                assert (folder / name).exists(), name


def test_the_picture_shows_the_rooms_of_the_contract():
    drawn = runpy.run_path(str(ROOT / "docs/pictures/rooms.py"))["draw"]()
    assert drawn == (ROOT / "docs/pictures/rooms.svg").read_text(), "run python docs/pictures/rooms.py"
