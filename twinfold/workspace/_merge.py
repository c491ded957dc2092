"""Blocks that follow one another in the same part of the data, as one run.

A record is cut into blocks so that some can be held out. Nothing is gained by a cut between two blocks that are both
trained on: what happens slowly, a drift or a large time constant, shows in long runs only, each run needs a start of
its own, and the gap between the two is lost.
"""

import dataclasses
import itertools
import re

import numpy as np

from twinfold.data import Dataset, Run

BLOCK = re.compile(r"(?P<run>.*)\[(?P<index>\d+)\]", re.DOTALL)


def merge_blocks(part: Dataset, whole: Dataset) -> Dataset:
    """The runs of a part, each stretch of neighbouring blocks as one run named `run[first-last]`.

    **Arguments:** `part`, some blocks `run[0]`, `run[1]`, ... and perhaps runs that were not cut; `whole`: the runs
    before they were cut.
    """
    uncut, merged = {run.name: run for run in whole.runs}, []
    for name, blocks in itertools.groupby(part.runs, key=lambda run: _place(run, uncut)[0]):
        for stretch in _stretches([(_place(run, uncut)[1], run) for run in blocks]):
            merged.append(_joined(uncut[name], stretch) if len(stretch) > 1 else stretch[0][1])
    return dataclasses.replace(part, runs=tuple(merged))


def _place(run: Run, uncut: dict[str, Run]) -> tuple[str, int]:
    """The uncut run that a block belongs to, and its number there; the name itself and 0 for a run that is no block."""
    match = BLOCK.fullmatch(run.name)
    if run.name in uncut or match is None or match["run"] not in uncut:
        return run.name, 0
    return match["run"], int(match["index"])


def _stretches(blocks: list[tuple[int, Run]]) -> list[list[tuple[int, Run]]]:
    """Blocks in order, with a new list wherever one is missing."""
    stretches: list[list[tuple[int, Run]]] = []
    for index, run in sorted(blocks, key=lambda block: block[0]):
        if stretches and stretches[-1][-1][0] == index - 1:
            stretches[-1].append((index, run))
        else:
            stretches.append([(index, run)])
    return stretches


def _joined(run: Run, stretch: list[tuple[int, Run]]) -> Run:
    """The samples of a run from the start of the first block to the end of the last, those between blocks included."""
    (first, begin), (last, end) = stretch[0], stretch[-1]
    start, stop = np.searchsorted(run.ts, [begin.ts[0], end.ts[-1]])
    rows = slice(start, stop + 1)
    w = None if run.w is None else run.w[rows]
    return Run(f"{run.name}[{first}-{last}]", run.ts[rows], run.y[rows], w, begin.x0, begin.group)
